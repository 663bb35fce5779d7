"""The gaze network that adapts: z_gaze -> hidden, SELU -> 3-vector. Paper section 3.2.

Many networks are held at once: every parameter has a first axis M of models, and one batched product serves them all.
Where the direction of the output matters and not its length, nothing is normalised: the angle does not depend on it.

Shapes: M models, n samples of each, F = 3 x vectors of the gaze code, H hidden units.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from faze.losses import angle_deg


class Weights(NamedTuple):
    """Parameters of M networks."""

    hidden_weight: Tensor  # (M, F, H)
    hidden_bias: Tensor  # (M, 1, H)
    output_weight: Tensor  # (M, H, 3)
    output_bias: Tensor  # (M, 1, 3)

    def take(self, models: Tensor) -> "Weights":
        """A copy of some models, each as often as it is named: models (m,) -> m networks."""
        return Weights(*(parameter[models] for parameter in self))


def random_weights(models: int, inputs: int, hidden: int, seed: int) -> Weights:
    """The same random network for every model, drawn as torch draws a linear layer: uniform within 1/sqrt(inputs)."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(rows: int, columns: int, fan_in: int) -> Tensor:
        draw = torch.rand(1, rows, columns, generator=generator)
        return ((2 * draw - 1) / fan_in**0.5).repeat(models, 1, 1)

    return Weights(
        uniform(inputs, hidden, inputs), uniform(1, hidden, inputs), uniform(hidden, 3, hidden), uniform(1, 3, hidden)
    )


def gaze_vector(weights: Sequence[Tensor], code: Tensor) -> Tensor:
    """Gaze directions, not normalised: Weights and code (M, n, F) -> (M, n, 3)."""
    hidden_weight, hidden_bias, output_weight, output_bias = weights
    hidden = torch.selu(torch.baddbmm(hidden_bias, code, hidden_weight))
    return torch.baddbmm(output_bias, hidden, output_weight)


def mean_angle_deg(weights: Sequence[Tensor], code: Tensor, gaze: Tensor, share: Tensor) -> Tensor:
    """Each model's loss: the mean angle between its directions and the true ones.

    Args:
        weights: Weights of M models.
        code: (M, n, F).
        gaze: (M, n, 3) unit vectors.
        share: (M, n), adding up to 1 over a model's samples; 0 leaves a sample out.

    Returns:
        (M,) degrees.
    """
    return (angle_deg(gaze_vector(weights, code), gaze) * share).sum(-1)
