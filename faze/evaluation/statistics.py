"""Intervals and the equivalence test: what may be said about errors of several people and several seeds.

People and seeds are crossed factors: every seed's model is tried on the same people. Shapes: S seeds, P people, B
resamples. Arrays of errors and of paired differences are (..., S, P), in degrees.

- `bootstrap_mean` describes a mean error: it resamples people and, independently, whole seeds.
- `holm` makes several tests at once as honest as one.
- `compare` tests a change by two one-sided t tests (TOST; Schuirmann 1987) on paired differences. With three seeds or
  more the standard error is that of the crossed design, with Satterthwaite's degrees of freedom: resampling three seeds
  covers 64 to 80 % instead of 90 % where seeds spread as much as people (docs/decisions/0003-seeds-and-people.md).
- `pooled_chance` learns what chance does from all tiers of an ablation at once: three seeds of one tier tell little.

numpy and scipy only.
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats, which calls the same functions, takes a second to import

SEEDS_FOR_A_TIER = 3  # fewer speak only for the checkpoints at hand


@dataclass(frozen=True)
class Estimate:
    """A mean and its confidence interval; low and high are nan where one person cannot tell."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Chance:
    """What chance does to the differences between two tiers.

    Attributes:
        of_seeds, of_people, rest: their mean squares (`mean_squares`), degrees².
        rungs: how many tiers' differences told them; each adds as many degrees of freedom as a single one has.
    """

    of_seeds: float
    of_people: float
    rest: float
    rungs: int


@dataclass(frozen=True)
class Comparison:
    """A paired change and its tests.

    Attributes:
        difference, low, high: mean change and the interval that the equivalence test uses (1 - 2 alpha), degrees.
        tost_p: of equivalence (small: the change is shown to lie within the margin); nan without a test.
        difference_p: of a difference from zero, two-sided; nan without a test.
        people, seeds: that were compared.
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
        """Whether no error of any person and seed differs."""
        return self.low == self.high == 0


def bootstrap_mean(errors: ArrayLike, *, confidence: float, resamples: int, seed: int) -> Estimate:
    """Estimate the mean error, with a bootstrap interval over people and, independently, whole seeds.

    Its percentiles are those of the expanded bootstrap (Hesterberg 2015).

    Args:
        errors: (S, P) or (P,) degrees.
        confidence: of the interval, 0.95 for example.
        resamples: B.
        seed: of the resampling.
    """
    errors = np.atleast_2d(np.asarray(errors, dtype=np.float64))
    return _interval(float(errors.mean()), _resample(errors, resamples, seed), errors.shape[1], confidence)


def bootstrap_reduction(
    errors: ArrayLike, before: ArrayLike, *, confidence: float, resamples: int, seed: int
) -> Estimate:
    """Estimate the share by which the mean error falls, 1 - mean(errors) / mean(before), as `bootstrap_mean` does.

    Args:
        errors: (S, P) or (P,) degrees.
        before: of the same people and seeds in the same order.
        confidence: of the interval.
        resamples: B.
        seed: of the resampling.
    """
    errors, before = (np.atleast_2d(np.asarray(e, dtype=np.float64)) for e in (errors, before))
    # One seed gives both the same people and seeds in every resample: the reduction is paired.
    shares = 1 - _resample(errors, resamples, seed) / _resample(before, resamples, seed)
    return _interval(float(1 - errors.mean() / before.mean()), shares, errors.shape[1], confidence)


def _resample(errors: NDArray, resamples: int, seed: int) -> NDArray:
    """Average over resampled people and, independently, resampled whole seeds, (S, P) -> (B,)."""
    seed_weights, person_weights = _weights(*errors.shape, resamples, seed)
    return np.einsum("bs,sp,bp->b", seed_weights, errors, person_weights, optimize=True)


@functools.lru_cache(maxsize=8)  # every cell of the tables has the same few numbers of seeds and people
def _weights(seeds: int, people: int, resamples: int, seed: int) -> tuple[NDArray, NDArray]:
    """Draw how much each seed (B, S) and each person (B, P) counts in each resample."""
    rng = np.random.default_rng(seed)
    of_people = rng.multinomial(people, np.full(people, 1 / people), size=resamples) / people
    of_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
    return of_seeds, of_people


def _interval(mean: float, resampled: NDArray, people: int, confidence: float) -> Estimate:
    """Take percentiles as far out as a t interval over the people goes: those of 15 people would be too narrow."""
    if people < 2:
        return Estimate(mean, np.nan, np.nan)
    tail = special.ndtr(-t_quantile((1 + confidence) / 2, people - 1) * np.sqrt(people / (people - 1)))
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Estimate(mean, float(low), float(high))


def holm(p: ArrayLike) -> NDArray:
    """Adjust p-values of m tests so that the chance of one false positive among them is their level (Holm 1979).

    Args:
        p: (m,); nan stands for no test, stays nan and counts for nothing.
    """
    adjusted = np.array(p, dtype=np.float64)
    tested = np.flatnonzero(~np.isnan(adjusted))
    order = tested[np.argsort(adjusted[tested], kind="stable")]
    steps = np.arange(len(order), 0, -1)  # the smallest of m counts m times, the next m - 1 times
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps * adjusted[order]))
    return adjusted


def pooled_chance(errors: NDArray) -> Chance | None:
    """Learn what chance does to the differences between any two tiers, which is taken to be alike for all.

    The interactions of the tiers with seeds, with people and with both, in the three-way layout without replication
    (Searle, Casella and McCulloch 1992, section 4.3); twice each, since a difference has two tiers.

    Args:
        errors: (T, S, P) degrees, at least two seeds and people; a tier that is another's to the bit counts once.

    Returns:
        None where all tiers are the same.
    """
    distinct = np.unique(errors.reshape(len(errors), -1), axis=0).reshape(-1, *errors.shape[1:])
    rungs = len(distinct) - 1
    if not rungs:
        return None
    squares = mean_squares(distinct - distinct.mean(axis=0))
    return Chance(*(float(2 * of_tiers.sum() / rungs) for of_tiers in squares), rungs)


def compare(differences: ArrayLike, *, margin: float, alpha: float = 0.05, chance: Chance | None = None) -> Comparison:
    """Test paired differences, for equivalence and for a difference.

    Args:
        differences: (S, P) or (P,) error of the tier minus error of the baseline, degrees, same person and seed.
        margin: differences smaller than this count as none, degrees; fixed before looking.
        alpha: level of both one-sided tests and of the two-sided one.
        chance: from all tiers; None: from these differences alone. Below three seeds it is not asked.
    """
    differences = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    seeds, people = differences.shape
    if not differences.any():
        return Comparison(0.0, 0.0, 0.0, np.nan, np.nan, people, seeds)
    mean = float(differences.mean())
    if people < 2:
        return Comparison(mean, np.nan, np.nan, np.nan, np.nan, people, seeds)
    if chance is None or seeds < SEEDS_FOR_A_TIER:
        error, freedom = standard_error(differences)
    else:
        error, freedom = crossed_error(chance.of_seeds, chance.of_people, chance.rest, seeds, people, chance.rungs)
    tost_p = float(equivalence_p(mean, error, freedom, margin))
    difference_p = float(min(1.0, 2 * _upper_tail(abs(mean), error, freedom)))
    reach = float(t_quantile(1 - alpha, freedom) * error)
    return Comparison(mean, mean - reach, mean + reach, tost_p, difference_p, people, seeds)


def equivalence_p(mean: ArrayLike, error: ArrayLike, freedom: ArrayLike, margin: float) -> NDArray:
    """Test with two one-sided t tests that the true mean lies within the margin; arguments broadcast.

    Args:
        mean: of the differences, degrees.
        error: its standard error, degrees.
        freedom: degrees of freedom of the error.
        margin: of equivalence, degrees.
    """
    return _upper_tail(margin - np.abs(mean), error, freedom)


def _upper_tail(distance: ArrayLike, error: ArrayLike, freedom: ArrayLike) -> NDArray:
    """Compute P(T > distance / error); its limit where every difference is the same."""
    distance, error = np.broadcast_arrays(np.asarray(distance, float), np.asarray(error, float))
    limit = np.where(distance > 0, np.inf, -np.inf)
    return special.stdtr(freedom, -np.divide(distance, error, out=limit, where=error > 0))


def t_quantile(share: ArrayLike, freedom: ArrayLike) -> NDArray:
    """Give the t below which a share of Student's distribution lies; arguments broadcast."""
    return special.stdtrit(freedom, share)


def standard_error(differences: NDArray) -> tuple[NDArray, NDArray]:
    """Estimate the standard error of the mean difference and its degrees of freedom, (..., S, P) -> (...), (...).

    Below three seeds: over people of their means over seeds, so it speaks for these checkpoints only.
    """
    seeds, people = differences.shape[-2:]
    if seeds < SEEDS_FOR_A_TIER:
        error = differences.mean(axis=-2).std(axis=-1, ddof=1) / np.sqrt(people)
        return error, np.full(error.shape, people - 1.0)
    return crossed_error(*mean_squares(differences), seeds, people)


def mean_squares(differences: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Compute the mean squares of seeds, people and their interaction in the two-way layout without replication."""
    seeds, people = differences.shape[-2:]
    of_seed, of_person = differences.mean(axis=-1, keepdims=True), differences.mean(axis=-2, keepdims=True)
    rest = differences - of_seed - of_person + differences.mean(axis=(-2, -1), keepdims=True)
    interaction = (rest**2).sum(axis=(-2, -1)) / ((seeds - 1) * (people - 1))
    return people * of_seed.var(axis=(-2, -1), ddof=1), seeds * of_person.var(axis=(-2, -1), ddof=1), interaction


def crossed_error(
    of_seeds: ArrayLike, of_people: ArrayLike, interaction: ArrayLike, seeds: int, people: int, rungs: int = 1
) -> tuple[NDArray, NDArray]:
    """Estimate the standard error of the grand mean of a crossed design, and Satterthwaite's degrees of freedom.

    The unbiased sum of mean squares can fall below either factor's own, which it cannot truly do: the larger counts.
    The mean squares of several rungs have as many times the degrees of freedom.
    """
    of_seeds, of_people, interaction = np.broadcast_arrays(of_seeds, of_people, interaction)
    total = np.maximum(of_seeds + of_people - interaction, np.maximum(of_seeds, of_people))
    spread = of_seeds**2 / (seeds - 1) + of_people**2 / (people - 1) + interaction**2 / ((seeds - 1) * (people - 1))
    freedom = np.divide(rungs * total**2, spread, out=np.full(total.shape, people - 1.0), where=spread > 0)
    return np.sqrt(total / (seeds * people)), np.maximum(freedom, 1.0)
