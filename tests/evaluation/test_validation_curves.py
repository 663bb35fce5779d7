"""Validation curves, and the time to the baseline's error."""

import json
from pathlib import Path

import pandas as pd

from faze.base.run_log import LoggedRun, LoggedValue, read_run
from faze.evaluation.performance import times_to_error, validation_curves

RATES = pd.Series({"baseline": 20.0, "fast": 40.0})


def write_log(path: Path, events: list[tuple[float, str, dict]]) -> Path:
    lines = [json.dumps({"time": 1e9 + seconds, "event": event, **values}) for seconds, event, values in events]
    path.write_text("\n".join(lines) + "\n")
    return path


def metrics(step: int, **values: float) -> dict:
    return {"step": step, "values": {name.replace("__", "/"): value for name, value in values.items()}}


def test_seconds_follow_from_the_benchmarks_rate(tmp_path):
    log = write_log(tmp_path / "run.jsonl", [
        (0.0, "start", {"machine": {}}),
        (9.0, "metrics", metrics(50, val__gaze_deg=None)),  # left out
        (10.0, "metrics", metrics(100, val__gaze_deg=9.0)),
        (15.0, "metrics", metrics(150, train__loss=2.0)),
        (3615.0, "resume", {"step": 150}),
        (3621.0, "metrics", metrics(200, val__gaze_deg=6.0)),
    ])  # fmt: skip
    curve = validation_curves({("fast", 0): read_run(log)}, RATES)
    assert list(zip(curve["pairs"], curve["rate_seconds"], strict=True)) == [(100, 5.0), (200, 10.0)]


def logged(*points: tuple[int, float]) -> LoggedRun:
    """Return a run with these validations, each of which is (pairs, error)."""
    values = [LoggedValue("val/gaze_deg", pairs, error, 0.0) for pairs, error in points]
    return LoggedRun({"time": 0.0}, None, [], [], values)


def curves(**errors: list[float]) -> pd.DataFrame:
    """Return the curves of validation errors after 100, 200, ... pairs. Each key contains a tier and a seed."""
    trainings = {}
    for key, values in errors.items():
        tier, seed = key.split("_")
        trainings[tier, int(seed)] = logged(*[(100 * i, error) for i, error in enumerate(values, start=1)])
    return validation_curves(trainings, RATES)


def test_time_is_that_of_the_first_validation_that_reaches_the_baselines_last():
    times = times_to_error(curves(baseline_0=[9, 6, 4.4, 4.5], fast_0=[9, 4.45, 5, 4.6]), "baseline", 0.0).set_index(
        "tier"
    )
    assert times["target_deg"].tolist() == [4.5, 4.5]
    assert times["pairs"].tolist() == [300, 200]
    # 2 x 200 images at 40 a second, against 2 x 300 at 20.
    assert times["rate_seconds"].tolist() == [30.0, 10.0]
    assert times.loc["fast", "rate_ratio"] == 3.0


def test_an_error_within_the_margin_is_reached():
    both = curves(baseline_0=[9, 6, 4.55, 4.5], fast_0=[9, 6, 5, 4.51])
    assert times_to_error(both, "baseline", 0.0)["reached"].tolist() == [True, False]
    times = times_to_error(both, "baseline", 0.1)
    assert times["reached"].all()
    assert times["pairs"].tolist() == [300, 400]


def test_seeds_have_their_own_target_and_no_time_if_they_miss_it():
    both = curves(baseline_0=[9, 5], baseline_1=[9, 3], fast_0=[9, 5], fast_1=[9, 4])
    times = times_to_error(both, "baseline", 0.1).set_index(["tier", "seed"])
    assert times.loc["fast", "target_deg"].tolist() == [5.1, 3.1]
    assert times.loc["fast", "reached"].tolist() == [True, False]
    assert times.loc[("fast", 1), ["pairs", "rate_seconds", "rate_ratio"]].isna().all()
    assert times.loc["baseline", "rate_ratio"].tolist() == [1.0, 1.0]
