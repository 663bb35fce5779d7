"""The comparison of a sweep's points: run logs, averaged over seeds, and the page.

Checked by breaking the code: the first validation used as the last, an interval of 1.96 standard errors, rows not
sorted.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t
from tracking_tree import start_event

from faze.base.result_paths import ResultPaths
from faze.base.run_log import RunLog
from faze.config.stage_config import resolve, to_lines
from faze.config.validation import validate
from faze.config.yaml_files import merge, read_yaml
from faze.evaluation.validation import swept_runs
from faze.stages import compare

ROOT = Path(__file__).resolve().parents[2]
SWEEP = {"grid": {"model.growth": [4, 8], "engine.recompute": [False, True]}}
ERRORS = {"point00": (6.0, 6.4), "point01": (4.0, 4.6), "point02": (4.5, 4.7), "point03": (7.0, None)}


def write_run_log(paths: ResultPaths, point: str, seed: int, error: float | None) -> None:
    path = paths.run_log(point, seed) if error else paths.live_log(point, seed)
    with RunLog(path) as log:
        log.event("start", **start_event(paths.root, "baseline", seed))
        log.metrics(100, {"val/gaze_deg": 20.0, "val/l1": 0.9, "train/loss": 3.0})
        if error:
            log.metrics(200, {"val/gaze_deg": error, "val/l1": error / 10, "val/spread": 0.1, "val/right_person": 0.5})


@pytest.fixture
def stage(tmp_path, monkeypatch):
    paths = ResultPaths(tmp_path / "swept")
    for point, errors in ERRORS.items():
        for seed, error in enumerate(errors):
            write_run_log(paths, point, seed, error)

    def run(sweep=SWEEP, seeds=(0, 1)) -> int:
        overrides = {"name": "swept", "run": {"tiers": ["baseline"], "seeds": list(seeds)}, "sweep": sweep}
        overrides["evaluate"] = {"confidence": 0.9}
        config = validate(merge(read_yaml(ROOT / "config" / "config.yaml"), overrides))
        (tmp_path / "compare.yaml").write_text("\n".join(to_lines(resolve(config, "compare"))))
        words = {"config": tmp_path / "compare.yaml", "results": paths.root, "out": paths.sweep}
        monkeypatch.setattr(sys, "argv", ["compare", *(str(w) for k, v in words.items() for w in (f"--{k}", v))])
        return compare.main()

    run.paths = paths
    return run


def test_points_are_averaged_over_seeds_and_the_best_comes_first(stage, capsys):
    assert stage() == 0
    assert "compare: point01 has the smallest error on val people, 4.30°\n" in capsys.readouterr().out
    table = pd.read_csv(stage.paths.sweep / "points.csv").set_index("point")
    assert list(table.index) == ["point01", "point02", "point00", "point03"]
    assert table.loc["point01", ["model.growth", "engine.recompute"]].tolist() == [4, True]
    half = t.ppf(0.95, 1) * np.std([4.0, 4.6], ddof=1) / np.sqrt(2)
    assert table.loc["point01", ["gaze_deg", "low", "high"]].tolist() == pytest.approx(
        [4.3, 4.3 - half, 4.3 + half], rel=1e-4
    )
    assert table.loc["point01", "l1"] == pytest.approx(0.43)
    assert table.loc["point02", ["spread", "right_person"]].tolist() == pytest.approx([0.1, 0.5])
    assert table["seeds"].tolist() == [2, 2, 2, 1]
    assert table.loc["point02", ["model.growth", "engine.recompute"]].tolist() == [8, False]
    assert np.isnan(table.loc["point03", "low"])
    assert (stage.paths.sweep / "figures" / "parallel.svg").stat().st_size > 2000
    assert (stage.paths.sweep / "figures" / "against.svg").stat().st_size > 2000


def test_the_page_names_the_best_who_may_be_as_good_and_what_has_no_result(stage):
    assert stage() == 0
    page = (stage.paths.sweep / "index.html").read_text()
    assert "<b>point01</b>: model.growth 4, engine.recompute true." in page
    assert "4.30° (90 % interval over seeds 2.41 to 6.19)" in page
    assert "2 other points" in page  # not point03, whose only error is 7.0
    assert "point03, seed 1, under way" in page
    assert page.count("data:image/svg+xml") == 2
    write_run_log(stage.paths, "point03", 0, 6.1)
    assert stage() == 0
    assert "3 other points" in (stage.paths.sweep / "index.html").read_text()


def test_the_best_may_have_one_ended_seed(stage):
    """Regression: if only one seed of the best point had ended, its interval was shown as a dash."""
    write_run_log(stage.paths, "point03", 0, 3.0)
    assert stage() == 0
    page = (stage.paths.sweep / "index.html").read_text()
    assert "3.00°, from a single seed" in page and "other point" not in page


def test_a_key_of_lists_is_told_in_words(stage):
    """Regression: for a key whose values are lists, the figures failed after all training runs had ended."""
    assert stage({"grid": {"engine.keep_fp32": [["conv"], ["conv", "linear"], [], ["linear"]]}}) == 0
    page = (stage.paths.sweep / "index.html").read_text()
    assert "<b>point01</b>: engine.keep_fp32 conv, linear." in page
    assert "none" in (stage.paths.sweep / "points.csv").read_text()


def test_null_is_told_as_in_the_configuration(stage):
    """Regression: random first weights, null, were called nan."""
    assert stage({"grid": {"train.start": [None, "a.pt"], "train.pairs": [100, 200]}}) == 0
    page = (stage.paths.sweep / "index.html").read_text()
    assert "<b>point01</b>: train.start null, train.pairs 200." in page and ">nan<" not in page
    points = pd.read_csv(stage.paths.sweep / "points.csv", keep_default_na=False)
    assert set(points["train.start"]) == {"null", "a.pt"}
    figure = (stage.paths.sweep / "figures/parallel.svg").read_text()
    assert "nan" not in figure


def test_with_one_seed_no_interval_is_told(stage):
    assert stage(seeds=(0,)) == 0
    page = (stage.paths.sweep / "index.html").read_text()
    assert "interval" not in page.partition("<body>")[2] and "without a result" not in page


def test_what_is_not_there_is_missing_and_nothing_at_all_is_said(stage, capsys):
    runs = swept_runs(stage.paths, ["point03", "point09"], [1])
    assert runs["state"].tolist() == ["under way", "missing"]
    assert stage(sweep={"grid": {"model.growth": [4, 8, 12, 16]}}, seeds=(7,)) == 0
    page = (stage.paths.sweep / "index.html").read_text()
    assert "No training" in page and "point02, seed 7, missing" in page
    assert "no training" in capsys.readouterr().out


def test_without_a_sweep_there_is_nothing_to_compare(stage, capsys):
    assert stage(sweep={}) == 1
    assert "sweep.grid and sweep.sobol" in capsys.readouterr().err
