"""Intervals and equivalence tests for errors (S, P) in degrees, with S seeds and P people as crossed factors."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats calls the same functions, but takes a second to import

SEEDS_FOR_A_TIER = 3  # with fewer seeds, a result describes only the tested checkpoints
Noise = tuple[NDArray, int]  # mean squares of seeds, people and their interaction; number of tiers besides the first


def bootstrap(errors: NDArray, confidence: float, resamples: int) -> tuple[float, float, float]:
    """Return the mean error and the bounds of its interval, which are nan for a single person.

    People and, independently, whole seeds are resampled. The percentiles are widened to match a t interval over people
    (Hesterberg 2015, section 3.3), since plain percentile intervals are too narrow for 15 people.
    """
    seeds, people = errors.shape
    if people < 2:
        return errors.mean(), np.nan, np.nan
    rng = np.random.default_rng(0)
    people_weights, seed_weights = (rng.multinomial(n, np.full(n, 1 / n), size=resamples) / n for n in (people, seeds))
    resampled = np.sum(seed_weights @ errors * people_weights, axis=1)
    t = special.stdtrit(people - 1, (1 + confidence) / 2)
    tail = special.ndtr(-t * np.sqrt(people / (people - 1)))
    return errors.mean(), *np.quantile(resampled, [tail, 1 - tail])


def compare(differences: ArrayLike, margin: float, alpha: float = 0.05, noise: Noise | None = None) -> dict[str, float]:
    """Test paired differences for equivalence (two one-sided t tests; Schuirmann 1987) and for a difference.

    With three or more seeds, the standard error is that of the crossed design, with Satterthwaite's degrees of freedom.
    With fewer seeds, differences are averaged over seeds, and the result describes only the tested checkpoints.

    Args:
        differences: (S, P) or (P,), error minus the baseline's error for the same person and seed, in degrees.
        margin: largest absolute change that counts as equivalent, in degrees; fixed in advance.
        alpha: significance level of each test; the interval's level is 1 - 2 alpha.
        noise: output of `pool_noise`, or None to estimate the noise from `differences`.
    """
    differences = np.atleast_2d(np.asarray(differences, np.float64))
    seeds, people = differences.shape
    mean, identical = differences.mean(), not differences.any()
    half, tost_p, difference_p = 0.0 if identical else np.nan, np.nan, np.nan
    if people > 1 and not identical:
        error, dof = differences.mean(axis=0).std(ddof=1) / np.sqrt(people), people - 1
        if seeds >= SEEDS_FOR_A_TIER:
            (ms_seeds, ms_people, ms_both), others = noise or pool_noise(np.stack([differences, 0 * differences]))
            total = max(ms_seeds + ms_people - ms_both, ms_seeds, ms_people)  # the first can be less than the others
            parts = np.square([ms_seeds, ms_people, ms_both]) / [seeds - 1, people - 1, (seeds - 1) * (people - 1)]
            error, dof = np.sqrt(total / (seeds * people)), max(others * total**2 / parts.sum(), 1.0)
        half = special.stdtrit(dof, 1 - alpha) * error
        with np.errstate(divide="ignore", invalid="ignore"):  # the error is 0 if all people change equally
            tost_p, tail = special.stdtr(dof, np.array([abs(mean) - margin, -abs(mean)]) / error)
        difference_p = min(1.0, 2 * tail)
    found = {"difference_deg": mean, "low_deg": mean - half, "high_deg": mean + half, "tost_p": tost_p}
    return found | {"difference_p": difference_p, "identical": identical, "people": people, "seeds": seeds}


def pool_noise(errors: NDArray) -> Noise | None:
    """Pool the noise of differences over all distinct tiers in errors (T, S, P), since two tiers have too few seeds.

    The mean squares of the interactions of tiers with seeds, people and both (Searle, Casella and McCulloch 1992,
    section 4.3) are doubled, as a difference involves two tiers. None means too few seeds, people or distinct tiers.
    """
    distinct = np.unique(errors, axis=0)
    others, seeds, people = len(distinct) - 1, *errors.shape[1:]
    if others == 0 or seeds < SEEDS_FOR_A_TIER or people < 2:
        return None
    centred = distinct - distinct.mean(axis=0)
    seed_means, person_means = centred.mean(axis=2, keepdims=True), centred.mean(axis=1, keepdims=True)
    both = centred - seed_means - person_means + centred.mean(axis=(1, 2), keepdims=True)
    ms_seeds, ms_people = people * seed_means.var(axis=1, ddof=1).sum(), seeds * person_means.var(axis=2, ddof=1).sum()
    ms_both = np.sum(both**2) / ((seeds - 1) * (people - 1))
    return 2 * np.array([ms_seeds, ms_people, ms_both]) / others, others


def holm(p: pd.Series) -> pd.Series:
    """Adjust p-values so that the family-wise error rate is at most the tests' level (Holm 1979); nan means no test."""
    tested = p.dropna().astype(float).sort_values()
    return (tested * np.arange(len(tested), 0, -1)).cummax().clip(upper=1.0).reindex(p.index)
