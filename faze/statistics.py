"""Intervals and the equivalence test: what may be said about errors of several people and several seeds.

People and seeds are crossed factors: every seed's model is tried on the same people. Shapes: S seeds, P people, B
resamples. Arrays of errors and of paired differences are (S, P), in degrees.

- `bootstrap_mean` describes a mean error: it resamples people and, independently, whole seeds.
- `compare` judges a change by two one-sided t tests (TOST; Schuirmann 1987) on paired differences. With three seeds or
  more the standard error is that of the crossed design, with Satterthwaite's degrees of freedom. A percentile bootstrap
  would not do here: resampling three seeds, it covers 66 to 85 % instead of 90 % where seeds spread as much as people.

numpy and scipy only.
"""

import bisect
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

SEEDS_FOR_A_TIER = 3  # fewer speak only for the checkpoints at hand
POWER = 0.8  # at which the number of further seeds is aimed
MOST_SEEDS = 100  # beyond this the answer is "too many to be of use"


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval; low and high are nan where one person cannot tell."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """A paired change and what it shows.

    Attributes:
        difference, low, high: mean change and the interval that the equivalence test uses (1 - 2 alpha), degrees.
        tost_p: of equivalence (small: the change is shown to lie within the margin); nan without a test.
        difference_p: of a difference from zero, two-sided; nan without a test.
        verdict: identical | equivalent | different | not shown.
        more_seeds: about how many further seeds would show equivalence if there is truly no change; None: no number
            that is of use, or no need.
        people, seeds: that were compared.
    """

    difference: float
    low: float
    high: float
    tost_p: float
    difference_p: float
    verdict: str
    more_seeds: int | None
    people: int
    seeds: int

    @property
    def about_tier(self) -> bool:
        """Whether this speaks for the tier, or only for the checkpoints that were compared."""
        return self.seeds >= SEEDS_FOR_A_TIER


def bootstrap_mean(errors: ArrayLike, *, confidence: float, resamples: int, seed: int) -> Interval:
    """Mean error and its bootstrap interval over people and, independently, whole seeds.

    Its percentiles are those of the expanded bootstrap (Hesterberg 2015).

    Args:
        errors: (S, P) or (P,) degrees.
        confidence: of the interval, 0.95 for example.
        resamples: B.
        seed: of the resampling.
    """
    errors = np.atleast_2d(np.asarray(errors, dtype=np.float64))
    means = _resample(errors, resamples, seed)
    return _interval(float(errors.mean()), means, errors.shape[1], confidence)


def bootstrap_reduction(
    errors: ArrayLike, before: ArrayLike, *, confidence: float, resamples: int, seed: int
) -> Interval:
    """Share by which the mean error falls, 1 - mean(errors) / mean(before), resampled like `bootstrap_mean`.

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
    """Means over resampled people and, independently, resampled whole seeds, (S, P) -> (B,)."""
    seeds, people = errors.shape
    rng = np.random.default_rng(seed)
    person_weights = rng.multinomial(people, np.full(people, 1 / people), size=resamples) / people  # (B, P)
    seed_weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds  # (B, S)
    return np.einsum("bs,sp,bp->b", seed_weights, errors, person_weights, optimize=True)


def _interval(mean: float, resampled: NDArray, people: int, confidence: float) -> Interval:
    """Percentiles as far out as a t interval over the people goes; 15 people resampled look narrower than they are."""
    if people < 2:
        return Interval(mean, np.nan, np.nan)
    t = stats.t.ppf((1 + confidence) / 2, people - 1)
    tail = stats.norm.sf(t * np.sqrt(people / (people - 1)))
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Interval(mean, float(low), float(high))


def compare(differences: ArrayLike, *, margin: float, alpha: float = 0.05) -> Comparison:
    """Judge paired differences: identical, equivalent, different, or not shown.

    Args:
        differences: (S, P) or (P,) error of the tier minus error of the baseline, degrees, same person and seed.
        margin: differences smaller than this count as none, degrees; fixed before looking.
        alpha: level of both one-sided tests and of the two-sided one.
    """
    differences = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    seeds, people = differences.shape
    if not differences.any():
        return Comparison(0.0, 0.0, 0.0, np.nan, np.nan, "identical", None, people, seeds)
    mean = float(differences.mean())
    if people < 2:
        return Comparison(mean, np.nan, np.nan, np.nan, np.nan, "not shown", None, people, seeds)
    error, freedom = _standard_error(differences)
    tost_p = max(_upper_tail(margin - mean, error, freedom), _upper_tail(margin + mean, error, freedom))
    difference_p = min(1.0, 2 * _upper_tail(abs(mean), error, freedom))
    reach = float(stats.t.ppf(1 - alpha, freedom)) * error
    verdict = "equivalent" if tost_p < alpha else "different" if difference_p < alpha else "not shown"
    more = _further_seeds(differences, margin, alpha) if verdict == "not shown" else None
    return Comparison(mean, mean - reach, mean + reach, tost_p, difference_p, verdict, more, people, seeds)


def _upper_tail(distance: float, error: float, freedom: float) -> float:
    """P(T > distance / error); the limit where every difference is the same."""
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(stats.t.sf(distance / error, freedom))


def _standard_error(differences: NDArray) -> tuple[float, float]:
    """Standard error of the mean difference, and its degrees of freedom."""
    seeds, people = differences.shape
    if seeds < SEEDS_FOR_A_TIER:
        per_person = differences.mean(axis=0)  # (S, P) -> (P,)
        return float(per_person.std(ddof=1) / np.sqrt(people)), float(people - 1)
    return _crossed_error(*_mean_squares(differences), seeds, people)


def _mean_squares(differences: NDArray) -> tuple[float, float, float]:
    """Mean squares of seeds, of people and of their interaction in the two-way layout without replication."""
    seeds, people = differences.shape
    of_seed, of_person = differences.mean(axis=1), differences.mean(axis=0)
    rest = differences - of_seed[:, None] - of_person + differences.mean()
    interaction = (rest**2).sum() / ((seeds - 1) * (people - 1))
    return float(people * of_seed.var(ddof=1)), float(seeds * of_person.var(ddof=1)), float(interaction)


def _crossed_error(
    of_seeds: float, of_people: float, interaction: float, seeds: int, people: int
) -> tuple[float, float]:
    """Standard error of the grand mean of a crossed random design, with Satterthwaite's degrees of freedom.

    The unbiased sum of mean squares can fall below either factor's own, which it cannot truly do: the larger counts.
    """
    total = max(of_seeds + of_people - interaction, of_seeds, of_people)
    if total == 0:
        return 0.0, float(people - 1)
    spread = of_seeds**2 / (seeds - 1) + of_people**2 / (people - 1) + interaction**2 / ((seeds - 1) * (people - 1))
    return float(np.sqrt(total / (seeds * people))), max(1.0, total**2 / spread)


def tost_power(margin: float, error: float, freedom: float, alpha: float = 0.05) -> float:
    """Chance that the equivalence test succeeds when there is truly no difference.

    Args:
        margin: of the test, degrees.
        error: standard error of the mean difference, degrees.
        freedom: its degrees of freedom.
        alpha: level of both one-sided tests.
    """
    if error == 0:
        return 1.0
    return max(0.0, float(2 * stats.t.cdf(margin / error - stats.t.ppf(1 - alpha, freedom), freedom) - 1))


def _further_seeds(differences: NDArray, margin: float, alpha: float) -> int | None:
    """About how many further seeds give the test its power, at the spreads seen so far."""
    seeds, people = differences.shape
    if seeds < SEEDS_FOR_A_TIER:
        return SEEDS_FOR_A_TIER - seeds  # the fewest that let seeds be judged at all
    of_seeds, of_people, rest = _mean_squares(differences)
    seed_variance = max(0.0, (of_seeds - rest) / people)
    person_variance = max(0.0, (of_people - rest) / seeds)

    def enough(more: int) -> bool:
        n = seeds + more
        error, freedom = _crossed_error(rest + people * seed_variance, rest + n * person_variance, rest, n, people)
        return tost_power(margin, error, freedom, alpha) >= POWER

    fewest = 1 + bisect.bisect_left(range(1, MOST_SEEDS + 1), True, key=enough)
    return fewest if fewest <= MOST_SEEDS else None
