"""Tables of redirected strips: their similarity to real ones, and how far gaze and head turned.

Means are over test people (and seeds, with intervals); each tier is compared with the baseline.
"""

from collections.abc import Sequence

import pandas as pd

from faze.config.parameters import Evaluate
from faze.evaluation.redirected_angles import (
    FACTORS,
    REDIRECTED,
    TURN_NUMBERS,
    VARIANT_NUMBERS,
    by_variant,
    turning,
)
from faze.evaluation.runs import Ablation
from faze.evaluation.statistics import bootstrap_mean
from faze.evaluation.tables import SEED, changes


def redirected_tables(ablation: Ablation, evaluate: Evaluate) -> dict[str, pd.DataFrame]:
    """Compute the tables of redirection errors and of how far gaze and head turned.

    Args:
        ablation: its first tier is the baseline.
        evaluate: margin and confidence.

    Returns:
        redirected_people: a row per run, person and variant; turned_people: a row per run and person;
        redirected, turned: means over people and seeds with intervals, per tier, data set (and variant);
        redirection_changes: each tier compared with the baseline, like `tables.changes`, with the factor instead of the
        learner.
    """
    variants, turns = [], []
    for tier, seed in ablation.all_runs():
        pairs = pd.read_parquet(ablation.paths.redirected_pairs(tier, seed))
        variants.append(by_variant(pairs).assign(tier=tier, seed=seed))
        turns.append(turning(pairs).assign(tier=tier, seed=seed))
    people, turned = pd.concat(variants, ignore_index=True), pd.concat(turns, ignore_index=True)
    return {
        "redirected_people": people,
        "turned_people": turned,
        "redirected": _means(people, ["tier", "dataset", "variant"], VARIANT_NUMBERS, evaluate),
        "turned": _means(turned, ["tier", "dataset"], TURN_NUMBERS, evaluate),
        "redirection_changes": _changes(people, ablation, evaluate),
    }


def _means(rows: pd.DataFrame, keys: list[str], numbers: Sequence[str], evaluate: Evaluate) -> pd.DataFrame:
    """Average over people and seeds; return a row with an interval for each key and number that any person has."""
    options = {"confidence": evaluate.confidence, "resamples": evaluate.resamples, "seed": SEED}
    found = []
    for key, group in rows.groupby(keys, sort=False):
        table = group.pivot_table(
            index="seed", columns="person", values=list(numbers), aggfunc="mean", dropna=False, sort=True
        )
        for number in numbers:
            # (seeds, people): people are in alphabetical order and have the number for every seed.
            matrix = table[number].dropna(axis=1).to_numpy()
            if matrix.size:
                mean = bootstrap_mean(matrix, **options)
                row = dict(zip(keys, key, strict=True)) | {"number": number, "people": matrix.shape[1]}
                found.append(row | {"mean": mean.mean, "low": mean.low, "high": mean.high})
    return pd.DataFrame(found)


def _changes(people: pd.DataFrame, ablation: Ablation, evaluate: Evaluate) -> pd.DataFrame:
    """Compare each tier's redirection errors with the baseline's, by the same rules as angular errors."""
    redirected = people[people["variant"] == REDIRECTED]
    each = [redirected.assign(learner=factor, k=0, error_deg=redirected[f"{factor}_error_deg"]) for factor in FACTORS]
    found = changes(pd.concat(each, ignore_index=True), ablation, evaluate)
    return found.rename(columns={"learner": "factor"})
