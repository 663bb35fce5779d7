"""What the validations of a sweep's trainings say, per point and seed, and per point over seeds."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from faze.base.logged_run import LoggedRun, read_logged_run
from faze.base.result_paths import ResultPaths
from faze.evaluation.statistics import t_quantile

ERROR = "gaze_deg"
NUMBERS = (ERROR, "l1", "spread", "right_person")  # of val people, at the end


def swept_runs(paths: ResultPaths, points: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    """Read the last validation of each training.

    Returns:
        Columns point, seed, state (trained | under way | missing) and NUMBERS, nan where the training has not ended.

    Raises:
        UserError: a run log cannot be read.
    """
    return pd.DataFrame(_rows(paths, points, seeds), columns=["point", "seed", "state", *NUMBERS])


def _rows(paths: ResultPaths, points: Sequence[str], seeds: Sequence[int]) -> Iterator[Mapping[str, object]]:
    for point in points:
        for seed in seeds:
            row = {"point": point, "seed": seed}
            log, live = paths.run_log(point, seed), paths.live_log(point, seed)
            if log.exists():
                yield row | {"state": "trained"} | _last(read_logged_run(log))
            else:
                yield row | {"state": "under way" if live.exists() else "missing"}


def _last(run: LoggedRun) -> dict[str, float]:
    """Give the last value of each number."""
    found = {}
    for value in sorted(run.values, key=lambda value: value.step):
        room, _, name = value.metric.partition("/")
        if room == "val" and name in NUMBERS:
            found[name] = value.value
    return found


def swept_points(runs: pd.DataFrame, points: Mapping[str, Mapping[str, object]], confidence: float) -> pd.DataFrame:
    """Average each point over its seeds, the best first.

    Args:
        runs: as of `swept_runs`.
        points: name -> values by dotted key.
        confidence: of the interval over seeds, a t interval that ends at 0; nan with one seed.

    Returns:
        Columns point, a column for each key, seeds (that have ended), NUMBERS, low and high (of the gaze error).
    """
    rows = []
    for point, values in points.items():
        of_point = runs[runs["point"] == point].dropna(subset=[ERROR])
        half = np.nan
        if len(of_point) > 1:
            error = of_point[ERROR].std(ddof=1) / np.sqrt(len(of_point))
            half = float(t_quantile((1 + confidence) / 2, len(of_point) - 1)) * error
        means = of_point[list(NUMBERS)].mean()
        ends = {"low": max(means[ERROR] - half, 0.0), "high": means[ERROR] + half}
        rows.append({"point": point, **values, "seeds": len(of_point), **means, **ends})
    return pd.DataFrame(rows).sort_values(ERROR, na_position="last", kind="stable", ignore_index=True)
