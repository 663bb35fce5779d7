"""The tables of redirected strips: means over people and seeds with intervals, and the changes between tiers."""

from collections.abc import Sequence, Set
from pathlib import Path

import pandas as pd
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.config.parameters import Evaluate
from faze.evaluation.redirected_angles import (
    FACTORS,
    MOVED_NUMBERS,
    TURN_NUMBERS,
    VARIANT_NUMBERS,
    by_angle,
    by_variant,
    read_pairs,
    turning,
)
from faze.evaluation.runs import Ablation
from faze.evaluation.statistics import bootstrap_mean
from faze.evaluation.tables import changes

ASKED = ("dataset", "person", "pair", "variant")  # of a row of pairs: what each run of an ablation has alike


def redirected_tables(ablation: Ablation, evaluate: Evaluate) -> dict[str, pd.DataFrame]:
    """Make the tables of redirection of a whole ablation.

    Returns:
        redirected_people: a row per run, person and variant; turned_people: a row per run and person;
        redirected, turned: means over people and seeds with intervals, per tier and data set (and variant);
        redirected_by_angle: per tier, data set, factor, angle asked and variant, means over seeds;
        redirection_changes: each tier against the baseline, as `tables.changes`, with factor for learner.

    Raises:
        UserError: runs differ in people or pairs.
    """
    variants, turns, angles, asked = [], [], [], None
    for tier, seed in ablation.all_runs():
        path, who = ablation.paths.redirected_pairs(tier, seed), {"tier": tier, "seed": seed}
        pairs = read_pairs(path)
        asked = set(zip(*(pairs[key] for key in ASKED), strict=True)) if asked is None else asked
        _check_same_pairs(pairs, asked, path)
        variants.append(by_variant(pairs).assign(**who))
        turns.append(turning(pairs).assign(**who))
        angles.append(by_angle(pairs).assign(**who))
    people, turned = pd.concat(variants, ignore_index=True), pd.concat(turns, ignore_index=True)
    cells = ["tier", "dataset", "factor", "from_deg", "to_deg", "variant"]
    return {
        "redirected_people": people,
        "turned_people": turned,
        "redirected": _means(people, ["tier", "dataset", "variant"], VARIANT_NUMBERS, evaluate),
        "turned": _means(turned, ["tier", "dataset"], (*TURN_NUMBERS, *MOVED_NUMBERS), evaluate),
        "redirected_by_angle": pd.concat(angles).groupby(cells, sort=False).mean(numeric_only=True).reset_index(),
        "redirection_changes": _changes(people, ablation, evaluate),
    }


def _check_same_pairs(pairs: pd.DataFrame, asked: Set[tuple[object, ...]], path: Path) -> None:
    """Refuse a run whose people or pairs are not those of the first one: comparisons are paired."""
    other = asked ^ set(zip(*(pairs[key] for key in ASKED), strict=True))
    if other:
        dataset, person, *_ = min(other)
        raise UserError(
            f"{path}: person {person} of {dataset} was not turned as in the first run; run redirect again for all"
        )


def _means(rows: pd.DataFrame, keys: list[str], numbers: Sequence[str], evaluate: Evaluate) -> pd.DataFrame:
    """Average over people and seeds, one row per key and number, with an interval; what nobody has is left out."""
    how = {"confidence": evaluate.confidence, "resamples": evaluate.resamples, "seed": evaluate.seed}
    found = []
    for key, group in rows.groupby(keys, sort=False):
        for number in numbers:
            matrix = _matrix(group, number)
            if matrix.size:
                mean = bootstrap_mean(matrix, **how)
                row = dict(zip(keys, key, strict=True)) | {"number": number, "people": matrix.shape[1]}
                found.append(row | {"mean": mean.mean, "low": mean.low, "high": mean.high})
    return pd.DataFrame(found)


def _changes(people: pd.DataFrame, ablation: Ablation, evaluate: Evaluate) -> pd.DataFrame:
    """Compare each tier's redirection errors with the baseline's; by the rules of the angular error, all decide."""
    both = people[people["variant"] == "both"]
    each = [both.assign(learner=factor, k=0, error_deg=both[f"{factor}_error_deg"]) for factor in FACTORS]
    return changes(pd.concat(each, ignore_index=True), ablation, evaluate).rename(columns={"learner": "factor"})


def _matrix(rows: pd.DataFrame, number: str) -> NDArray:
    """Arrange a number as (S, P), people in alphabetical order who have it with every seed."""
    table = rows.pivot_table(index="seed", columns="person", values=number, aggfunc="mean", dropna=False)
    return table.dropna(axis=1).to_numpy()
