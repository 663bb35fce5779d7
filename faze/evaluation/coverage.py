"""Is what a learner says of its own uncertainty true: how much of the truth lies in the regions where it should."""

import re

import pandas as pd

from faze.evaluation.parquet_file import NUMBER, read_metadata, read_table
from faze.evaluation.runs import AGAIN, COLUMNS, Ablation

_BEGINS = "covered_"  # the columns of adapt, one for each region; the rest of their name is its percentage
_COVERED = re.compile(_BEGINS + r"[0-9]{1,3}(\.[0-9]{1,9})?")


def coverage(ablation: Ablation) -> pd.DataFrame:
    """Average the baseline's coverage over test people, calibrations and seeds.

    Returns:
        One row per data set, learner, k and region (`said`, 0..1): `covered`, the share of query entries in it. A
        learner that tells no uncertainty has none.
    """
    parts = []
    for seed in ablation.seeds:
        for learner in ablation.learners:
            path = ablation.paths.errors(ablation.tiers[0], seed, learner)
            told = [name for name in read_metadata(path, AGAIN)[0] if _COVERED.fullmatch(name)]
            columns = {name: COLUMNS[name] for name in ("dataset", "person", "split", "learner", "k")}
            rows = read_table(path, columns | dict.fromkeys(told, NUMBER), AGAIN)
            rows = rows.melt(list(columns), told, "said", "covered").dropna()
            parts.append(rows[rows["split"] == "test"])
    found = pd.concat(parts, ignore_index=True)
    found["said"] = found["said"].str.removeprefix(_BEGINS).astype(float) / 100
    keys = ["dataset", "learner", "k", "said"]
    of_people = found.groupby([*keys, "person"], sort=False, as_index=False)["covered"].mean()
    return of_people.groupby(keys, sort=False, as_index=False)["covered"].mean()
