"""How a number differs over people."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np


@dataclass(frozen=True)
class Spread:
    """A normal distribution, cut off where people end."""

    mean: float
    deviation: float
    least: float = -np.inf
    most: float = np.inf

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a number."""
        normal = NormalDist(self.mean, self.deviation)
        return normal.inv_cdf(rng.uniform(normal.cdf(self.least), normal.cdf(self.most)))
