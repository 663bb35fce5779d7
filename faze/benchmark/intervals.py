"""Confidence intervals of interleaved measurements. Standard library and numpy only: scipy is not in the core."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95) -> dict:
    """Compute the ratio of two interleaved series, block by block, with a t interval on the logarithms.

    Returns:
        ratio, low, high; ratio is the geometric mean.
    """
    logs = mean_interval(np.log(np.asarray(numerator)) - np.log(np.asarray(denominator)), confidence)
    return {"ratio": math.exp(logs["mean"]), "low": math.exp(logs["low"]), "high": math.exp(logs["high"])}


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> dict[str, float]:
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
