"""How fast the trainings converge: validation error against pairs and seconds, and the time to the baseline's error.

Seconds are those that so many pairs take at the benchmark's rate. A training's own clock tells what else ran beside it.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from faze.base.logged_run import LoggedRun

COLUMNS = ["tier", "seed", "target_deg", "reached", "pairs", "rate_seconds", "rate_ratio"]


def validation_curves(trainings: Mapping[tuple[str, int], LoggedRun], images_per_s: pd.Series) -> pd.DataFrame:
    """List the validation error along every training: tier, seed, pairs, rate_seconds, error_deg.

    Args:
        trainings: run logs by tier and seed.
        images_per_s: rate of each tier in the benchmark, by tier.
    """
    return pd.DataFrame(
        [
            (tier, seed, value.step, 2 * value.step / images_per_s[tier], value.value)
            for (tier, seed), training in trainings.items()
            for value in sorted(training.values, key=lambda value: value.step)
            if value.metric == "val/gaze_deg"
        ],
        columns=["tier", "seed", "pairs", "rate_seconds", "error_deg"],
    )


def times_to_error(curves: pd.DataFrame, baseline: str, margin_deg: float) -> pd.DataFrame:
    """Find when each training first validates as well as the baseline of its seed does at its end.

    As well means within the margin that counts as no change: without it, which of two equal trainings "reaches" the
    other's last value is a toss of a coin.

    Args:
        curves: of `validation_curves`.
        baseline: its tier.
        margin_deg: of the equivalence test.

    Returns:
        One row per tier and seed: target_deg; reached; pairs and rate_seconds at that validation; rate_ratio, how
        many times sooner than the baseline. Not reached: nan.
    """
    if curves.empty:
        return pd.DataFrame(columns=COLUMNS)
    target = curves[curves["tier"] == baseline].groupby("seed")["error_deg"].last() + margin_deg
    rows = []
    for (tier, seed), curve in curves.groupby(["tier", "seed"], sort=False):
        good = curve[curve["error_deg"] <= target.get(seed, np.nan)]
        pairs, seconds = good[["pairs", "rate_seconds"]].iloc[0] if len(good) else (np.nan, np.nan)
        rows.append(
            {"tier": tier, "seed": seed, "target_deg": target.get(seed, np.nan), "reached": len(good) > 0}
            | {"pairs": pairs, "rate_seconds": seconds}
        )
    times = pd.DataFrame(rows)
    first = times[times["tier"] == baseline].set_index("seed")["rate_seconds"]
    times["rate_ratio"] = times["seed"].map(first) / times["rate_seconds"]
    return times[COLUMNS]
