"""Names and controls of tiers, and folder names that tiers must not have."""

import inspect
import re
from pathlib import Path

import pytest

from faze.base.result_paths import ResultPaths
from faze.config.check import ConfigError
from faze.config.parameters import CONTROLS
from faze.config.stage_config import resolve
from faze.config.validation import RESERVED, read_config, validate
from faze.config.yaml_files import DEFAULTS, merge, read_yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("stage", ["evaluate", "report", "track", "benchmark"])
def test_stages_know_the_tiers_by_name(stage: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("run: {tiers: [baseline, recompute, amp on baseline]}\n")
    flat = resolve(read_config([tmp_path / "mine.yaml"]), stage)
    names = flat.get("run.tiers") or list(dict.fromkeys(key.split(".")[1] for key in flat if "engines." in key))
    assert names == ["baseline", "recompute", "amp"]


def test_a_tier_is_run_once() -> None:
    values = merge(read_yaml(DEFAULTS), {"run": {"tiers": ["baseline", "recompute", "baseline"]}})
    with pytest.raises(ConfigError, match=r"run\.tiers: .* contains a value twice"):
        validate(values)


def test_tiers_that_are_no_mapping_are_a_fault() -> None:
    with pytest.raises(ConfigError, match="tiers: 3 is not a section of keys and values"):
        validate(read_yaml(DEFAULTS) | {"tiers": 3})


def folders() -> set[str]:
    """Return every folder that stages, rules and commands make under results/<name>/."""
    text = "\n".join(path.read_text() for path in [ROOT / "Snakefile", *(ROOT / "workflow").glob("rules/*.smk")])
    ablation = r"(?:results/\{(?:wildcards\.)?name(?::q)?\}|results/\{config\['name'\]\}|\{folder\})"
    found = set(re.findall(rf"{ablation}/(\w+)", text))
    paths = ResultPaths(Path("root"))
    for name, member in inspect.getmembers(ResultPaths, lambda m: inspect.isfunction(m) or isinstance(m, property)):
        if not name.startswith("_"):
            given = [] if isinstance(member, property) else list(inspect.signature(member).parameters)[1:]
            path = getattr(paths, name) if isinstance(member, property) else getattr(paths, name)(*given)
            found.add(path.relative_to("root").parts[0])
    return found - {"tier"} | {"profile"}  # the first of the parameters of those in a run; and faze.commands.profile


def test_no_tier_takes_the_folder_of_something_else() -> None:
    assert folders() | set(CONTROLS) == set(RESERVED)
    for name in RESERVED:
        with pytest.raises(ConfigError, match=rf"tiers\.{name}: must be"):
            validate(merge(read_yaml(DEFAULTS), {"tiers": {name: {}}}))


def test_noise_controls_are_the_baseline_but_for_what_tells_them_apart() -> None:
    config = validate(merge(read_yaml(DEFAULTS), {"run": {"tiers": ["recompute", "amp"], "seeds": [0, 1000]}}))
    baseline, rounding, seed = (resolve(config, "train", tier, 0) for tier in ("recompute", "rounding", "seed"))
    assert rounding == baseline | {"tier": "rounding", "control": "rounding"}
    assert seed == baseline | {"tier": "seed", "control": "seed", "seed": 1001}  # not among run.seeds
    assert "control" not in resolve(config, "encode", "rounding", 0)
    assert resolve(config, "meta_train", "seed", 0)["seed"] == 1001


def test_without_a_second_tier_there_is_nothing_to_control() -> None:
    values = read_yaml(DEFAULTS)
    assert validate(values)["run"]["controls"] == ["seed"]
    assert validate(merge(values, {"run": {"controls": ["seed", "rounding"]}}))["run"]["controls"] == [
        "rounding",
        "seed",
    ]
    assert validate(merge(values, {"run": {"tiers": ["recompute"]}}))["run"]["controls"] == []
