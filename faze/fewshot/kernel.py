"""Adaptation of many gaze networks at once: SGD on each network's own k samples. Paper section 3.2.

Learning needs the value of the mean angle, its gradient, and the product of its Hessian with a direction. They are
implemented by hand, twice: in kernel.c, which processes one model after the other, and in torch, as batched products
over chunks of models that fit in a core's cache. `kernel_for` chooses kernel.c if it is compiled: its results are the
same up to rounding, and it is several times as fast. Chunks run on threads, and each operation uses one thread, so
results do not depend on the number of threads.

Shapes: M models, D sets of n samples, F inputs, H hidden units.
"""

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from faze.fewshot.mlp import Activation, ModelSamples, SampleSets, Weights, gaze_vector, map_weights
from faze.model.losses import angle_deg
from faze.native.compiled import library

CACHE_BYTES = 2**20
_DEGREES = 180.0 / torch.pi
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


class TorchKernel:
    """SGD and derivatives of the mean angle of M networks, each with its own samples, in torch for any dtype."""

    def __init__(self, inputs: int, hidden: int, activation: Activation) -> None:
        self._activation = activation
        parameters, samples = hidden * (inputs + 4) + 3, 18
        # Each thread has one chunk; the hidden layer has values, slopes and two gradients.
        self.models_per_chunk = max(1, CACHE_BYTES // (4 * (parameters + 4 * samples * hidden)))

    @torch.no_grad()
    def sgd_(self, weights: Weights, samples: ModelSamples, *, steps: int, rate: float) -> None:
        """Update the weights in place by full-batch SGD on the mean angle (degrees)."""
        laid_out = _laid_out(samples)
        for _ in range(steps):
            for parameter, gradient in zip(weights, self._gradient(weights, *laid_out), strict=True):
                parameter.sub_(gradient.mul_(rate))

    @torch.no_grad()
    def gradient(self, weights: Weights, samples: ModelSamples) -> tuple[Weights, Tensor]:
        """Compute the gradient of each model's mean angle, and the mean angles (M,) in degrees."""
        laid_out = _laid_out(samples)
        return self._gradient(weights, *laid_out), self._mean_angle_deg(weights, *laid_out)

    def hessian_product(self, weights: Weights, samples: ModelSamples, direction: Weights) -> Weights:
        """Multiply the Hessian of each model's mean angle by a direction, using forward-mode differentiation."""
        laid_out = _laid_out(samples)
        with torch.enable_grad():  # forward-mode differentiation needs it, too
            _, product = torch.func.jvp(
                lambda *parameters: tuple(self._gradient(parameters, *laid_out)), tuple(weights), tuple(direction)
            )
        return Weights(*product)

    @torch.no_grad()
    def mean_angle_deg(self, weights: Weights, samples: ModelSamples) -> Tensor:
        """Compute the mean angle of each model: (M,) in degrees, float64."""
        return self._mean_angle_deg(weights, *_laid_out(samples)).double()

    def _mean_angle_deg(self, weights: Weights, code: Tensor, gaze: Tensor, share: Tensor) -> Tensor:
        return (angle_deg(gaze_vector(weights, code, self._activation), gaze) * share).sum(-1)

    def _gradient(self, weights: Sequence[Tensor], code: Tensor, gaze: Tensor, share: Tensor) -> Weights:
        hidden_weight, hidden_bias, output_weight, output_bias = weights
        hidden = torch.baddbmm(hidden_bias, code, hidden_weight)  # (M, n, H)
        if self._activation == "selu":
            hidden = torch.selu(hidden)
            # SELU's slope from its value: scale where it is positive, value + scale * alpha elsewhere.
            slope = torch.where(hidden > 0, _SELU_SCALE, hidden + _SELU_SCALE * _SELU_ALPHA)
        else:
            hidden = torch.relu(hidden)
            slope = (hidden > 0).to(hidden.dtype)
        vector = torch.baddbmm(output_bias, hidden, output_weight)  # (M, n, 3)
        by_vector = _angle_gradient(vector, gaze) * share[..., None]
        by_input = torch.bmm(by_vector, output_weight.mT) * slope  # (M, n, H)
        return Weights(
            torch.bmm(code.mT, by_input),
            by_input.sum(1, keepdim=True),
            torch.bmm(hidden.mT, by_vector),
            by_vector.sum(1, keepdim=True),
        )


def _laid_out(samples: ModelSamples) -> tuple[Tensor, Tensor, Tensor]:
    """Gather code (M, n, F), gaze (M, n, 3) and weights (M, n): 1 / count for the first `count` samples, else 0."""
    first = torch.arange(samples.code.shape[1]) < samples.count[:, None]
    share = first.to(samples.code.dtype) / samples.count[:, None]
    return samples.code[samples.row], samples.gaze[samples.row], share


def _angle_gradient(vector: Tensor, gaze: Tensor) -> Tensor:
    """Differentiate the angle in degrees with respect to a vector of any length: (..., 3), which is 0 at angle 0.

    The derivative points away from gaze along the sphere; its magnitude is one over the vector's length.
    """
    squared = (vector * vector).sum(-1, keepdim=True)
    away = (vector * gaze).sum(-1, keepdim=True) / squared * vector - gaze
    squared = (away * away).sum(-1, keepdim=True) * squared
    # The derivative of the root is infinite at 0, and would turn the product into NaN.
    return away * torch.where(squared == 0, 0.0, _DEGREES / torch.where(squared == 0, 1.0, squared).sqrt())


class _Sizes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("inputs", "hidden", "relu", "padded")]  # kernel.c computes the last


class _Tensors(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in Weights._fields]


class _Samples(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_void_p) for name in ModelSamples._fields), ("n", ctypes.c_int64)]


class CompiledKernel:
    """The methods of TorchKernel in kernel.c: float32 on a CPU. Calls release the GIL."""

    models_per_chunk = 32  # few enough to keep all threads busy, many enough to outweigh the cost of a call

    def __init__(self, code: ctypes.CDLL, inputs: int, hidden: int, activation: Activation) -> None:
        self._code, self._sizes = code, _Sizes(inputs, hidden, activation == "relu")

    def sgd_(self, weights: Weights, samples: ModelSamples, *, steps: int, rate: float) -> None:
        """See TorchKernel."""
        self._call("sgd", samples, weights, ctypes.c_float(rate), ctypes.c_int64(steps))

    def gradient(self, weights: Weights, samples: ModelSamples) -> tuple[Weights, Tensor]:
        """See TorchKernel."""
        out, degrees = map_weights(torch.empty_like, weights), torch.empty(len(samples.row))
        self._call("gradient", samples, weights, out, ctypes.c_void_p(degrees.data_ptr()))
        return out, degrees

    def hessian_product(self, weights: Weights, samples: ModelSamples, direction: Weights) -> Weights:
        """See TorchKernel."""
        out = map_weights(torch.empty_like, weights)
        self._call("hessian_product", samples, weights, direction, out)
        return out

    def mean_angle_deg(self, weights: Weights, samples: ModelSamples) -> Tensor:
        """See TorchKernel."""
        degrees = torch.empty(len(samples.row), dtype=torch.float64)
        self._call("mean_angle", samples, weights, ctypes.c_void_p(degrees.data_ptr()))
        return degrees

    def _call(self, function: str, samples: ModelSamples, *arguments: Weights | ctypes._SimpleCData) -> None:
        models, inputs, hidden = arguments[0].hidden_weight.shape
        assert (inputs, hidden) == (self._sizes.inputs, self._sizes.hidden)
        assert len(samples.row) == len(samples.count) == models
        assert samples.code.shape[2] == inputs
        assert samples.row.dtype == samples.count.dtype == torch.int64
        pointers = _Samples(*map(_pointer, samples), samples.code.shape[1])
        passed = [ctypes.byref(_Tensors(*map(_pointer, a))) if isinstance(a, Weights) else a for a in arguments]
        sizes = ctypes.byref(self._sizes)
        getattr(self._code, function)(sizes, ctypes.c_int64(models), ctypes.byref(pointers), *passed)


def _pointer(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    assert tensor.dtype in (torch.float32, torch.int64)
    return tensor.data_ptr()


Kernel = TorchKernel | CompiledKernel


def kernel_for(weights: Weights, activation: Activation) -> Kernel:
    """Return the compiled kernel for float32 if there is one, else the torch kernel."""
    _, inputs, hidden = weights.hidden_weight.shape
    if weights.hidden_weight.dtype == torch.float32:
        code = library("fewshot/kernel.c")
        if code is not None:
            return CompiledKernel(code, inputs, hidden, activation)
    return TorchKernel(inputs, hidden, activation)


def adapt(
    initial: Weights,
    activation: Activation,
    support: SampleSets,
    query: ModelSamples,
    *,
    steps: int,
    rate: float,
    threads: int,
) -> Iterator[tuple[Tensor, Weights, Tensor]]:
    """Adapt one network to each of M calibrations by SGD, and measure the errors before and after.

    Args:
        initial: the network from which every calibration starts (1, ...).
        activation: that of the network.
        support: (M, n, ...), the samples of each calibration.
        query: the samples on which the error of each calibration is measured.
        steps: number of steps.
        rate: learning rate, per degree.
        threads: number of chunks that are processed at once.

    Yields:
        Indices (m,) of a chunk's calibrations in order, their adapted networks, and the mean angles (m, 2), in float64
        degrees, before the first and after the last step.
    """
    kernel, samples = kernel_for(initial, activation), support.one_per_model()

    def work(chunk: Tensor) -> tuple[Tensor, Weights, Tensor]:
        weights, of_query = initial.take(torch.zeros_like(chunk)), query.of_models(chunk)
        before = kernel.mean_angle_deg(weights, of_query)
        kernel.sgd_(weights, samples.of_models(chunk), steps=steps, rate=rate)
        return chunk, weights, torch.stack([before, kernel.mean_angle_deg(weights, of_query)], dim=1)

    chunks = torch.arange(len(support.code)).split(kernel.models_per_chunk)
    # OpenMP has a setting for each thread. Without this, every product in the pool would start a spinning team.
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    with single_threaded_operations(), pool:
        yield from pool.map(work, chunks)


@contextlib.contextmanager
def single_threaded_operations() -> Iterator[None]:
    """Use one thread per torch operation within the context; on small tensors, additional threads would only spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
