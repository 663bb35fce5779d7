"""The gaze network that is adapted: z_gaze -> hidden, activation -> 3-vector. Paper section 3.2.

Many networks are processed at once: the first axis of every parameter is M, the models. The output is not normalised
where only its direction matters, since the angle does not depend on its length.

Shapes: M models, n samples, F = 3 x number of vectors in the gaze code, H hidden units, S = H (F + 4) + 3 parameters.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

Activation = Literal["selu", "relu"]  # of meta-learners; of the trained gaze head


class Weights(NamedTuple):
    """Parameters of M networks."""

    hidden_weight: Tensor  # (M, F, H)
    hidden_bias: Tensor  # (M, 1, H)
    output_weight: Tensor  # (M, H, 3)
    output_bias: Tensor  # (M, 1, 3)

    def pack(self) -> Tensor:
        """Write the parameters of each network in one row, in the order of kernel.c: (M, S)."""
        parts = (self.hidden_weight, self.hidden_bias, self.output_weight.mT, self.output_bias)
        return torch.cat([part.flatten(1) for part in parts], dim=1)

    @classmethod
    def unpack(cls, packed: Tensor, inputs: int) -> "Weights":
        """Return views of packed parameters (M, S) of networks with F inputs."""
        hidden = (packed.shape[1] - 3) // (inputs + 4)
        first, bias, second, last = packed.split([inputs * hidden, hidden, 3 * hidden, 3], dim=1)
        return cls(
            first.unflatten(1, (inputs, hidden)), bias[:, None], second.unflatten(1, (3, hidden)).mT, last[:, None]
        )

    def as_state(self) -> dict[str, Tensor]:
        """Copy the parameters for a file."""
        return {name: value.clone(memory_format=torch.contiguous_format) for name, value in self._asdict().items()}


def random_weights(models: int, inputs: int, hidden: int, seed: int) -> Weights:
    """Draw one random network for all models: weights normal with variance 1 / fan-in, biases 0, as SELU requires.

    The scale also affects training: a step of SGD on the angle turns the output by an amount proportional to 1 /
    length^2. The default for torch's linear layers gives an output of length 0.4 instead of 1, so the paper's rates
    would act as if they were six times as large.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(fan_in: int, columns: int) -> Tensor:
        return (torch.randn(1, fan_in, columns, generator=generator) / fan_in**0.5).repeat(models, 1, 1)

    hidden_weight, output_weight = normal(inputs, hidden), normal(hidden, 3)
    return Weights(hidden_weight, torch.zeros(models, 1, hidden), output_weight, torch.zeros(models, 1, 3))


def gaze_head_weights(arrays: Mapping[str, NDArray]) -> Weights:
    """Build the trained gaze head, M = 1, from the arrays of its linear layers in the store of codes."""
    layers = {name: torch.from_numpy(array).float() for name, array in arrays.items()}
    hidden_weight, output_weight = layers["gaze1.weight"].T[None], layers["gaze2.weight"].T[None]
    return Weights(hidden_weight, layers["gaze1.bias"][None, None], output_weight, layers["gaze2.bias"][None, None])


def gaze_vector(weights: Weights, code: Tensor, activation: Activation) -> Tensor:
    """Compute gaze directions without normalising them: code (M, n, F) -> (M, n, 3)."""
    hidden = torch.baddbmm(weights.hidden_bias, code, weights.hidden_weight)
    hidden = torch.selu(hidden) if activation == "selu" else torch.relu(hidden)
    return torch.baddbmm(weights.output_bias, hidden, weights.output_weight)
