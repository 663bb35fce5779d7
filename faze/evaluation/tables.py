"""Tables of errors: means of each tier, changes from the baseline, differences between learners, redirected strips."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from faze.config.parameters import Evaluate
from faze.evaluation import UNADAPTED
from faze.evaluation.redirected_angles import ERRORS, FACTORS, NUMBERS, REDIRECTED, by_variant
from faze.evaluation.runs import Ablation
from faze.evaluation.statistics import SEEDS_FOR_A_TIER, bootstrap, compare, holm, pool_noise

CELL = ["tier", "dataset", "learner", "k"]
SIMPLE = "offset"  # the learner with which all others are compared
TESTED = ["difference_deg", "low_deg", "high_deg", "tost_p", "difference_p", "identical", "people", "seeds"]
CHANGES = [*CELL, "baseline_deg", "tier_deg", "decides", *TESTED, "difference_p_holm", "verdict"]
LEARNERS = [*CELL, "learner_deg", "offset_deg", *TESTED]

Matrices = Mapping[tuple[str, str, str, int], pd.DataFrame]  # tier, data set, learner, k -> errors (seeds, people)


def error_matrices(persons: pd.DataFrame) -> Matrices:
    """Arrange the errors (`runs.read_errors`) of each cell as a matrix, with a row per seed and a column per person."""
    return {
        cell: rows.pivot(index="seed", columns="person", values="error_deg")
        for cell, rows in persons.groupby(CELL, sort=False)
    }


def mean_errors(matrices: Matrices, evaluate: Evaluate) -> pd.DataFrame:
    """Compute each tier's mean errors with intervals over people and seeds.

    Returns:
        Columns CELL; mean_deg, low_deg, high_deg; reduction (relative to k = 0) with its interval; people; seeds.
    """
    rows, options = [], {"confidence": evaluate.confidence, "resamples": evaluate.resamples}
    for (tier, dataset, *cell), errors in matrices.items():
        before = matrices[tier, dataset, UNADAPTED, 0].to_numpy()
        mean = bootstrap(errors.to_numpy(), **options)
        reduction = bootstrap(errors.to_numpy(), **options, before=before)
        rows.append([tier, dataset, *cell, *mean, *reduction, errors.shape[1], errors.shape[0]])
    numbers = ["mean_deg", "low_deg", "high_deg", "reduction", "reduction_low", "reduction_high", "people", "seeds"]
    return pd.DataFrame(rows, columns=[*CELL, *numbers])


def changes(
    matrices: Matrices, tiers: Sequence[str], decide: Collection[tuple[str, int]], evaluate: Evaluate
) -> pd.DataFrame:
    """Compare each tier and noise control with the baseline, paired by person and seed.

    Args:
        matrices: errors of the tiers and of the noise controls, which have the first seed only.
        tiers: trained tiers, the baseline first.
        decide: learner and k of the comparisons on which a tier's verdict is based.
        evaluate: margin and confidence; the level of the tests is 1 - confidence.

    Returns:
        Columns CHANGES; low_deg and high_deg are the ends of the interval of the equivalence test.
    """
    alpha, rows = 1 - evaluate.confidence, []
    for (tier, *cell), errors in matrices.items():
        if tier != tiers[0]:
            reference = matrices[tiers[0], *cell].loc[errors.index]
            noise = pool_noise(np.stack([matrices[each, *cell] for each in tiers]))
            row = {"tier": tier, **dict(zip(CELL[1:], cell, strict=True)), "decides": tuple(cell[1:]) in decide}
            row |= {"baseline_deg": reference.to_numpy().mean(), "tier_deg": errors.to_numpy().mean()}
            rows.append(row | compare(errors - reference, evaluate.margin_deg, alpha, noise))
    return _judge(pd.DataFrame(rows, columns=CHANGES), alpha)


def _judge(changes: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Add a verdict to each deciding change; the p-values of differences are adjusted over all these changes (Holm).

    With fewer than SEEDS_FOR_A_TIER seeds there is no verdict, since the p-values do not include the variation between
    training runs. Equivalence needs no adjustment: a tier is equivalent only if all of its deciding changes are.
    """
    decides, identical = changes["decides"].astype(bool), changes["identical"].astype(bool)
    judged = decides & (changes["seeds"] >= SEEDS_FOR_A_TIER)
    adjusted = holm(changes["difference_p"].where(judged))
    verdicts = {"identical": identical, "": ~decides, "not judged": ~judged}
    verdicts |= {"equivalent": changes["tost_p"] < alpha, "different": adjusted < alpha}
    words = np.select(list(verdicts.values()), list(verdicts), "not shown").astype(object)
    return changes.assign(difference_p_holm=adjusted, verdict=words)


def learner_differences(matrices: Matrices, tiers: Sequence[str], evaluate: Evaluate) -> pd.DataFrame:
    """Compare every learner with `offset` for each tier, data set and k, paired by person and seed.

    Returns:
        Columns LEARNERS, then difference_p_holm and tost_p_holm, adjusted over all learners and data sets of a tier and
        k, and the verdict based on them; no row if `offset` is not among the learners. low_deg and high_deg are the
        ends of the difference's interval at evaluate.confidence.
    """
    alpha, rows = 1 - evaluate.confidence, []
    for (tier, dataset, learner, k), errors in matrices.items():
        offset = matrices.get((tier, dataset, SIMPLE, k))
        if tier in tiers and offset is not None and learner != SIMPLE:
            row = {"tier": tier, "dataset": dataset, "learner": learner, "k": k}
            row |= {"learner_deg": errors.to_numpy().mean(), "offset_deg": offset.to_numpy().mean()}
            # Half the level gives the two-sided interval; p-values do not depend on it.
            rows.append(row | compare(errors - offset, evaluate.learner_margin_deg, alpha / 2))
    table = pd.DataFrame(rows, columns=LEARNERS)
    for test in ("difference_p", "tost_p"):
        table[f"{test}_holm"] = table.groupby(["tier", "k"])[test].transform(holm).astype(float)
    found = [table["identical"].astype(bool), table["tost_p_holm"] < alpha, table["difference_p_holm"] < alpha]
    return table.assign(verdict=np.select(found, ["identical", "equivalent", "different"], "not shown").astype(object))


def redirected_people(ablation: Ablation) -> pd.DataFrame:
    """Average the measurements of redirected strips (`redirected_angles.by_variant`) of every run and person."""
    parts = []
    for tier, seed in ablation.runs():
        pairs = pd.read_parquet(ablation.paths.redirected_pairs(tier, seed))
        parts.append(by_variant(pairs).assign(tier=tier, seed=seed))
    return pd.concat(parts, ignore_index=True)


def redirected(people: pd.DataFrame, evaluate: Evaluate) -> pd.DataFrame:
    """Average each number of `redirected_people` that any person has over people and seeds, with its interval."""
    found, keys = [], ["tier", "dataset", "variant"]
    for key, rows in people.groupby(keys, sort=False):
        for number in NUMBERS:
            values = rows.pivot(index="seed", columns="person", values=number).dropna(axis=1).to_numpy()
            if values.size:
                mean = bootstrap(values, evaluate.confidence, evaluate.resamples)
                found.append([*key, number, values.shape[1], *mean])
    return pd.DataFrame(found, columns=[*keys, "number", "people", "mean", "low", "high"])


def redirection_changes(people: pd.DataFrame, tiers: Sequence[str], evaluate: Evaluate) -> pd.DataFrame:
    """Compare each tier's errors of redirected strips with the baseline's, like `changes`, for each factor."""
    rows, matrices = people[people["variant"] == REDIRECTED].assign(k=0), {}
    for factor, error in zip(FACTORS, ERRORS, strict=True):
        matrices |= error_matrices(rows.assign(learner=factor, error_deg=rows[error]))
    compared = changes(matrices, tiers, [(factor, 0) for factor in FACTORS], evaluate)
    return compared.rename(columns={"learner": "factor"})
