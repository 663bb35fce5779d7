"""Targets in the config package: overrides, and a stage's config file."""

from pathlib import Path

from cases import Target
from hostile import VALUES, Draw, edited_lines

from faze.config.stage_config import load, resolve, to_lines
from faze.config.tiers import resolve_tier, tier_bases
from faze.config.validation import validate
from faze.config.yaml_files import DEFAULTS, merge, read_yaml

ROOT = Path(__file__).resolve().parents[2]
_LINES = r"""*nobody
!!python/object/apply:os.system [touch x]
!!binary x
!!int ''
!!bool x
!!timestamp x
!x y
!!set {a, b}
!!omap [a: 1]
? {a: b}
2001-99-99
1:1:1
- a
<<: 1
a: b: c
%YAML 9.9
---
...
.nan
1e-5
|
>-
{
[
'
no
~
tiers: {1: {}}
tiers: {a/b: {}}
run: {tiers: [[a]]}
name: ../../x"""
_LONG = ["0x" + "f" * 50_000, "1" + ":1" * 2000, "x." * 10_000 + "x: 1", "name: " + "n" * 300]
_WORDS = (*_LINES.split("\n"), *_LONG, *(value for value in VALUES if "\n" not in value))


def _given(draw: Draw, folder: Path, text: str) -> None:
    (folder / "given.yaml").write_bytes(edited_lines(draw, text, _WORDS))


def _make_overrides(draw: Draw, folder: Path) -> None:
    _given(draw, folder, (ROOT / "config/smoke.yaml").read_text(encoding="utf-8") if draw.flip() else _LADDER)


_LADDER = """name: mine
run:
  tiers: [baseline, mine]
  seeds: [0]
  controls: []
tiers:
  mine: {precision: bf16, force: true}
preprocess:
  datasets:
    - {name: mine, layout: mpiigaze, path: /x, splits: test}
    - {name: phones, layout: gazecapture}
train: {pairs: 100, base_lr: 1.0e-3}
fewshot: {shots: [1, 3], learners: [maml]}
evaluate: {confidence: 0.95}
"""


def _parse_overrides(folder: Path) -> None:
    path = folder / "given.yaml"
    config = validate(merge(_DEFAULTS, read_yaml(path)), [path])
    for tier in tier_bases(config):
        resolve_tier(config, tier)
        to_lines(resolve(config, "train", tier, 0))
    to_lines(resolve(config, "evaluate"))


_DEFAULTS = read_yaml(DEFAULTS)
_STAGES = {
    stage: "\n".join(to_lines(resolve(validate(_DEFAULTS), stage, *of)))
    for stage, of in {"evaluate": (), "meta_train": ("baseline", 0), "walk": ("baseline", 0)}.items()
}


def _make_stage(draw: Draw, folder: Path) -> None:
    _given(draw, folder, _STAGES[draw.pick(sorted(_STAGES))])


def _parse_stage(folder: Path) -> None:
    path = folder / "given.yaml"
    stage = read_yaml(path).get("stage")
    assert load(path, stage if isinstance(stage, str) and stage in _STAGES else "walk").hash


TARGETS = (Target("overrides", _make_overrides, _parse_overrides), Target("stage", _make_stage, _parse_stage))
