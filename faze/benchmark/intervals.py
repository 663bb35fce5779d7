"""Confidence intervals of interleaved measurements. Standard library and numpy only: scipy is not in the core."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from faze.base.benchmark_file import ENOUGH_ROUNDS

CONFIDENCE = 0.95  # of every interval of benchmark.json, which says so itself: evaluate.confidence is another affair


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float], confidence: float = CONFIDENCE) -> dict:
    """Compute the ratio of two paired series with a t interval on the logarithms.

    Returns:
        ratio, low, high; ratio is the geometric mean.
    """
    logs = mean_interval(np.log(np.asarray(numerator)) - np.log(np.asarray(denominator)), confidence)
    return {"ratio": math.exp(logs["mean"]), "low": math.exp(logs["low"]), "high": math.exp(logs["high"])}


def rounds_interval(numerator: Sequence[Sequence[float]], denominator: Sequence[Sequence[float]]) -> dict:
    """Compute the ratio of two series of rounds, each of fresh processes that ran their blocks in turn.

    A round is one value: the ratio of the medians of its blocks. The interval is over rounds. Where they are too few,
    it is over blocks within their round, and what differs between processes is not in it.

    Args:
        numerator: the blocks of each round.
        denominator: likewise, from the same rounds.

    Returns:
        ratio, low, high; ratio is the geometric mean over the rounds.
    """
    above, below = ([float(np.median(blocks)) for blocks in series] for series in (numerator, denominator))
    if len(numerator) >= ENOUGH_ROUNDS:
        return ratio_interval(above, below)
    logs = [np.log(np.asarray(a) / np.asarray(b)) for a, b in zip(numerator, denominator, strict=True)]
    within = np.concatenate([of_round - of_round.mean() for of_round in logs])
    freedom = len(within) - len(logs)
    spread = math.sqrt(float(within @ within) / freedom / len(within))
    reach = math.exp(student_quantile((1 + CONFIDENCE) / 2, freedom) * spread)
    ratio = math.exp(float(np.mean(np.log(above) - np.log(below))))
    return {"ratio": ratio, "low": ratio / reach, "high": ratio * reach}


def mean_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> dict[str, float]:
    """Compute the mean of independent values with its t interval: mean, low, high."""
    values = np.asarray(values, dtype=float)
    n, mean = len(values), float(values.mean())
    half = student_quantile((1 + confidence) / 2, n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def student_quantile(p: float, freedom: int) -> float:
    """Compute a quantile of Student's t for p >= 0.5 from its integrated density."""
    # Substituting t = sqrt(freedom) tan(u) makes the density a power of the cosine on a finite interval.
    u = np.linspace(0.0, math.pi / 2, 20001)
    density = np.cos(u) ** (freedom - 1)
    cumulative = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(float(np.interp(2 * p - 1, cumulative / cumulative[-1], u)))
