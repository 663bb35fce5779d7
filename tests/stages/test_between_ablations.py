"""An ablation reuses rendered frames and preprocessed strips of another one with the same values, whatever its name.

Fails if `name` is in the stages' own configs, or if digests are not compared.
"""

import sys
from pathlib import Path

import pytest
from data_sets import LAYOUTS

from faze.base.output_cache import content
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml
from faze.stages import preprocess, synthesise

CONFIG = read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")
FEW = {key: 1 for key in CONFIG["synthetic"] if key.endswith("_people")}
FEW |= {"frames_per_person": 2, "gazecapture_train_frames": None, "people": "simple"}


def run(stage: object, root: Path, monkeypatch: pytest.MonkeyPatch, changes: dict, *words: object, **of: str) -> None:
    """Run a stage for the ablation in the folder `root`, as the workflow does."""
    name = stage.__name__.rpartition(".")[2]
    values = merge(merge(CONFIG, {"name": root.name, "synthetic": FEW}), changes)
    config = root / "configs" / f"{name}.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("\n".join(to_lines(resolve(values, name, **of))))
    words = ["--config", config, *words, f"--output-cache={root.parent / 'shared'}"]
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    assert stage.main() == 0


def render(root: Path, monkeypatch: pytest.MonkeyPatch, **synthetic: object) -> bool:
    """Render or reuse people, and return whether they were rendered."""
    rendered, real = [], synthesise.render_everybody
    with monkeypatch.context() as seen:
        seen.setattr(synthesise, "render_everybody", lambda *a: (rendered.append(1), real(*a))[1])
        layouts = [word for layout in LAYOUTS.values() for word in (f"--{layout}", root / "raw" / layout)]
        files = [f"--{layout}-supplementary={root / 'raw' / layout}_supplementary.h5" for layout in LAYOUTS.values()]
        run(synthesise, root, seen, {"synthetic": synthetic}, *layouts, *files, "--truth", root / "raw/truth.h5")
    return bool(rendered)


def prepare(root: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> bool:
    """Preprocess or reuse strips, and return whether they were preprocessed."""
    prepared, real = [], preprocess.normalise
    with monkeypatch.context() as seen:
        seen.setattr(preprocess, "normalise", lambda *a: (prepared.append(1), real(*a))[1])
        raw, out = root / "raw" / "gazecapture", root / "data" / "gazecapture.h5"
        of = ["--raw", raw, f"--supplementary={raw}_supplementary.h5"]
        rejects = root / "data/gazecapture_rejects.csv"
        run(
            preprocess,
            root,
            seen,
            {"preprocess": settings},
            *of,
            "--out",
            out,
            "--rejects",
            rejects,
            dataset="gazecapture",
        )
    return bool(prepared)


def test_a_second_name_renders_and_prepares_nothing_and_a_changed_section_does(tmp_path, monkeypatch, capsys):
    first, second, third, fourth = (tmp_path / name for name in ("first", "second", "third", "fourth"))
    assert render(first, monkeypatch) and prepare(first, monkeypatch)
    assert not render(second, monkeypatch) and not prepare(second, monkeypatch)
    words = capsys.readouterr().err
    assert words.count("reusing") == 2 and str(first) in words
    for path in ("raw/mpiifacegaze", "raw/gazecapture", "raw/truth.h5", "data/gazecapture.h5"):
        assert content(first / path) == content(second / path)
    assert not render(third, monkeypatch) and prepare(third, monkeypatch, distance_mm=601.0)
    assert render(fourth, monkeypatch, seed=1) and prepare(fourth, monkeypatch), "other frames are other strips"


def test_frames_that_are_no_longer_what_was_rendered_are_not_taken(tmp_path, monkeypatch):
    assert render(tmp_path / "first", monkeypatch)
    frame = next((tmp_path / "first/raw/gazecapture").rglob("*.jpg"))
    whole = frame.read_bytes()
    frame.write_bytes(whole[:-1])
    assert render(tmp_path / "second", monkeypatch)
    assert (tmp_path / "second" / frame.relative_to(tmp_path / "first")).read_bytes() == whole


def test_too_many_frames_to_read_twice_are_prepared_again(tmp_path, monkeypatch):
    render(tmp_path / "first", monkeypatch)
    monkeypatch.setattr(preprocess, "MOST_BYTES", 1000)
    assert prepare(tmp_path / "first", monkeypatch)
    render(tmp_path / "second", monkeypatch)
    assert prepare(tmp_path / "second", monkeypatch)
