"""kernel.c, compiled for these sizes where there is a C compiler: what torch computes several times as slowly."""

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from faze.base.compiled import NativeError, library
from faze.fewshot.mlp import Activation, ModelSamples, Weights, map_weights

SOURCE = Path(__file__).with_name("kernel.c")
# Sums may be reordered, as vectors need; NaN and infinity stay what they are.
FLAGS = ("-fno-signed-zeros", "-fassociative-math")


class _Tensors(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in Weights._fields]


class _Samples(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_void_p) for name in ModelSamples._fields), ("n", ctypes.c_int64)]


class NativeKernel:
    """What kernel.TorchKernel computes, by the compiled code: float32 on a CPU. Calls release Python's lock."""

    models_per_chunk = 32  # few enough to keep all threads busy, enough for a call to be worth its while

    def __init__(self, inputs: int, hidden: int, activation: Activation) -> None:
        """Compile, or load what was compiled before.

        Raises:
            NativeError: there is no compiler, or it fails.
        """
        self._sizes = (inputs, hidden)
        sizes = (f"-DF={inputs}", f"-DH={hidden}", f"-DRELU={int(activation == 'relu')}")
        compiled = library(SOURCE, "fewshot", (*FLAGS, *sizes))
        if isinstance(compiled, NativeError):
            raise compiled
        self._library = compiled

    def sgd_(self, weights: Weights, samples: ModelSamples, *, steps: int, rates: Weights) -> None:
        """As TorchKernel's."""
        assert len(rates.hidden_bias) == 1
        self._call("sgd", weights, samples, weights, rates, ctypes.c_int64(steps))

    def gradient(self, weights: Weights, samples: ModelSamples) -> tuple[Weights, Tensor]:
        """As TorchKernel's."""
        out, degrees = map_weights(torch.empty_like, weights), torch.empty(len(samples.row))
        self._call("gradient", weights, samples, weights, out, ctypes.c_void_p(degrees.data_ptr()))
        return out, degrees

    def hessian_product(self, weights: Weights, samples: ModelSamples, direction: Weights) -> Weights:
        """As TorchKernel's."""
        out = map_weights(torch.empty_like, weights)
        self._call("hessian_product", weights, samples, weights, direction, out)
        return out

    def mean_angle_deg(self, weights: Weights, samples: ModelSamples) -> Tensor:
        """As TorchKernel's."""
        degrees = torch.empty(len(samples.row), dtype=torch.float64)
        self._call("mean_angle", weights, samples, weights, ctypes.c_void_p(degrees.data_ptr()))
        return degrees

    def _call(self, function: str, of: Weights, samples: ModelSamples, *arguments: object) -> None:
        models, inputs, hidden = of.hidden_weight.shape
        assert (inputs, hidden) == self._sizes
        assert len(samples.row) == len(samples.count) == models
        assert samples.code.shape[2] == inputs
        assert samples.row.dtype == samples.count.dtype == torch.int64
        pointers = _Samples(*(_pointer(tensor) for tensor in samples), samples.code.shape[1])
        passed = [ctypes.byref(_Tensors(*map(_pointer, a))) if isinstance(a, Weights) else a for a in arguments]
        getattr(self._library, function)(ctypes.c_int64(models), ctypes.byref(pointers), *passed)


def _pointer(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    assert tensor.dtype in (torch.float32, torch.int64)
    return tensor.data_ptr()
