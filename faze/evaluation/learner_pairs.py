"""Which few-shot learners differ: every pair of them, on the same people and calibrations.

People differ far more than learners do, so curves whose bands overlap may well differ for every person. What counts is
the difference of two learners for the same person, its interval over people (and seeds), and that many pairs are
judged at once.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from faze.config.parameters import Evaluate
from faze.evaluation.statistics import compare, holm
from faze.evaluation.tables import matrix

FAMILY = ["tier", "k"]  # pairs on all data sets that are judged together
COLUMNS = [
    *("tier", "dataset", "learner", "other", "k"),
    *("learner_deg", "other_deg", "difference_deg", "low_deg", "high_deg"),
    *("difference_p", "difference_p_holm", "tost_p", "tost_p_holm", "verdict", "people", "seeds"),
]
_TURNED = {"learner": "other", "learner_deg": "other_deg", "low_deg": "high_deg"}


def learner_differences(persons: pd.DataFrame, learners: Sequence[str], evaluate: Evaluate) -> pd.DataFrame:
    """Compare every pair of learners in each tier, data set and k, paired by person and seed.

    Args:
        persons: errors of every test person (`runs.read_errors`).
        learners: in the order in which pairs name them.
        evaluate: margin of learners and confidence; the level of the tests is 1 - confidence.

    Returns:
        One row per tier, data set, pair and k. difference_deg is learner minus other: negative where the learner is
        better; low_deg and high_deg are its interval at the confidence, of this pair alone. P-values of a difference
        and of equivalence are given as they are and adjusted for all pairs of the tier and k on all data sets
        (`statistics.holm`); the verdict (identical, equivalent, different, not shown) rests on the adjusted ones.
    """
    alpha = 1 - evaluate.confidence
    adapted = persons[persons["k"] > 0]
    errors = {key: matrix(group) for key, group in adapted.groupby(["tier", "dataset", "k", "learner"], sort=False)}
    rows = []
    for tier, dataset, k in dict.fromkeys(key[:3] for key in errors):
        for learner, other in itertools.combinations(learners, 2):
            first, second = errors[tier, dataset, k, learner], errors[tier, dataset, k, other]
            # Half the level gives the two-sided interval; p-values do not depend on it.
            found = compare(first - second, margin=evaluate.learner_margin_deg, alpha=alpha / 2)
            rows.append(
                {"tier": tier, "dataset": dataset, "learner": learner, "other": other, "k": k}
                | {"learner_deg": first.mean(), "other_deg": second.mean(), "difference_deg": found.difference}
                | {"low_deg": found.low, "high_deg": found.high}
                | {
                    "difference_p": found.difference_p,
                    "tost_p": found.tost_p,
                    "verdict": "identical" if found.identical else "",
                }
                | {"people": found.people, "seeds": found.seeds}
            )
    return _judged_together(pd.DataFrame(rows, columns=COLUMNS), alpha)


def _judged_together(pairs: pd.DataFrame, alpha: float) -> pd.DataFrame:
    if pairs.empty:
        return pairs
    for test in ("difference_p", "tost_p"):
        pairs[f"{test}_holm"] = pairs.groupby(FAMILY)[test].transform(holm).astype(float)
    found = [pairs["verdict"] == "identical", pairs["tost_p_holm"] < alpha, pairs["difference_p_holm"] < alpha]
    pairs["verdict"] = np.select(found, ["identical", "equivalent", "different"], "not shown").astype(object)
    return pairs


def against(pairs: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Select the pairs that name one learner, turned so that it is the other: negative where a learner is better."""
    turned = pairs.rename(columns=_TURNED | {new: old for old, new in _TURNED.items()})
    turned[["difference_deg", "low_deg", "high_deg"]] *= -1
    both = pd.concat([pairs, turned], ignore_index=True)
    return both[both["other"] == reference]


class Crossing(NamedTuple):
    """Where the curves of a pair cross."""

    learner: str
    other: str
    below: int  # k on either side
    above: int
    better_below: str  # whose error is smaller up to `below`
    better_above: str  # and from `above` on
    shown: bool  # a difference is shown on both sides, at these k


def crossings(pairs: pd.DataFrame) -> list[Crossing]:
    """Find the last crossing of each pair's curves, in the pairs of one tier and data set at every k.

    Shown: between the nearest k at which the pair is judged different, with opposite signs; else between the k where
    the means change places, which chance may do.
    """
    found = []
    for (learner, other), curve in pairs.groupby(["learner", "other"], sort=False):
        curve = curve[curve["difference_deg"] != 0].sort_values("k")
        for shown in (True, False):
            side = curve[curve["verdict"] == "different"] if shown else curve
            signs, shots = np.sign(side["difference_deg"].to_numpy()), side["k"].to_numpy()
            changes = np.flatnonzero(signs[1:] != signs[:-1])
            if len(changes):
                last = changes[-1]
                better = (other, learner) if signs[last + 1] < 0 else (learner, other)
                found.append(Crossing(learner, other, int(shots[last]), int(shots[last + 1]), *better, shown))
                break
    return found
