"""Tables of errors: tier means, changes from the baseline, differences between learners, and redirected strips."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from faze.config.parameters import Evaluate
from faze.evaluation import UNADAPTED
from faze.evaluation.diagnostics import ERRORS, FACTORS, NUMBERS, REDIRECTED
from faze.evaluation.statistics import SEEDS_FOR_A_TIER, bootstrap, compare, holm, pool_noise

CELL = ["tier", "dataset", "learner", "k"]
SIMPLE = "offset"  # the learner with which all others are compared
WORDS = ("different", "not judged", "not shown", "equivalent", "identical", "")  # from worst to best
TESTED = ["difference_deg", "low_deg", "high_deg", "tost_p", "difference_p", "identical", "people", "seeds"]
Matrices = Mapping[tuple[str, str, str, int], pd.DataFrame]  # CELL -> errors (seeds, people)


def error_matrices(persons: pd.DataFrame) -> Matrices:
    """Arrange each cell's errors (`runs.read_errors`) as a matrix, with one row per seed and one column per person."""
    cells = persons.groupby(CELL, sort=False)
    return {cell: rows.pivot(index="seed", columns="person", values="error_deg") for cell, rows in cells}


def mean_errors(matrices: Matrices, evaluate: Evaluate) -> pd.DataFrame:
    """Return each cell's mean error with its interval, and its reduction relative to k = 0."""
    rows = []
    for cell, errors in matrices.items():
        mean, *ends = bootstrap(errors.to_numpy(), evaluate.confidence, evaluate.resamples)
        before = matrices[*cell[:2], UNADAPTED, 0].to_numpy().mean()
        rows.append([*cell, mean, *ends, 1 - mean / before, *errors.shape[::-1]])
    return pd.DataFrame(rows, columns=[*CELL, "mean_deg", "low_deg", "high_deg", "reduction", "people", "seeds"])


def changes(matrices: Matrices, tiers: Sequence[str], decide: Sequence[tuple], evaluate: Evaluate) -> pd.DataFrame:
    """Compare each tier and noise control with the baseline, and judge the changes for each (learner, k) in `decide`.

    P-values of differences are adjusted over all deciding changes (Holm). Equivalence needs no adjustment: all changes
    of a tier must be equivalent. With fewer than SEEDS_FOR_A_TIER seeds, p-values ignore the variation between runs.
    """
    alpha, rows = 1 - evaluate.confidence, []
    for (tier, *cell), errors in matrices.items():
        if tier != tiers[0]:
            reference = matrices[tiers[0], *cell].loc[errors.index]  # a control has only the first seed
            noise = pool_noise(np.stack([matrices[each, *cell] for each in tiers]))
            tested = compare(errors - reference, evaluate.margin_deg, alpha, noise)
            means = reference.to_numpy().mean(), errors.to_numpy().mean()
            rows.append([tier, *cell, *means, tuple(cell[1:]) in decide, *tested.values()])
    table = pd.DataFrame(rows, columns=[*CELL, "baseline_deg", "tier_deg", "decides", *TESTED])
    table = table.astype({"decides": bool, "identical": bool})
    judged = table["decides"] & (table["seeds"] >= SEEDS_FOR_A_TIER)
    adjusted = holm(table["difference_p"].where(judged))
    # The first word that applies is used; WORDS has a different order, by severity.
    words = {"identical": table["identical"], "": ~table["decides"], "not judged": ~judged}
    words |= {"equivalent": table["tost_p"] < alpha, "different": adjusted < alpha}
    return table.assign(difference_p_holm=adjusted, verdict=_select(words))


def learner_differences(matrices: Matrices, tiers: Sequence[str], evaluate: Evaluate) -> pd.DataFrame:
    """Compare every other learner with SIMPLE, if SIMPLE was used; adjust p-values per tier and k (Holm)."""
    alpha, rows = 1 - evaluate.confidence, []
    for (tier, dataset, learner, k), errors in matrices.items():
        simple = matrices.get((tier, dataset, SIMPLE, k))
        if tier in tiers and simple is not None and learner != SIMPLE:
            # Half of alpha gives the two-sided interval; p-values do not depend on it.
            tested = compare(errors - simple, evaluate.learner_margin_deg, alpha / 2)
            means = errors.to_numpy().mean(), simple.to_numpy().mean()
            rows.append([tier, dataset, learner, k, *means, *tested.values()])
    table = pd.DataFrame(rows, columns=[*CELL, "learner_deg", "offset_deg", *TESTED]).astype({"identical": bool})
    for test in ("difference_p", "tost_p"):
        table[f"{test}_holm"] = table.groupby(["tier", "k"])[test].transform(holm).astype(float)
    words = {"identical": table["identical"], "equivalent": table["tost_p_holm"] < alpha}
    return table.assign(verdict=_select(words | {"different": table["difference_p_holm"] < alpha}))


def _select(words: Mapping[str, pd.Series]) -> pd.Categorical:
    """Return, for each row, the first word whose condition holds, as a categorical ordered from worst to best."""
    return pd.Categorical(np.select(list(words.values()), list(words), "not shown"), WORDS, ordered=True)


def redirected(people: pd.DataFrame, evaluate: Evaluate) -> pd.DataFrame:
    """Average each number from `diagnostics.by_variant` over seeds and the people for whom it is defined."""
    found, keys = [], ["tier", "dataset", "variant"]
    for key, rows in people.groupby(keys, sort=False):
        for number in NUMBERS:
            values = rows.pivot(index="seed", columns="person", values=number).dropna(axis=1).to_numpy()
            if values.size:
                means = bootstrap(values, evaluate.confidence, evaluate.resamples)
                found.append([*key, number, values.shape[1], *means])
    return pd.DataFrame(found, columns=[*keys, "number", "people", "mean", "low", "high"])


def redirection_changes(people: pd.DataFrame, tiers: Sequence[str], evaluate: Evaluate) -> pd.DataFrame:
    """Compare each tier's errors on redirected strips with the baseline's for each factor, using `changes`."""
    rows = people[people["variant"] == REDIRECTED].rename(columns=dict(zip(ERRORS, FACTORS, strict=True))).assign(k=0)
    rows = rows.melt(["tier", "seed", "dataset", "person", "k"], FACTORS, "learner", "error_deg")
    compared = changes(error_matrices(rows), tiers, [(factor, 0) for factor in FACTORS], evaluate)
    return compared.rename(columns={"learner": "factor"})
