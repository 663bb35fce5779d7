"""Contents of the stores of an ablation, for the page's section about data and for model cards."""

from typing import Any

import pandas as pd

from faze.base.result_paths import ResultPaths
from faze.data.strips import StripStore, read_store

MOST_REASONS = 10


def count_people(store: StripStore) -> pd.DataFrame:
    """Count the people and strips of a store in each split: dataset, split, people, strips."""
    rows = [(store.dataset, person.split, len(person.labels)) for person in store.people]
    groups = pd.DataFrame(rows, columns=["dataset", "split", "strips"]).groupby(["dataset", "split"], sort=False)
    return groups["strips"].agg(people="size", strips="sum").reset_index()


def describe_data(paths: ResultPaths, dataset: str) -> dict[str, Any]:
    """Describe a data set.

    Returns:
        dataset; splits: rows of `count_people`; frames: number of rejected frames; reasons: the most frequent ones with
        their frames; rejects: path of the list of all rejects relative to the page.
    """
    store = paths.store(dataset)
    splits = count_people(read_store(store)).to_dict("records")
    rejects = pd.read_csv(store.with_name(f"{store.stem}_rejects.csv"), dtype=str, keep_default_na=False)
    rejects = rejects[rejects["file_name"] != ""]  # others concern a whole person
    kinds = rejects["reason"].str.replace(r"\d[\w.]*", "…", regex=True).value_counts()
    reasons = [{"reason": reason, "frames": frames} for reason, frames in kinds.head(MOST_REASONS).items()]
    about = {"frames": len(rejects), "reasons": reasons, "rejects": f"../data/{store.stem}_rejects.csv"}
    return {"dataset": dataset, "splits": splits} | about
