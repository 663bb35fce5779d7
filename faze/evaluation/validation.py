"""Validation errors from run logs: curves and time to accuracy for each tier, and the results of a sweep."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import special

from faze.base.logged_run import LoggedRun, read_logged_run
from faze.base.result_paths import ResultPaths

ERROR = "gaze_deg"
NUMBERS = (ERROR, "l1", "spread", "right_person")  # of the last validation
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
            if value.metric == f"val/{ERROR}"
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


def swept_runs(paths: ResultPaths, points: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    """Read the last validation of each training run of a sweep.

    Returns:
        Columns point, seed, state (trained | under way | missing) and NUMBERS, which are nan for a run that has not
        finished.

    Raises:
        UserError: a run log cannot be read.
    """
    rows = []
    for point in points:
        for seed in seeds:
            row = {"point": point, "seed": seed}
            if paths.run_log(point, seed).exists():
                values = sorted(read_logged_run(paths.run_log(point, seed)).values, key=lambda value: value.step)
                numbers = {
                    value.metric.removeprefix("val/"): value.value
                    for value in values
                    if value.metric.startswith("val/")
                }
                row |= {"state": "trained"} | numbers
            else:
                row["state"] = "under way" if paths.live_log(point, seed).exists() else "missing"
            rows.append(row)
    return pd.DataFrame(rows, columns=["point", "seed", "state", *NUMBERS])


def swept_points(runs: pd.DataFrame, points: Mapping[str, Mapping[str, object]], confidence: float) -> pd.DataFrame:
    """Average the results of each point over its seeds, and sort the points by error.

    Args:
        runs: from `swept_runs`.
        points: name -> values by dotted key.
        confidence: level of the t interval over seeds; the interval is nan with one seed, and its lower end is at least
            0.

    Returns:
        A table with the columns point, one for each key, seeds (the number of completed runs), NUMBERS, low and high
        (the bounds of the interval of the gaze error).
    """
    rows = []
    for point, values in points.items():
        of_point = runs[runs["point"] == point].dropna(subset=[ERROR])
        half = np.nan
        if len(of_point) > 1:
            error = of_point[ERROR].std(ddof=1) / np.sqrt(len(of_point))
            half = float(special.stdtrit(len(of_point) - 1, (1 + confidence) / 2)) * error
        means = of_point[list(NUMBERS)].mean()
        ends = {"low": max(means[ERROR] - half, 0.0), "high": means[ERROR] + half}
        rows.append({"point": point, **values, "seeds": len(of_point), **means, **ends})
    return pd.DataFrame(rows).sort_values(ERROR, na_position="last", kind="stable", ignore_index=True)
