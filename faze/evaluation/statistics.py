"""Confidence intervals and equivalence tests for errors of several people and seeds.

Seeds and people are crossed factors: the model of every seed is tested on the same people. Shapes: S seeds, P people,
B resamples. Arrays of errors and of paired differences have shape (..., S, P) and are in degrees.

- `bootstrap_mean` computes the interval of a mean error. It resamples people and, independently, whole seeds.
- `compare` runs two one-sided t tests (TOST; Schuirmann 1987) on paired differences. With three seeds or more, the
  standard error is that of the crossed design with Satterthwaite's degrees of freedom. A bootstrap over three seeds
  would cover 64 to 80 % instead of 90 % if seeds vary as much as people.
- `pool_noise` estimates the noise variance from all tiers of an ablation, because the three seeds of one tier are too
  few.
- `holm` adjusts p-values for multiple tests.
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats calls the same functions, but takes a second to import

SEEDS_FOR_A_TIER = 3  # with fewer seeds, a result describes only these checkpoints


@dataclass(frozen=True)
class Estimate:
    """A mean and its confidence interval; low and high are nan for a single person."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class NoiseVariance:
    """Mean squares of the differences between two tiers that differ by chance alone, degrees².

    Attributes:
        seeds, people, residual: mean squares (`mean_squares`).
        tiers: number of tiers behind the estimate besides the baseline; the degrees of freedom are proportional to it.
    """

    seeds: float
    people: float
    residual: float
    tiers: int


@dataclass(frozen=True)
class Comparison:
    """A paired change and its tests.

    Attributes:
        difference, low, high: mean change and the 1 - 2 alpha interval of the equivalence test, degrees.
        tost_p: p-value of the equivalence test (small: the change is within the margin); nan without a test.
        difference_p: p-value of the two-sided test of a difference from zero; nan without a test.
        people, seeds: sample sizes.
    """

    difference: float
    low: float
    high: float
    tost_p: float
    difference_p: float
    people: int
    seeds: int

    @property
    def identical(self) -> bool:
        """Whether the errors of all people and seeds are unchanged."""
        return self.low == self.high == 0


def bootstrap_mean(errors: ArrayLike, *, confidence: float, resamples: int, seed: int) -> Estimate:
    """Estimate a mean error with an expanded percentile bootstrap interval (Hesterberg 2015) over people and seeds.

    Args:
        errors: (S, P) or (P,) degrees.
        confidence: level of the interval, for example 0.95.
        resamples: B.
        seed: seed of the random generator.
    """
    errors = np.atleast_2d(np.asarray(errors, dtype=np.float64))
    return _interval(float(errors.mean()), _resample(errors, resamples, seed), errors.shape[1], confidence)


def bootstrap_reduction(
    errors: ArrayLike, before: ArrayLike, *, confidence: float, resamples: int, seed: int
) -> Estimate:
    """Estimate the relative reduction of the mean error, 1 - mean(errors) / mean(before), as `bootstrap_mean` does.

    Args:
        errors: (S, P) or (P,) degrees.
        before: errors of the same people and seeds in the same order.
        confidence: level of the interval.
        resamples: B.
        seed: seed of the random generator.
    """
    errors, before = (np.atleast_2d(np.asarray(e, dtype=np.float64)) for e in (errors, before))
    # The same random seed gives both the same resamples, so the reduction is paired.
    reductions = 1 - _resample(errors, resamples, seed) / _resample(before, resamples, seed)
    return _interval(float(1 - errors.mean() / before.mean()), reductions, errors.shape[1], confidence)


def _resample(errors: NDArray, resamples: int, seed: int) -> NDArray:
    """Compute the mean over resampled people and, independently, resampled seeds, (S, P) -> (B,)."""
    seed_weights, person_weights = _resampling_weights(*errors.shape, resamples, seed)
    return np.einsum("bs,sp,bp->b", seed_weights, errors, person_weights, optimize=True)


@functools.lru_cache(maxsize=8)  # the cells of a table have few different shapes
def _resampling_weights(seeds: int, people: int, resamples: int, seed: int) -> tuple[NDArray, NDArray]:
    """Draw the weight of each seed (B, S) and of each person (B, P) in each resample."""
    rng = np.random.default_rng(seed)
    of_people = rng.multinomial(people, np.full(people, 1 / people), size=resamples) / people
    of_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
    return of_seeds, of_people


def _interval(mean: float, resampled: NDArray, people: int, confidence: float) -> Estimate:
    """Return percentiles as far out as those of a t interval over people; plain ones are too narrow for 15 people."""
    if people < 2:
        return Estimate(mean, np.nan, np.nan)
    t = special.stdtrit(people - 1, (1 + confidence) / 2)
    tail = special.ndtr(-t * np.sqrt(people / (people - 1)))
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Estimate(mean, float(low), float(high))


def holm(p: ArrayLike) -> NDArray:
    """Adjust m p-values so that the family-wise error rate is the level of the tests (Holm 1979).

    Args:
        p: (m,); nan means no test; it remains nan and is not counted.
    """
    adjusted = np.array(p, dtype=np.float64)
    tested = np.flatnonzero(~np.isnan(adjusted))
    order = tested[np.argsort(adjusted[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * adjusted[order]))
    return adjusted


def pool_noise(errors: NDArray) -> NoiseVariance | None:
    """Estimate the noise variance of the difference between any two tiers, assuming that it is equal for all pairs.

    The mean squares are the interactions of tiers with seeds, people and both, in the three-way layout without
    replication (Searle, Casella and McCulloch 1992, section 4.3). They are doubled because a difference involves two
    tiers.

    Args:
        errors: (T, S, P) degrees, with at least two seeds and two people. Tiers with identical errors count once.

    Returns:
        None if all tiers are identical.
    """
    distinct = np.unique(errors.reshape(len(errors), -1), axis=0).reshape(-1, *errors.shape[1:])
    tiers = len(distinct) - 1
    if not tiers:
        return None
    squares = mean_squares(distinct - distinct.mean(axis=0))
    return NoiseVariance(*(float(2 * of_tiers.sum() / tiers) for of_tiers in squares), tiers)


def compare(
    differences: ArrayLike, *, margin: float, alpha: float = 0.05, noise: NoiseVariance | None = None
) -> Comparison:
    """Test paired differences for equivalence and for a difference.

    Args:
        differences: (S, P) or (P,) error of the tier minus error of the baseline for the same person and seed, degrees.
        margin: largest absolute change that counts as equivalent, degrees; fixed in advance.
        alpha: level of both one-sided tests and of the two-sided one.
        noise: noise variance pooled from all tiers; None: estimate it from these differences. It is ignored with fewer
            than three seeds.
    """
    differences = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    seeds, people = differences.shape
    if not differences.any():
        return Comparison(0.0, 0.0, 0.0, np.nan, np.nan, people, seeds)
    mean = float(differences.mean())
    if people < 2:
        return Comparison(mean, np.nan, np.nan, np.nan, np.nan, people, seeds)
    if noise is None or seeds < SEEDS_FOR_A_TIER:
        error, dof = standard_error(differences)
    else:
        error, dof = crossed_error(noise.seeds, noise.people, noise.residual, seeds, people, noise.tiers)
    tost_p = float(equivalence_p(mean, error, dof, margin))
    difference_p = float(min(1.0, 2 * _upper_tail(abs(mean), error, dof)))
    half_width = float(special.stdtrit(dof, 1 - alpha) * error)
    return Comparison(mean, mean - half_width, mean + half_width, tost_p, difference_p, people, seeds)


def equivalence_p(mean: ArrayLike, error: ArrayLike, dof: ArrayLike, margin: float) -> NDArray:
    """Return the p-value of two one-sided t tests that the true mean is within the margin; arguments broadcast.

    Args:
        mean: mean difference, degrees.
        error: its standard error, degrees.
        dof: degrees of freedom of the standard error.
        margin: margin of equivalence, degrees.
    """
    return _upper_tail(margin - np.abs(mean), error, dof)


def _upper_tail(distance: ArrayLike, error: ArrayLike, dof: ArrayLike) -> NDArray:
    """Compute P(T > distance / error), or its limit if the standard error is 0."""
    distance, error = np.broadcast_arrays(np.asarray(distance, float), np.asarray(error, float))
    limit = np.where(distance > 0, np.inf, -np.inf)
    return special.stdtr(dof, -np.divide(distance, error, out=limit, where=error > 0))


def standard_error(differences: NDArray) -> tuple[NDArray, NDArray]:
    """Estimate the standard error of the mean difference and its degrees of freedom, (..., S, P) -> (...), (...).

    With fewer than three seeds, differences are averaged over seeds. The standard error is then over people and is
    valid for these checkpoints only.
    """
    seeds, people = differences.shape[-2:]
    if seeds < SEEDS_FOR_A_TIER:
        error = differences.mean(axis=-2).std(axis=-1, ddof=1) / np.sqrt(people)
        return error, np.full(error.shape, people - 1.0)
    return crossed_error(*mean_squares(differences), seeds, people)


def mean_squares(differences: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Compute the mean squares for seeds, people and their interaction in the two-way layout without replication."""
    seeds, people = differences.shape[-2:]
    of_seed, of_person = differences.mean(axis=-1, keepdims=True), differences.mean(axis=-2, keepdims=True)
    residual = differences - of_seed - of_person + differences.mean(axis=(-2, -1), keepdims=True)
    interaction = (residual**2).sum(axis=(-2, -1)) / ((seeds - 1) * (people - 1))
    return people * of_seed.var(axis=(-2, -1), ddof=1), seeds * of_person.var(axis=(-2, -1), ddof=1), interaction


def crossed_error(
    of_seeds: ArrayLike, of_people: ArrayLike, interaction: ArrayLike, seeds: int, people: int, tiers: int = 1
) -> tuple[NDArray, NDArray]:
    """Estimate the standard error of the grand mean of a crossed design, and Satterthwaite's degrees of freedom.

    The unbiased sum of mean squares can be smaller than either factor's own mean square; the largest of the three is
    used. Mean squares pooled over several tiers have that many times the degrees of freedom.
    """
    of_seeds, of_people, interaction = np.broadcast_arrays(of_seeds, of_people, interaction)
    total = np.maximum(of_seeds + of_people - interaction, np.maximum(of_seeds, of_people))
    spread = of_seeds**2 / (seeds - 1) + of_people**2 / (people - 1) + interaction**2 / ((seeds - 1) * (people - 1))
    dof = np.divide(tiers * total**2, spread, out=np.full(total.shape, people - 1.0), where=spread > 0)
    return np.sqrt(total / (seeds * people)), np.maximum(dof, 1.0)
