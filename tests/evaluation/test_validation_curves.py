"""Validation curves, and the time to the baseline's error."""

import pandas as pd

from faze.base.run_log import LoggedRun, LoggedValue
from faze.evaluation.performance import times_to_error, validation_curves

RATES = pd.Series({"baseline": 20.0, "fast": 40.0})


def curves(**errors: list[float]) -> pd.DataFrame:
    """Return the curves of validation errors after 100, 200, ... pairs. Each key contains a tier and a seed."""
    trainings = {}
    for key, values in errors.items():
        tier, seed = key.split("_")
        logged = [LoggedValue("val/gaze_deg", 100 * i, error, 0.0) for i, error in enumerate(values, start=1)]
        trainings[tier, int(seed)] = LoggedRun({}, values=[LoggedValue("train/loss", 50, 2.0, 0.0), *logged])
    return validation_curves(trainings, RATES)


def test_time_is_that_of_the_first_validation_that_reaches_the_baselines_last():
    times = times_to_error(curves(baseline_0=[9, 6, 4.4, 4.5], fast_0=[9, 4.45, 5, 4.6]), "baseline", 0.0)
    assert times["target_deg"].tolist() == [4.5, 4.5]
    assert times["pairs"].tolist() == [300, 200]
    # 2 x 200 images at 40 a second, against 2 x 300 at 20.
    assert times["rate_seconds"].tolist() == [30.0, 10.0] and times["rate_ratio"].tolist() == [1.0, 3.0]


def test_seeds_have_their_own_target_and_no_time_if_they_miss_it():
    both = curves(baseline_0=[9, 5], baseline_1=[9, 3], fast_0=[9, 5], fast_1=[9, 4])
    times = times_to_error(both, "baseline", 0.1).set_index(["tier", "seed"])
    assert times.loc["fast", "target_deg"].tolist() == [5.1, 3.1]
    assert times.loc["fast", "reached"].tolist() == [True, False]
    assert times.loc[("fast", 1), ["pairs", "rate_seconds", "rate_ratio"]].isna().all()
