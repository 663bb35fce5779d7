"""Gaze networks that are adapted in batches: gaze code -> hidden layer (SELU or ReLU) -> 3-vector. Paper section 3.2.

The parameters of M networks are the rows of a tensor. The gradient of each network's mean angle over its own samples
has two implementations: kernel.c, for float32 on a CPU, and autograd. Autograd differentiates the sum of all mean
angles, so each network gets its own gradient. The results agree up to rounding, but kernel.c is several times as fast.

Shapes: M networks, n samples of a network, F inputs, H hidden units, S = H (F + 4) + 3 parameters.
"""

import ctypes
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.data.codes import GAZE_HEAD
from faze.model.losses import angle_deg
from faze.native.compiled import library

Activation = Literal["selu", "relu"]  # selu for random initial networks, relu for the trained gaze head
KERNEL = library("fewshot/kernel.c")  # None if it is not compiled
DEVICE = torch.device("cuda" if KERNEL is None and torch.cuda.is_available() else "cpu")
NETWORKS_PER_CALL = 32 if KERNEL else 512  # few enough to keep all threads busy, many enough to outweigh a call's cost
PARTS = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")


class Samples(NamedTuple):
    """The samples of M networks, weighted equally in the mean angle. Network m uses only its first count[m] samples."""

    code: Tensor  # (M, n, F)
    gaze: Tensor  # (M, n, 3) unit vectors
    count: Tensor  # (M,) int64


def pack(state: Mapping[str, Tensor]) -> Tensor:
    """Join hidden_weight (M, F, H), hidden_bias (M, 1, H), output_weight (M, H, 3), output_bias (M, 1, 3) to (M, S)."""
    parts = {**state, "output_weight": state["output_weight"].mT}
    return torch.cat([parts[name].flatten(1) for name in PARTS], dim=1)


def unpack(networks: Tensor, inputs: int) -> dict[str, Tensor]:
    """Split the rows (M, S) of networks with F inputs into the parts that `pack` joined."""
    hidden = (networks.shape[1] - 3) // (inputs + 4)
    first, bias, second, last = networks.split([inputs * hidden, hidden, 3 * hidden, 3], dim=1)
    parts = (first.unflatten(1, (inputs, hidden)), bias[:, None], second.unflatten(1, (3, hidden)).mT, last[:, None])
    return dict(zip(PARTS, parts, strict=True))


def random_network(inputs: int, hidden: int, seed: int) -> dict[str, Tensor]:
    """Draw the parts of one network (M = 1): normal weights with variance 1 / fan-in and zero biases, as SELU requires.

    With torch's default weights, outputs would be 0.4 times as long, so learning rates would have six times the effect.
    """
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(1, n, m, generator=generator) / n**0.5 for n, m in ((inputs, hidden), (hidden, 3)))
    return dict(zip(PARTS, (first, torch.zeros(1, 1, hidden), second, torch.zeros(1, 1, 3)), strict=True))


def gaze_head_network(arrays: Mapping[str, NDArray]) -> dict[str, Tensor]:
    """Build the parts of the trained gaze head (M = 1) from its weights and biases in a code store."""
    first, bias, second, last = (torch.from_numpy(arrays[name]).float()[None] for name in GAZE_HEAD)
    return dict(zip(PARTS, (first.mT, bias[None], second.mT, last[None]), strict=True))


def gaze_vector(networks: Tensor, code: Tensor, activation: Activation) -> Tensor:
    """Compute unnormalised gaze directions: code (M, n, F) -> (M, n, 3)."""
    hidden_weight, hidden_bias, output_weight, output_bias = unpack(networks, code.shape[-1]).values()
    hidden = torch.baddbmm(hidden_bias, code, hidden_weight)
    hidden = torch.selu(hidden) if activation == "selu" else torch.relu(hidden)
    return torch.baddbmm(output_bias, hidden, output_weight)


def mean_angle_deg(networks: Tensor, samples: Samples, activation: Activation) -> Tensor:
    """Compute each network's mean angle (M,) in degrees, which does not depend on the length of the output."""
    vector = gaze_vector(networks, samples.code, activation)
    is_used = torch.arange(vector.shape[1], device=vector.device) < samples.count[:, None]
    return (angle_deg(vector, samples.gaze) * is_used).sum(-1) / samples.count


def gradient(
    networks: Tensor, samples: Samples, activation: Activation, direction: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the gradient (M, S) of each mean angle, and the mean angles (M,) in degrees.

    If a direction (M, S) is given, compute its product with the Hessian of each mean angle instead of the gradient.
    """
    if is_compiled(networks):
        out, degrees = torch.zeros_like(networks), torch.zeros(len(networks))
        _call("gradient", samples, activation, networks, direction, out, degrees)
        return out, degrees
    networks = networks.detach().requires_grad_()
    degrees = mean_angle_deg(networks, samples, activation)
    [found] = torch.autograd.grad(degrees.sum(), networks, create_graph=direction is not None)
    if direction is not None:
        [found] = torch.autograd.grad(found, networks, direction)
    return found, degrees.detach()


def sgd(networks: Tensor, samples: Samples, activation: Activation, steps: int, rate: float) -> Tensor:
    """Take full-batch SGD steps on each mean angle, with a learning rate per degree; return the new networks."""
    if is_compiled(networks):
        networks = networks.clone()
        _call("sgd", samples, activation, networks, ctypes.c_float(rate), ctypes.c_int64(steps))
        return networks
    for _ in range(steps):
        networks = networks - rate * gradient(networks, samples, activation)[0]
    return networks


def is_compiled(networks: Tensor) -> bool:
    """Return whether kernel.c handles these networks."""
    return KERNEL is not None and networks.dtype == torch.float32 and networks.device.type == "cpu"


def _call(name: str, samples: Samples, activation: Activation, networks: Tensor, *more: object) -> None:
    """Call a function of kernel.c without the GIL, after checking the shapes, which kernel.c does not check."""
    models, n, inputs = samples.code.shape
    hidden = (networks.shape[1] - 3) // (inputs + 4)
    tensors = [one for one in (*samples, networks, *more) if isinstance(one, Tensor)]
    assert networks.shape == (models, hidden * (inputs + 4) + 3) and samples.code.dtype == networks.dtype
    assert all(tensor.is_contiguous() for tensor in tensors)
    words = (*(tensor.data_ptr() for tensor in samples), models, n, inputs, hidden, activation == "relu")
    passed = (ctypes.c_void_p(one.data_ptr()) if isinstance(one, Tensor) else one for one in (networks, *more))
    getattr(KERNEL, name)((ctypes.c_int64 * len(words))(*words), *passed)  # kernel.c's `samples` is eight such words
