"""The gaze network that is adapted: z_gaze -> hidden, activation -> 3-vector. Paper section 3.2.

Many networks are processed at once, by batched products: the first axis of every parameter is M, the models. The output
is not normalised where only its direction matters, since the angle does not depend on its length.

Shapes: M models, D sets of n samples, F = 3 x number of vectors in the gaze code, H hidden units.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Activation = Literal["selu", "relu"]  # of meta-learners; of the trained gaze head


class Weights(NamedTuple):
    """Parameters of M networks, or values of the same shapes, such as gradients."""

    hidden_weight: Tensor  # (M, F, H)
    hidden_bias: Tensor  # (M, 1, H)
    output_weight: Tensor  # (M, H, 3)
    output_bias: Tensor  # (M, 1, 3)

    def take(self, models: Tensor) -> "Weights":
        """Copy some models, each as often as its index occurs: models (m,) -> m networks."""
        return Weights(*(parameter[models] for parameter in self))


def map_weights(function: Callable[..., Tensor], *weights: Sequence[Tensor]) -> Weights:
    """Call a function on each parameter of one Weights, or on the corresponding parameters of several."""
    return Weights(*(function(*parameters) for parameters in zip(*weights, strict=True)))


@dataclass(frozen=True)
class InitialNetworks:
    """The networks from which calibrations start, one for each k."""

    shots: Sequence[int]
    weights: Weights  # one network for each entry of shots
    activation: Activation = "selu"

    def of_k(self, k: int) -> Weights:
        """Return the network for one k, M = 1."""
        return self.weights.take(torch.tensor([self.shots.index(k)]))


@dataclass(frozen=True, eq=False)
class SampleSets:
    """Codes and gaze of n samples for each of D tasks, calibrations or people."""

    code: Tensor  # (D, n, F)
    gaze: Tensor  # (D, n, 3) unit vectors

    def one_per_model(self) -> "ModelSamples":
        """Return all samples of each set, for one model per set: M = D."""
        sets, n = self.code.shape[:2]
        return self.for_models(torch.arange(sets), n)

    def for_models(self, row: Tensor, count: Tensor | int) -> "ModelSamples":
        """Return the first count samples of set row[m] for each model m; row is (M,), count is (M,) or one number."""
        count = torch.as_tensor(count).expand(len(row)).contiguous()
        return ModelSamples(self.code.contiguous(), self.gaze.contiguous(), row, count)


class ModelSamples(NamedTuple):
    """The samples of M models: the first count[m] samples of set row[m], weighted equally in the mean angle."""

    code: Tensor  # (D, n, F)
    gaze: Tensor  # (D, n, 3)
    row: Tensor  # (M,) int64
    count: Tensor  # (M,) int64

    def of_models(self, models: slice | Tensor) -> "ModelSamples":
        """Select some of the models."""
        return self._replace(row=self.row[models].contiguous(), count=self.count[models].contiguous())


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
    layers = {name: torch.from_numpy(array).to(torch.float32) for name, array in arrays.items()}
    return Weights(
        layers["gaze1.weight"].T[None].contiguous(),
        layers["gaze1.bias"][None, None],
        layers["gaze2.weight"].T[None].contiguous(),
        layers["gaze2.bias"][None, None],
    )


def gaze_vector(weights: Sequence[Tensor], code: Tensor, activation: Activation) -> Tensor:
    """Compute gaze directions without normalising them: Weights and code (M, n, F) -> (M, n, 3)."""
    hidden_weight, hidden_bias, output_weight, output_bias = weights
    hidden = torch.baddbmm(hidden_bias, code, hidden_weight)
    hidden = torch.selu(hidden) if activation == "selu" else torch.relu(hidden)
    return torch.baddbmm(output_bias, hidden, output_weight)


def gaze_of(weights: Weights, code: Tensor, activation: Activation) -> NDArray[np.float64]:
    """Compute gaze as unit vectors: Weights and code (M, n, F) -> (M, n, 3)."""
    vector = gaze_vector(weights, code, activation).double().numpy()
    return vector / np.linalg.norm(vector, axis=-1, keepdims=True)
