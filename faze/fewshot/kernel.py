"""Adaptation of many gaze networks at once: SGD on each one's own k samples. Paper section 3.2.

The gradient of the mean angle is written out by hand, so that a step is a dozen batched operations in place, and models
go through in chunks whose weights and activations stay in a core's cache: 1,080 models x 1,000 steps take 4 s on two
cores, one batch of everything twice that, model after model with autograd ten minutes. Chunks run on threads, each
operation on one: the result does not depend on the number of threads.

Shapes: M models, n samples of each, F inputs, H hidden units.
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from faze.fewshot.mlp import Batch, Weights

CACHE_BYTES = 2**20
_DEGREES = 180.0 / torch.pi
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def sgd_(weights: Weights, code: Tensor, gaze: Tensor, *, steps: int, lr: float) -> None:
    """Adapt M models in place by full-batch SGD steps on the mean angle in degrees.

    Args:
        weights: of M models; changed.
        code: (M, n, F).
        gaze: (M, n, 3) unit vectors.
        steps: of SGD.
        lr: its learning rate, per degree.
    """
    turned = code.mT.contiguous()  # (M, F, n)
    with torch.no_grad():
        for _ in range(steps):
            _step_(weights, code, turned, gaze, lr)


def _step_(weights: Weights, code: Tensor, turned: Tensor, gaze: Tensor, lr: float) -> None:
    hidden_weight, hidden_bias, output_weight, output_bias = weights
    hidden = torch.selu(torch.baddbmm(hidden_bias, code, hidden_weight))  # (M, n, H)
    vector = torch.baddbmm(output_bias, hidden, output_weight)  # (M, n, 3)
    by_vector = _angle_gradient(vector, gaze).div_(code.shape[1])
    # SELU's slope from its value: scale where it is positive, value + scale * alpha elsewhere.
    slope = torch.where(hidden > 0, _SELU_SCALE, hidden + _SELU_SCALE * _SELU_ALPHA)
    by_input = torch.bmm(by_vector, output_weight.mT).mul_(slope)  # (M, n, H)
    hidden_weight.baddbmm_(turned, by_input, alpha=-lr)
    hidden_bias.sub_(by_input.sum(1, keepdim=True), alpha=lr)
    output_weight.baddbmm_(hidden.mT, by_vector, alpha=-lr)
    output_bias.sub_(by_vector.sum(1, keepdim=True), alpha=lr)


def _angle_gradient(vector: Tensor, gaze: Tensor) -> Tensor:
    """Derivative of the angle in degrees by a vector of any length: (..., 3), 0 where vector and gaze coincide.

    It is minus the unit vector from the direction toward gaze along the sphere, over the vector's length.
    """
    squared = (vector * vector).sum(-1, keepdim=True)
    away = (vector * gaze).sum(-1, keepdim=True) / squared * vector - gaze
    length = ((away * away).sum(-1, keepdim=True) * squared).sqrt_()
    return away.mul_(torch.where(length > 0, _DEGREES / length, 0.0))


def adapt(initial: Weights, support: Batch, *, steps: int, lr: float, threads: int) -> Iterator[tuple[Tensor, Weights]]:
    """Adapt one network to M calibrations.

    Args:
        initial: one network (its M is 1).
        support: (M, n, ...), the samples of each calibration.
        steps: of SGD.
        lr: its learning rate, per degree.
        threads: chunks at work at once.

    Yields:
        Positions (m,) of a chunk's calibrations and their adapted networks, in order.
    """

    def work(chunk: Tensor) -> tuple[Tensor, Weights]:
        weights = initial.take(torch.zeros_like(chunk))
        sgd_(weights, support.code[chunk], support.gaze[chunk], steps=steps, lr=lr)
        return chunk, weights

    chunks = torch.arange(len(support.code)).split(_models_per_chunk(initial, samples=support.code.shape[1]))
    # OpenMP keeps the number for each thread apart: unset in the pool's own, every product would start a spinning team.
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    with single_threaded_operations(), pool:
        yield from pool.map(work, chunks)


def _models_per_chunk(weights: Weights, samples: int) -> int:
    numbers = sum(parameter[0].numel() for parameter in weights)
    numbers += 4 * samples * weights.hidden_bias.shape[-1]  # value, slope and two gradients of the hidden layer
    return max(1, CACHE_BYTES // (numbers * weights.hidden_bias.element_size()))


@contextlib.contextmanager
def single_threaded_operations() -> Iterator[None]:
    """A block in which each torch operation uses one thread: for small tensors the others only spin and wait."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
