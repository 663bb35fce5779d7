"""Simulated differences of people and seeds, with known true values."""

import numpy as np
from numpy.typing import NDArray


def draw(
    seed: int, draws: int, seeds: int, people: int, mean: float, seed_sd: float, person_sd: float, rest_sd: float
) -> NDArray:
    """Draw samples (draws, S, P) from a crossed design of seeds and people."""
    rng = np.random.default_rng(seed)
    return (
        mean
        + seed_sd * rng.normal(size=(draws, seeds, 1))
        + person_sd * rng.normal(size=(draws, 1, people))
        + rest_sd * rng.normal(size=(draws, seeds, people))
    )
