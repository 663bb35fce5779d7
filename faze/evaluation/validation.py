"""Validation errors from run logs: curves and time to accuracy for each tier."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from faze.base.run_log import LoggedRun

TIMES = ["tier", "seed", "target_deg", "reached", "pairs", "rate_seconds", "rate_ratio"]


def validation_curves(trainings: Mapping[tuple[str, int], LoggedRun], images_per_s: pd.Series) -> pd.DataFrame:
    """Tabulate the validation error during every training run: tier, seed, pairs, rate_seconds, error_deg.

    rate_seconds is the time for that many pairs at the benchmark's rate. The measured duration of a training run would
    depend on other jobs.

    Args:
        trainings: run logs by tier and seed.
        images_per_s: benchmark rate, by tier.
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
    """Find when each training run reaches the final validation error of the baseline with the same seed.

    An error within the margin counts as reached. Without a margin, chance would decide whether an equally good run
    reaches the baseline's final value.

    Args:
        curves: from `validation_curves`.
        baseline: name of the baseline tier.
        margin_deg: margin of the equivalence test.

    Returns:
        One row per tier and seed: target_deg; reached; pairs and rate_seconds of the first validation that reaches it;
        rate_ratio, the baseline's rate_seconds divided by this run's. Values are nan if the error is not reached.
    """
    target = curves[curves["tier"] == baseline].groupby("seed")["error_deg"].last() + margin_deg
    rows = []
    for (tier, seed), curve in curves.groupby(["tier", "seed"], sort=False):
        good = curve[curve["error_deg"] <= target.get(seed, np.nan)]
        pairs, seconds = good[["pairs", "rate_seconds"]].iloc[0] if len(good) else (np.nan, np.nan)
        rows.append((tier, seed, target.get(seed, np.nan), len(good) > 0, pairs, seconds))
    times = pd.DataFrame(rows, columns=TIMES[:-1])
    of_baseline = times[times["tier"] == baseline].set_index("seed")["rate_seconds"]
    return times.assign(rate_ratio=times["seed"].map(of_baseline) / times["rate_seconds"])
