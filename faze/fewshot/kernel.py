"""Adaptation of many gaze networks at once: SGD on each one's own k samples. Paper section 3.2.

Everything that is learnt here follows from three things about the mean angle: its gradient, its Hessian times a
direction, its value. They are written out by hand: in kernel.c, which goes from model to model, and here in torch, as
batched products of a chunk of models that stays in a core's cache. `kernel_for` takes the compiled one where it can
be had: the same numbers up to rounding, several times as fast. Chunks run on threads, each operation on one:
the result does not depend on the number of threads.

Shapes: M models, D sets of n samples, F inputs, H hidden units.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from faze.base.compiled import NativeError, say_once
from faze.fewshot.mlp import Activation, InitialNetwork, ModelSamples, SampleSets, Weights, gaze_vector, map_weights
from faze.fewshot.native import NativeKernel
from faze.model.losses import angle_deg

T = TypeVar("T")

CACHE_BYTES = 2**20
_DEGREES = 180.0 / torch.pi
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


class TorchKernel:
    """What can be asked about M networks and the samples that each sees; in torch's operations, for any dtype."""

    def __init__(self, inputs: int, hidden: int, activation: Activation) -> None:
        self._activation = activation
        parameters, samples = hidden * (inputs + 4) + 3, 18
        # For one thread at a time; of the hidden layer: value, slope and two gradients.
        self.models_per_chunk = max(1, CACHE_BYTES // (4 * (parameters + 4 * samples * hidden)))

    @torch.no_grad()
    def sgd_(self, weights: Weights, samples: ModelSamples, *, steps: int, rates: Weights) -> None:
        """Change the weights by full-batch SGD steps on the mean angle; rates (1, ...) per degree, by parameter."""
        assert len(rates.hidden_bias) == 1
        laid_out = _laid_out(samples)
        for _ in range(steps):
            for parameter, rate, gradient in zip(weights, rates, self._gradient(weights, *laid_out), strict=True):
                parameter.sub_(gradient.mul_(rate))

    @torch.no_grad()
    def gradient(self, weights: Weights, samples: ModelSamples) -> tuple[Weights, Tensor]:
        """Compute the gradient of each model's mean angle, and the mean angles (M,), degrees."""
        laid_out = _laid_out(samples)
        return self._gradient(weights, *laid_out), self._mean_angle_deg(weights, *laid_out)

    def hessian_product(self, weights: Weights, samples: ModelSamples, direction: Weights) -> Weights:
        """Multiply the Hessian of each model's mean angle by a direction: the gradient's derivative, forward."""
        laid_out = _laid_out(samples)
        with torch.enable_grad():  # which forward derivatives need, too
            _, product = torch.func.jvp(
                lambda *parameters: tuple(self._gradient(parameters, *laid_out)), tuple(weights), tuple(direction)
            )
        return Weights(*product)

    @torch.no_grad()
    def mean_angle_deg(self, weights: Weights, samples: ModelSamples) -> Tensor:
        """Compute the mean angle of each model, (M,) float64 degrees."""
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


Kernel = TorchKernel | NativeKernel


def _laid_out(samples: ModelSamples) -> tuple[Tensor, Tensor, Tensor]:
    """Lay out code (M, n, F), gaze (M, n, 3), and each sample's share (M, n): equal for the first count, else 0."""
    first = torch.arange(samples.code.shape[1]) < samples.count[:, None]
    share = first.to(samples.code.dtype) / samples.count[:, None]
    return samples.code[samples.row], samples.gaze[samples.row], share


def _angle_gradient(vector: Tensor, gaze: Tensor) -> Tensor:
    """Differentiate the angle in degrees by a vector of any length: (..., 3), 0 where vector and gaze coincide.

    It is minus the unit vector from the direction toward gaze along the sphere, over the vector's length.
    """
    squared = (vector * vector).sum(-1, keepdim=True)
    away = (vector * gaze).sum(-1, keepdim=True) / squared * vector - gaze
    squared = (away * away).sum(-1, keepdim=True) * squared
    # The root's derivative at 0 is infinite: it is kept out.
    return away * torch.where(squared == 0, 0.0, _DEGREES / torch.where(squared == 0, 1.0, squared).sqrt())


def kernel_for(weights: Weights, activation: Activation) -> Kernel:
    """Choose the compiled kernel for float32 where there is a compiler, else torch's, and say so once."""
    _, inputs, hidden = weights.hidden_weight.shape
    if weights.hidden_weight.dtype == torch.float32:
        try:
            return NativeKernel(inputs, hidden, activation)
        except NativeError as error:
            say_once(f"few-shot learning goes by torch, several times slower than compiled: {error}")
    return TorchKernel(inputs, hidden, activation)


def same_rates(lr: float, weights: Weights) -> Weights:
    """Give every parameter the same rate: rates (1, ...)."""
    return map_weights(lambda parameter: torch.full_like(parameter[:1], lr), weights)


def adapt(
    network: InitialNetwork,
    support: SampleSets,
    *,
    steps: Sequence[int],
    threads: int,
    query: ModelSamples | None = None,
) -> Iterator[tuple[Tensor, Weights, list[Tensor]]]:
    """Adapt one network to M calibrations; measure on the way, where there is a query.

    Args:
        network: from which each starts, with its rates.
        support: (M, n, ...), the samples of each calibration.
        steps: of SGD, ascending, after which to measure; the last ends the adaptation.
        threads: chunks at work at once.
        query: what each calibration is measured on.

    Yields:
        Positions (m,) of a chunk's calibrations in order, their adapted networks, and their mean angles (m,) after each
        of the steps, float64 degrees.
    """
    kernel, samples = kernel_for(network.weights, network.activation), support.one_per_model()

    def work(chunk: Tensor) -> tuple[Tensor, Weights, list[Tensor]]:
        weights, done, errors = network.weights.take(torch.zeros_like(chunk)), 0, []
        of_support, of_query = samples.of_models(chunk), query.of_models(chunk) if query else None
        for step in steps:
            kernel.sgd_(weights, of_support, steps=step - done, rates=network.rates)
            done = step
            if of_query:
                errors.append(kernel.mean_angle_deg(weights, of_query))
        return chunk, weights, errors

    yield from in_chunks(work, len(support.code), kernel, threads)


def in_chunks(work: Callable[[Tensor], T], models: int, kernel: Kernel, threads: int) -> Iterator[T]:
    """Call work with chunks of the models' positions, on threads; yield what it returns, in order."""
    chunks = torch.arange(models).split(kernel.models_per_chunk)
    # OpenMP keeps the number for each thread apart: unset in the pool's own, every product would start a spinning team.
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    with single_threaded_operations(), pool:
        yield from pool.map(work, chunks)


@contextlib.contextmanager
def single_threaded_operations() -> Iterator[None]:
    """Let each torch operation in the block use one thread: for small tensors the others only spin and wait."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
