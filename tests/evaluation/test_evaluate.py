"""The stage evaluate, on ablations that were written without training."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from fabricated import KEPT, SHOTS, Fabricated

from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.base.result_paths import ResultPaths
from faze.stages import evaluate

SMALL = {"tiers": ("baseline", "amp", "ddp"), "people": (6, 5), "entries": 40, "query": 20}
TWO = SMALL | {"tiers": ("baseline", "amp")}
SEEDS = (2, 0, 1)  # the noise controls have the first one
CELLS = 1 + len(KEPT) * len(SHOTS)


class Evaluated(NamedTuple):
    tables: dict[str, pd.DataFrame]
    summary: dict


def run(folder: Path, case: Fabricated, **changed: object) -> Evaluated:
    """Evaluate a results tree, and write it first if it does not exist."""
    if not (folder / "benchmark").exists():
        case.write(folder)
    out = folder / "evaluation"
    evaluate.main(config=case.config("evaluate", evaluate__resamples=200, **changed), results=folder, out=out)
    tables = {path.stem: pd.read_csv(path, dtype={"person": str}) for path in out.glob("*.csv")}
    return Evaluated(tables, json.loads((out / "summary.json").read_text()))


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Fabricated, Path]:
    return Fabricated(**SMALL), tmp_path_factory.mktemp("small")


@pytest.fixture(scope="module")
def small(written) -> Evaluated:
    return run(written[1], written[0])


@pytest.fixture
def copied(written, small, tmp_path) -> tuple[Fabricated, ResultPaths]:
    """Copy the small results tree, for tests that change it."""
    shutil.copytree(written[1], tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("evaluation"))
    return written[0], ResultPaths(tmp_path)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory) -> tuple[Fabricated, Evaluated]:
    """Evaluate an ablation with three seeds and both noise controls."""
    case = Fabricated(**SMALL, seeds=SEEDS, controls=("rounding", "seed"))
    return case, run(tmp_path_factory.mktemp("seeds"), case)


def test_tables_contain_every_run(seeded):
    case, (tables, summary) = seeded
    runs = 3 * 3 + 2  # with the controls
    sizes = {"persons": runs * (6 + 5) * CELLS, "tiers": (3 + 2) * 2 * CELLS}
    sizes |= {"changes": 4 * 2 * CELLS, "pixel_checks": 3 * 3 * 2 * 2, "learners": 3 * 2 * len(SHOTS)}
    assert {name: len(tables[name]) for name in sizes} == sizes
    assert list(tables["performance"]["tier"]) == list(case.tiers) == list(dict.fromkeys(tables["learners"]["tier"]))
    assert list(tables["convergence"]["tier"]) == [tier for tier in case.tiers for _ in SEEDS]
    assert list(tables["persons"].columns[:7]) == ["tier", "seed", "dataset", "person", "learner", "k", "error_deg"]
    expected = [*itertools.product(case.tiers, case.seeds), ("rounding", 2), ("seed", 2)]
    assert [(r["tier"], r["seed"]) for r in summary["runs"]] == expected
    assert not any("rounding" in text for card in summary["cards"] for text in card.values())


def test_every_table_has_the_data_sets_in_the_order_of_the_list(tmp_path):
    """Codes, errors and redirected strips of a third data set are evaluated like those of the default's two."""
    sources = {"webcam": "frames of webcams", "gazecapture": "GazeCapture", "mpiigaze": "MPIIFaceGaze"}
    case = Fabricated(tiers=("baseline", "amp"), people=(3, 4, 2), entries=40, query=20, pixel_sources=sources)
    tables, summary = run(tmp_path, case)
    assert list(summary["pixel_sources"].items()) == list(sources.items())
    orders = [list(table["dataset"].unique()) for table in tables.values() if "dataset" in table]
    assert orders == [list(sources)] * 8


def test_errors_are_means_over_test_people_of_means_over_repeats(written, small):
    rows = pd.read_parquet(ResultPaths(written[1]).errors("amp", 0, "maml"))
    rows = rows[(rows["dataset"] == "mpiigaze") & (rows["k"] == 9)]
    expected = rows.groupby("person")["error_deg"].mean().mean()
    tiers = small.tables["tiers"].set_index(["tier", "dataset", "learner", "k"])
    found, start = tiers.loc[("amp", "mpiigaze", "maml", 9)], tiers.loc[("amp", "mpiigaze", "unadapted", 0), "mean_deg"]
    assert found["mean_deg"] == pytest.approx(expected, rel=1e-5)
    assert found["low_deg"] < expected < found["high_deg"]
    assert found["reduction"] == pytest.approx(1 - expected / start, rel=1e-4)
    curve = small.summary["runs"][1]["curves"]["mpiigaze_maml"]
    assert [k for k, _ in curve] == [0, *SHOTS] and curve[-1][1] == pytest.approx(expected)
    assert small.summary["runs"][1]["metrics"]["error/mpiigaze_k9_deg"] == pytest.approx(expected)


def test_metrics_have_their_names(small):
    """Metrics that the device does not report, such as reserved memory and energy, are absent."""
    metrics, expected = small.summary["runs"][1]["metrics"], set()
    for dataset in ("mpiigaze", "gazecapture"):
        numbers = ["redirected_l1", "gaze_gain", "redirected_head_error_deg", "redirected_psnr"]
        controls = ["real_gaze_error_deg", "not_turned_head_error_deg", "head_gain_real"]
        expected |= {f"redirection/{dataset}_{number}" for number in numbers}
        expected |= {f"redirection_control/{dataset}_{number}" for number in controls}
        expected |= {f"error/{dataset}{k}_deg" for k in ("", "_k9")}
    assert expected <= set(metrics) and not {"memory/reserved_gib", "speed/joules_per_step"} & set(metrics)
    measured = {"speed/step_ms": 412.0 / 1.003, "memory/peak_gib": 0.436, "speed/share_of_copy_roof": 0.52 * 1.003}
    assert {name: metrics[name] for name in measured} == pytest.approx(measured)


def test_redirection_errors_are_averaged_over_people_and_compared(copied):
    """Regression: pairs, instead of people, had equal weights; a control was used as the redirected variant."""
    case, paths = copied
    path = paths.run("amp", 0, "redirected_pairs.parquet")
    rows = pd.read_parquet(path)
    rows = rows[(rows["person"] != rows["person"].iloc[0]) | (rows["pair"] < 2)]  # fewer pairs of one person
    rows.to_parquet(path, index=False)
    tables, summary = run(paths.root, case)
    some = rows[(rows["variant"] == "redirected") & (rows["dataset"] == "mpiigaze")]
    angles = (some[[f"{kind}_gaze_pitch", f"{kind}_gaze_yaw"]].to_numpy() for kind in ("seen", "wanted"))
    error = np.degrees(angular_error(*map(vector_from_pitchyaw, angles)))
    expected = pd.Series(error).groupby(some["person"].to_numpy()).mean().mean()
    means = tables["redirected"].set_index(["dataset", "variant", "number", "tier"]).loc["mpiigaze"]
    found = means.loc[("redirected", "gaze_error_deg", "amp")]
    assert found["mean"] == pytest.approx(expected, rel=1e-5) and found["low"] < found["mean"] < found["high"]
    assert summary["runs"][1]["metrics"]["redirection/mpiigaze_redirected_gaze_error_deg"] == pytest.approx(expected)
    change = tables["redirection_changes"].set_index(["tier", "dataset", "factor"]).loc[("amp", "mpiigaze", "gaze")]
    before = means.loc[("redirected", "gaze_error_deg", "baseline"), "mean"]
    assert change["difference_deg"] == pytest.approx(expected - before, abs=1e-4)


@pytest.mark.parametrize(("settings", "margin", "verdict"), [
    ({"person_spread_deg": 0.0, "seed_spread_deg": 0.0}, 0.5, "identical"),
    ({"person_spread_deg": 0.01, "seed_spread_deg": 0.0, "shift_deg": 4.0, "seeds": (0, 1)}, 0.5, "not judged"),
    ({"person_spread_deg": 0.01, "seed_spread_deg": 0.005, "seeds": SEEDS, "shift_deg": 0.7}, 0.5, "different"),
    ({"person_spread_deg": 0.01, "seed_spread_deg": 0.005, "seeds": SEEDS, "shift_deg": 0.7}, 0.8, "equivalent"),
    ({"person_spread_deg": 0.01, "seed_spread_deg": 0.005, "seeds": SEEDS}, 0.5, "equivalent"),
    ({"person_spread_deg": 0.5, "seed_spread_deg": 0.5, "seeds": SEEDS}, 0.5, "not shown"),
])  # fmt: skip
def test_changes_are_judged_against_the_baseline(settings, margin, verdict, tmp_path):
    """Regression: a single seed got a verdict, as if seeds had no effect."""
    tables, summary = run(tmp_path, Fabricated(**TWO, **settings), evaluate__margin_deg=margin)
    changes = tables["changes"]
    deciding = changes[changes["decides"]]
    assert set(deciding["verdict"]) == {verdict}
    assert list(zip(deciding["learner"], deciding["k"], strict=True)) == [("unadapted", 0), ("maml", 9)] * 2
    assert summary["cards"][2]["value"] == summary["tier_verdicts"]["amp"] == verdict
    shift = settings.get("shift_deg", 0.0)
    assert changes["difference_deg"].between(shift - 0.7, shift + 0.7).all()


def test_noise_controls_are_compared_with_the_baseline_of_their_seed(seeded):
    """Regression: the controls, which have one seed, were compared with the mean of the baseline's three seeds."""
    case, (tables, summary) = seeded
    changes, persons = tables["changes"].set_index(["tier", "dataset", "learner", "k"]).sort_index(), tables["persons"]
    means = persons[persons["seed"] == 2].groupby(["tier", "dataset", "learner", "k"])["error_deg"].mean()
    for control in case.controls:
        expected = (means[control] - means["baseline"]).to_dict()
        assert changes.loc[control, "difference_deg"].to_dict() == pytest.approx(expected, abs=1e-5)
        assert set(changes.loc[control, "verdict"].dropna()) == {"not judged"}
    assert changes["seeds"].groupby("tier").first().to_dict() == {"amp": 3, "ddp": 3, "rounding": 1, "seed": 1}
    assert summary["controls"] == ["rounding", "seed"] and summary["tier_verdicts"].keys() == {"amp", "ddp"}


def test_speed_and_memory_are_in_the_performance_table(small):
    table, cards = small.tables["performance"].set_index("tier"), small.summary["cards"]
    numbers = {"speed_ratio": 0.94, "memory_ratio": 0.58, "speed_low": 0.94 * 0.988, "step_ms_q1": 0.985 * 412.0 / 0.94}
    assert table.loc["ddp", list(numbers)].to_dict() == pytest.approx(numbers, rel=1e-5)
    assert table["memory_change"].tolist() == ["1.00×", "not shown", "1.72× as much"]
    assert [list(card) for card in cards] == [["title", "value", "note"]] * 4
    assert [card["value"] for card in cards[:2]] == ["none shown"] * 2 and "checkpoints" in cards[2]["note"]


def test_people_without_errors_and_reasons_are_listed(copied):
    """Each reason is listed once, even if several runs and learners have it."""
    case, paths = copied
    for tier, learner in itertools.product(case.tiers, KEPT):
        path = paths.errors(tier, 0, learner)
        table = pq.read_table(path)
        keys = {"amp": {b"left_out": b'["A"]'}, "ddp": {b"left_out": b'["A"]', b"left_out_of_training": b'["B"]'}}
        table = table.replace_schema_metadata(table.schema.metadata | keys.get(tier, {}))
        pq.write_table(table.filter(pq.filters_to_expression([("person", "!=", "p03")])), path)
    tables, summary = run(paths.root, case)
    assert summary["left_out_reasons"] == ["A", "B"]
    assert "p03" not in set(tables["persons"]["person"])


def test_reading_results_needs_no_torch():
    code = "import sys, faze.stages.evaluate, faze.stages.report; print({'torch', 'mlflow', 'cv2'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
