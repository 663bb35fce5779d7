"""What a design of seeds and people can show: its power, and the seeds and people that give enough of it.

The power of the test that judges (`statistics.compare`), by drawing what it may find: the mean of normal differences
and, independently, their mean squares (Searle, Casella and McCulloch 1992, section 4.3), through the same standard
error. Formulas that take the degrees of freedom as known promise several times too much at three seeds.
"""

import bisect
import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.evaluation.statistics import SEEDS_FOR_A_TIER, crossed_error, mean_squares, t_quantile

POWER = 0.8  # that a planned design aims at
MOST_SEEDS = 100  # beyond this a number of seeds is only called more than this
MOST_PEOPLE = 1000
DESIGN = [
    "dataset",
    "learner",
    "k",
    "seeds",
    "people",
    "rungs",
    "trainings",
    "power",
    "margin_deg",
    "seeds_needed",
    "people_needed",
]
_DRAWS = 4000  # the standard error of a power is at most 0.008


@dataclass(frozen=True)
class Spread:
    """Variances of the paired differences of a tier that changes nothing, degrees².

    Attributes:
        seeds: between seeds, of the mean over all people.
        people: between people, of the mean over all seeds.
        rest: what is left between the seeds of one person.
    """

    seeds: float
    people: float
    rest: float

    @classmethod
    def of_differences(cls, differences: NDArray) -> "Spread":
        """Estimate it from (S, P) differences of a tier, at least two seeds; negative estimates are 0."""
        seeds, people = differences.shape
        of_seeds, of_people, rest = map(float, mean_squares(differences))
        return cls(max(0.0, (of_seeds - rest) / people), max(0.0, (of_people - rest) / seeds), rest)

    @classmethod
    def of_trainings(cls, errors: NDArray) -> "Spread":
        """Estimate it from (T, P) errors of trainings that differ by chance alone: a difference has two of them.

        People differ in their errors, but not in a difference that is chance alone.
        """
        of_trainings = cls.of_differences(errors)
        return cls(2 * of_trainings.seeds, 0.0, 2 * of_trainings.rest)


@dataclass(frozen=True)
class Plan:
    """What a design shows if there is truly no change, and what it takes to show it in 80 % of cases (POWER).

    Attributes:
        power: of the design.
        margin_deg: the smallest margin of which it has that power.
        seeds_needed: that have it with the same people; MOST_SEEDS + 1 stands for more.
        people_needed: that have it with the same seeds; MOST_PEOPLE + 1 stands for more, or for no number.
    """

    power: float
    margin_deg: float
    seeds_needed: int
    people_needed: int


def designs(
    persons: pd.DataFrame, conditions: pd.DataFrame, seeds: int, *, rungs: int, margin: float, alpha: float
) -> pd.DataFrame:
    """Plan for each data set and k that decides a verdict, from trainings of the baseline that differ by chance alone.

    Args:
        persons: errors of every test person in these trainings: tier, seed, dataset, person, learner, k, error_deg.
        conditions: dataset, learner and k that decide.
        seeds: of the ablation; below SEEDS_FOR_A_TIER, which judge nothing, so many are planned for.
        rungs: tiers that are trained besides the baseline, and tell what chance does.
        margin: of equivalence, degrees.
        alpha: level of both one-sided tests.

    Returns:
        One row per condition, with the fields of Plan; none where a single training tells nothing of chance, or a
        single person nothing of people.
    """
    rows = []
    for condition in conditions.drop_duplicates().to_dict("records"):
        of_condition = persons[(persons[list(condition)] == pd.Series(condition)).all(axis=1)]
        errors = of_condition.pivot(index=["tier", "seed"], columns="person", values="error_deg").to_numpy()
        if min(errors.shape) < 2:
            continue
        design = {"seeds": max(seeds, SEEDS_FOR_A_TIER), "people": errors.shape[1], "rungs": max(rungs, 1)}
        found = plan(Spread.of_trainings(errors), **design, margin=margin, alpha=alpha)
        rows.append(condition | design | {"trainings": errors.shape[0]} | dataclasses.asdict(found))
    return pd.DataFrame(rows, columns=DESIGN)


def plan(spread: Spread, seeds: int, people: int, *, rungs: int, margin: float, alpha: float) -> Plan:
    """Find what a design shows, and what it lacks.

    Args:
        spread: of the differences, as far as it is known.
        seeds: of the design, at least SEEDS_FOR_A_TIER.
        people: of the design, at least two.
        rungs: whose differences tell what chance does (`statistics.pooled_chance`).
        margin: of equivalence, degrees.
        alpha: level of both one-sided tests.
    """
    reaches = functools.partial(_reaches, spread, rungs=rungs, alpha=alpha)

    def enough(seeds: int, people: int) -> bool:
        return (reaches(seeds, people) < margin).mean() >= POWER

    found = reaches(seeds, people)
    return Plan(
        power=float((found < margin).mean()),
        margin_deg=float(np.quantile(found, POWER)),
        seeds_needed=_fewest(lambda number: enough(number, people), SEEDS_FOR_A_TIER, MOST_SEEDS),
        people_needed=_fewest(lambda number: enough(seeds, number), 2, MOST_PEOPLE),
    )


def _fewest(enough: Callable[[int], bool], least: int, most: int) -> int:
    """Find the smallest number that is enough; one above the most stands for none of them."""
    return least + bisect.bisect_left(range(least, most + 1), True, key=enough)


def _reaches(spread: Spread, seeds: int, people: int, *, rungs: int, alpha: float) -> NDArray:
    """Draw how far from zero the interval of the equivalence test reaches, (draws,): below the margin it succeeds."""
    rng = np.random.default_rng(0)
    expected = spread.rest + np.array([people * spread.seeds, seeds * spread.people, 0.0])
    freedom = rungs * np.array([seeds - 1, people - 1, (seeds - 1) * (people - 1)])
    squares = expected[:, None] * rng.chisquare(freedom[:, None], (3, _DRAWS)) / freedom[:, None]
    variance = spread.seeds / seeds + spread.people / people + spread.rest / (seeds * people)
    means = np.sqrt(variance) * rng.normal(size=_DRAWS)
    error, known = crossed_error(*squares, seeds, people, rungs)
    return np.abs(means) + t_quantile(1 - alpha, known) * error
