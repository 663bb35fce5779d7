"""The mean angle of many gaze networks, each with its own samples: its derivatives, and SGD. Paper section 3.2.

Networks are rows of parameters, as Weights.pack writes them. There are two implementations: kernel.c, which processes
one network after the other on a CPU, and autograd of the sum of all mean angles, which gives each network its own
gradient. Their results are the same up to rounding, and kernel.c is several times as fast on a CPU.

Shapes: M networks, n samples of a network, F inputs, S parameters.
"""

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from faze.fewshot.mlp import Activation, Weights, gaze_vector
from faze.model.losses import angle_deg
from faze.native.compiled import library


class Samples(NamedTuple):
    """The samples of M networks, weighted equally in the mean angle; those beyond count[m] are ignored."""

    code: Tensor  # (M, n, F)
    gaze: Tensor  # (M, n, 3) unit vectors
    count: Tensor  # (M,) int64


class AutogradKernel:
    """The computation in torch, for any dtype, on a GPU if there is one."""

    networks_per_call = 512

    def __init__(self, inputs: int, hidden: int, activation: Activation) -> None:
        self._inputs, self._hidden, self._activation = inputs, hidden, activation
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def mean_angle_deg(self, networks: Tensor, samples: Samples) -> Tensor:
        """Compute the mean angle of each network, in degrees: (M, S) -> (M,)."""
        vector = gaze_vector(Weights.unpack(networks, self._inputs), samples.code, self._activation)
        is_used = torch.arange(vector.shape[1], device=vector.device) < samples.count[:, None]
        return (angle_deg(vector, samples.gaze) * is_used).sum(-1) / samples.count

    def gradient(self, networks: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        """Compute the gradient of each mean angle (M, S), and the mean angles (M,) in degrees."""
        networks = networks.detach().requires_grad_()
        degrees = self.mean_angle_deg(networks, samples)
        return torch.autograd.grad(degrees.sum(), networks)[0], degrees.detach()

    def hessian_product(self, networks: Tensor, samples: Samples, direction: Tensor) -> Tensor:
        """Multiply the Hessian of each mean angle by a direction (M, S): (M, S)."""
        networks = networks.detach().requires_grad_()
        total = self.mean_angle_deg(networks, samples).sum()
        return torch.autograd.grad(torch.autograd.grad(total, networks, create_graph=True), networks, direction)[0]

    def sgd(self, networks: Tensor, samples: Samples, *, steps: int, rate: float) -> Tensor:
        """Take full-batch steps of SGD on each mean angle; `rate` is per degree."""
        for _ in range(steps):
            networks = networks - rate * self.gradient(networks, samples)[0]
        return networks


class _Batch(ctypes.Structure):  # `samples` of kernel.c
    _fields_ = [(name, ctypes.c_void_p) for name in Samples._fields]
    _fields_ += [(name, ctypes.c_int64) for name in ("M", "n", "inputs", "hidden", "relu")]


class CompiledKernel(AutogradKernel):
    """The same in kernel.c, for float32 on a CPU. Calls release the GIL."""

    networks_per_call = 32  # few enough to keep all threads busy, many enough to outweigh the cost of a call

    def __init__(self, code: ctypes.CDLL, inputs: int, hidden: int, activation: Activation) -> None:
        super().__init__(inputs, hidden, activation)
        self._code, self.device = code, torch.device("cpu")

    def gradient(self, networks: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        """See AutogradKernel."""
        out, degrees = torch.zeros_like(networks), torch.zeros(len(networks))
        self._call("gradient", samples, networks, out, degrees)
        return out, degrees

    def hessian_product(self, networks: Tensor, samples: Samples, direction: Tensor) -> Tensor:
        """See AutogradKernel."""
        out = torch.zeros_like(networks)
        self._call("hessian_product", samples, networks, direction, out)
        return out

    def sgd(self, networks: Tensor, samples: Samples, *, steps: int, rate: float) -> Tensor:
        """See AutogradKernel."""
        out = networks.clone()
        self._call("sgd", samples, out, ctypes.c_float(rate), ctypes.c_int64(steps))
        return out

    def _call(self, function: str, samples: Samples, networks: Tensor, *more: Tensor | ctypes._SimpleCData) -> None:
        parameters = self._hidden * (self._inputs + 4) + 3
        models, n, inputs = samples.code.shape
        assert networks.shape == (models, parameters) and inputs == self._inputs
        batch = _Batch(*map(_pointer, samples), models, n, inputs, self._hidden, self._activation == "relu")
        passed = [_pointer(one) if isinstance(one, Tensor) else one for one in (networks, *more)]
        getattr(self._code, function)(ctypes.byref(batch), *passed)


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    assert tensor.is_contiguous() and tensor.dtype in (torch.float32, torch.int64)
    return ctypes.c_void_p(tensor.data_ptr())


def kernel_for(weights: Weights, activation: Activation) -> AutogradKernel:
    """Return the compiled kernel for float32 if there is one, else autograd."""
    _, inputs, hidden = weights.hidden_weight.shape
    code = library("fewshot/kernel.c") if weights.hidden_weight.dtype == torch.float32 else None
    return CompiledKernel(code, inputs, hidden, activation) if code else AutogradKernel(inputs, hidden, activation)
