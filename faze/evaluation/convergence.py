"""How fast the trainings converge: validation error against pairs and seconds, and the time to the baseline's error."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from faze.base.logged_run import LoggedRun

COLUMNS = ["tier", "seed", "target_deg", "reached", "pairs", "seconds", "time_ratio", "rate_seconds", "rate_ratio"]


def validation_curves(trainings: Mapping[tuple[str, int], LoggedRun]) -> pd.DataFrame:
    """List the validation error along every training: tier, seed, pairs, seconds, error_deg."""
    return pd.DataFrame(
        [
            (*run, value.step, value.seconds, value.value)
            for run, training in trainings.items()
            for value in sorted(training.values, key=lambda value: value.step)
            if value.metric == "val/gaze_deg"
        ],
        columns=["tier", "seed", "pairs", "seconds", "error_deg"],
    )


def times_to_error(curves: pd.DataFrame, images_per_s: pd.Series, margin_deg: float) -> pd.DataFrame:
    """Find when each training first validates as well as the baseline of its seed does at its end.

    As well means within the margin that counts as no change: without it, which of two equal trainings "reaches" the
    other's last value is a toss of a coin.

    Args:
        curves: of `validation_curves`.
        images_per_s: rate of each tier in the benchmark, by tier; the first is the baseline.
        margin_deg: of the equivalence test.

    Returns:
        One row per tier and seed: target_deg; reached; pairs and seconds (of the training itself, validation
        included, interruptions not) at that validation; rate_seconds, what so many pairs take at the benchmark's rate;
        time_ratio and rate_ratio, how many times sooner than the baseline. Not reached: nan.
    """
    if curves.empty:
        return pd.DataFrame(columns=COLUMNS)
    baseline = curves[curves["tier"] == images_per_s.index[0]]
    target = baseline.groupby("seed")["error_deg"].last() + margin_deg
    rows = []
    for (tier, seed), curve in curves.groupby(["tier", "seed"], sort=False):
        good = curve[curve["error_deg"] <= target.get(seed, np.nan)]
        pairs, seconds = (good[["pairs", "seconds"]].iloc[0]) if len(good) else (np.nan, np.nan)
        rows.append(
            {"tier": tier, "seed": seed, "target_deg": target.get(seed, np.nan), "reached": len(good) > 0}
            | {"pairs": pairs, "seconds": seconds, "rate_seconds": 2 * pairs / images_per_s[tier]}
        )
    times = pd.DataFrame(rows)
    first = times[times["tier"] == images_per_s.index[0]].set_index("seed")
    for ratio, value in (("time_ratio", "seconds"), ("rate_ratio", "rate_seconds")):
        times[ratio] = times["seed"].map(first[value]) / times[value]
    return times[COLUMNS]
