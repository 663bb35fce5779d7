"""How much redirected strips resemble the person, of every run: means over test people, beside their references."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from faze.base.errors import UserError
from faze.base.result_paths import DATASETS
from faze.evaluation.parquet_file import NUMBER, TEXT, read_table
from faze.evaluation.runs import Ablation

# Column of redirection.parquet -> its name in the table. The spread is the root of the mean of a person's deviation.
MEANS = {
    "l1": "l1",
    "own_mean_l1": "own_mean_l1",
    "all_mean_l1": "all_mean_l1",
    "right": "right_person",
    "real_right": "real_right_person",
}
SPREADS = {"deviation": "spread", "real_deviation": "real_spread"}


def redirection(ablation: Ablation) -> pd.DataFrame:
    """Average over the test people of each run and data set.

    Returns:
        Columns tier, seed, dataset, people, strips (of each person, the most), and those of MEANS and SPREADS.

    Raises:
        UserError: a file cannot be read, lacks a column, or holds what is not a number.
    """
    return pd.DataFrame([row for run in ablation.all_runs() for row in _of_run(ablation, *run)])


def _of_run(ablation: Ablation, tier: str, seed: int) -> Iterator[dict[str, object]]:
    rows = _read(ablation.paths.redirection(tier, seed))
    for dataset in DATASETS:
        people = rows[rows["dataset"] == dataset]
        if people.empty:
            continue
        found = {
            "tier": tier,
            "seed": seed,
            "dataset": dataset,
            "people": len(people),
            "strips": people["strips"].max(),
        }
        found |= {name: people[column].mean() for column, name in MEANS.items()}
        yield found | {name: float(np.sqrt(people[column].mean())) for column, name in SPREADS.items()}


def _read(path: Path) -> pd.DataFrame:
    columns = {"dataset": TEXT, "person": TEXT} | dict.fromkeys(("strips", *MEANS, *SPREADS), NUMBER)
    rows = read_table(path, columns, "delete it and run redirect again")
    if not np.isfinite(rows[[*MEANS, *SPREADS]].to_numpy(np.float64)).all():
        raise UserError(f"{path}: holds what is not a number; look into the log of redirect")
    return rows
