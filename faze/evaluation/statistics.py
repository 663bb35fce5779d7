"""Confidence intervals and equivalence tests for errors of several people and seeds.

Seeds and people are crossed factors: the model of every seed is tested on the same people. Shapes: S seeds, P people,
B resamples. Errors and paired differences are arrays (S, P) in degrees.
"""

import functools

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats calls the same functions, but takes a second to import

SEEDS_FOR_A_TIER = 3  # with fewer seeds, a result describes only these checkpoints
Noise = tuple[NDArray[np.float64], int]  # mean squares (`mean_squares`), and the number of tiers behind them


def bootstrap(
    errors: NDArray[np.float64], confidence: float, resamples: int, before: NDArray[np.float64] | None = None
) -> tuple[float, float, float]:
    """Estimate a mean error (S, P) with an expanded percentile bootstrap interval (Hesterberg 2015, section 3.3).

    People and, independently, whole seeds are resampled, B = `resamples` times. The percentiles are as far out as those
    of a t interval over people, since plain ones are too narrow for 15 people. With errors `before` of the same people
    and seeds, the reduction 1 - mean(errors) / mean(before) is estimated instead.

    Returns:
        The estimate and the ends of its interval, which are nan for a single person.
    """
    seeds, people = errors.shape
    estimate = errors.mean() if before is None else 1 - errors.mean() / before.mean()
    if people < 2:
        return float(estimate), np.nan, np.nan
    of_seeds, of_people = _weights(seeds, people, resamples)
    resampled = np.einsum("bs,sp,bp->b", of_seeds, errors, of_people, optimize=True)
    if before is not None:
        resampled = 1 - resampled / np.einsum("bs,sp,bp->b", of_seeds, before, of_people, optimize=True)
    t = special.stdtrit(people - 1, (1 + confidence) / 2)
    tail = special.ndtr(-t * np.sqrt(people / (people - 1)))
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return float(estimate), float(low), float(high)


@functools.lru_cache(maxsize=8)  # the cells of a table have few different shapes
def _weights(seeds: int, people: int, resamples: int) -> tuple[NDArray, NDArray]:
    """Draw the weight of each seed (B, S) and of each person (B, P) in each resample."""
    rng = np.random.default_rng(0)
    of_people = rng.multinomial(people, np.full(people, 1 / people), size=resamples) / people
    of_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
    return of_seeds, of_people


def compare(differences: ArrayLike, margin: float, alpha: float = 0.05, noise: Noise | None = None) -> dict[str, float]:
    """Test paired differences for equivalence (two one-sided t tests; Schuirmann 1987) and for a difference.

    With three seeds or more, the standard error is that of the crossed design with Satterthwaite's degrees of freedom;
    a bootstrap over three seeds would cover 64 to 80 % instead of 90 % if seeds vary as much as people. With fewer
    seeds, differences are averaged over seeds, and the result is valid for these checkpoints only.

    Args:
        differences: (S, P) or (P,) error minus error of the baseline for the same person and seed, degrees.
        margin: largest absolute change that counts as equivalent, degrees; fixed in advance.
        alpha: level of both one-sided tests and of the two-sided one.
        noise: from `pool_noise`, for three seeds or more; None: estimate the noise from these differences.

    Returns:
        difference_deg, the mean; low_deg and high_deg, its 1 - 2 alpha interval; tost_p, small if the change is within
        the margin; difference_p, small if it is not zero; identical; people; seeds. Without a test, p-values are nan.
    """
    differences = np.atleast_2d(np.asarray(differences, np.float64))
    seeds, people = differences.shape
    mean, identical = float(differences.mean()), not differences.any()
    half = tost_p = difference_p = np.nan
    if identical:
        half = 0.0
    elif people > 1:
        error, dof = _standard_error(differences, noise)
        half = special.stdtrit(dof, 1 - alpha) * error
        tost_p = _upper_tail(margin - abs(mean), error, dof)
        difference_p = min(1.0, 2 * _upper_tail(abs(mean), error, dof))
    found = {"difference_deg": mean, "low_deg": mean - half, "high_deg": mean + half, "tost_p": tost_p}
    return found | {"difference_p": difference_p, "identical": identical, "people": people, "seeds": seeds}


def _upper_tail(distance: float, error: float, dof: float) -> float:
    """Compute P(T > distance / error), or its limit if the standard error is 0."""
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(special.stdtr(dof, -distance / error))


def _standard_error(differences: NDArray, noise: Noise | None) -> tuple[float, float]:
    """Estimate the standard error of the mean difference and its degrees of freedom.

    The unbiased sum of mean squares can be smaller than either factor's own mean square; the largest of the three is
    used. Mean squares pooled over several tiers have that many times the degrees of freedom.
    """
    seeds, people = differences.shape
    if seeds < SEEDS_FOR_A_TIER:
        return differences.mean(axis=0).std(ddof=1) / np.sqrt(people), people - 1
    (of_seeds, of_people, both), tiers = noise or (mean_squares(differences), 1)
    total = max(of_seeds + of_people - both, of_seeds, of_people)
    spread = of_seeds**2 / (seeds - 1) + of_people**2 / (people - 1) + both**2 / ((seeds - 1) * (people - 1))
    dof = max(tiers * total**2 / spread, 1.0) if spread else people - 1
    return np.sqrt(total / (seeds * people)), dof


def mean_squares(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean squares (3,) of seeds, people and both in the two-way layout without replication."""
    seeds, people = differences.shape
    of_seed, of_person = differences.mean(axis=1, keepdims=True), differences.mean(axis=0, keepdims=True)
    rest = differences - of_seed - of_person + differences.mean()
    both = np.sum(rest**2) / ((seeds - 1) * (people - 1))
    return np.array([people * of_seed.var(ddof=1), seeds * of_person.var(ddof=1), both])


def pool_noise(errors: NDArray[np.float64]) -> Noise | None:
    """Estimate the noise variance of the difference between any two tiers, assuming that it is equal for all pairs.

    The three seeds of one tier are too few. The mean squares are the interactions of tiers with seeds, people and both
    in the three-way layout without replication (Searle, Casella and McCulloch 1992, section 4.3). They are doubled
    because a difference involves two tiers.

    Args:
        errors: (T, S, P) degrees. Tiers with identical errors count once.

    Returns:
        None if all tiers are identical, or with too few seeds or people.
    """
    distinct = np.unique(errors, axis=0)
    tiers = len(distinct) - 1
    if not tiers or errors.shape[1] < SEEDS_FOR_A_TIER or errors.shape[2] < 2:
        return None
    squares = [mean_squares(of_tier) for of_tier in distinct - distinct.mean(axis=0)]
    return 2 * np.sum(squares, axis=0) / tiers, tiers


def holm(p: pd.Series) -> pd.Series:
    """Adjust p-values so that the family-wise error rate is the level of the tests (Holm 1979); nan means no test."""
    tested = p.dropna().astype(float).sort_values()
    return (tested * np.arange(len(tested), 0, -1)).cummax().clip(upper=1.0).reindex(p.index)
