"""CUDA graphs: a step's kernels are captured once and then launched together, without Python in between.

A graph repeats what it has seen: the same shapes, the same addresses, the same numbers from Python. So batches are
copied to where the captured one lay, and loss weights, learning rates and the loss scale live on the device.
https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

import contextlib
import functools
import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from faze.config.parameters import Engine
from faze.engine.step import Clock, Launch, Step, at_once, no_clock
from faze.engine.switches import Switch

# Ordinary steps before the capture: they pick algorithms, make the optimiser's state, and DistributedDataParallel sorts
# its buckets after the first and takes the time of the first ten.
WARM_UP, WARM_UP_DDP = 2, 11


@dataclass(frozen=True)
class Launching:
    """How the kernels of a step come to the device."""

    launch: Launch
    stream: Callable[[], contextlib.AbstractContextManager]  # on which DistributedDataParallel is to be made
    settling_steps: int  # see Step
    switch: Switch


def hold_rates(optimizer: torch.optim.Optimizer) -> None:
    """Move the learning rates of torch's fused kernels, which can read them there, to the device."""
    for group in optimizer.param_groups:
        if group.get("fused"):
            group["lr"] = torch.tensor(float(group["lr"]), dtype=torch.float32, device=group["params"][0].device)


def build_launching(engine: Engine, optimizer: torch.optim.Optimizer, replicas: int, device: torch.device) -> Launching:
    """Choose between launching kernel by kernel and a captured graph."""
    reason = "DataParallel copies the model to its devices in every step" if replicas > 1 else ""
    reason = reason if device.type == "cuda" else "CUDA graphs belong to CUDA devices"
    switch = Switch.of("graphs", engine.graphs, reason)
    if not engine.graphs or reason:
        return Launching(at_once, contextlib.nullcontext, 0, switch)
    whole = all(map(_is_capturable, optimizer.param_groups))
    warm_up, stream = WARM_UP_DDP if engine.parallel == "ddp" else WARM_UP, torch.cuda.Stream(device)
    acted = "the whole step" if whole else "forward and backward; the optimiser takes its numbers from Python"
    launch = Graph(stream, warm_up=warm_up, whole=whole)
    return Launching(launch, functools.partial(on_stream, stream), warm_up + 1, replace(switch, acted=acted))


def _is_capturable(group: Mapping[str, object]) -> bool:
    """Whether the optimiser finds learning rate, step count and overflow of this group on the device."""
    return bool(group.get("fused")) and isinstance(group["lr"], Tensor) and bool(group.get("capturable", True))


_launching: "weakref.WeakSet[Graph]" = weakref.WeakSet()  # all graphs of this process


def drop_captured() -> None:
    """Destroy what has been captured: NCCL, before it ends, waits for graphs that hold its kernels."""
    for graph in list(_launching):
        graph.drop()


class Graph:
    """Launches the first steps kernel by kernel, captures the next one, and replays it from then on.

    Args:
        stream: of all that it launches. Gradients remember the stream they were first made on, and libraries keep
            workspaces per stream: what is captured on one must have been warmed up on it.
        warm_up: steps before the capture.
        whole: the optimiser is part of the graph.
    """

    def __init__(self, stream: torch.cuda.Stream, *, warm_up: int, whole: bool) -> None:
        self._stream = stream
        self._warm_up_left = warm_up
        self._whole = whole
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: dict[str, Tensor] = {}
        self._weights: Mapping[str, Tensor] = {}
        self._terms: dict[str, Tensor] = {}
        _launching.add(self)

    def drop(self) -> None:
        """Destroy the graph, once the device is done with it; the next step would be captured anew."""
        if self._graph is not None:
            self._stream.synchronize()
            self._graph.reset()
            self._graph, self._batch, self._terms = None, {}, {}

    def __call__(
        self, step: Step, batch: Mapping[str, Tensor], weights: Mapping[str, Tensor], clock: Clock
    ) -> dict[str, Tensor]:
        """Train on one batch.

        Raises:
            ValueError: its tensors have other names or shapes than those captured.
        """
        with on_stream(self._stream):
            return self._launch(step, batch, weights, clock)

    def _launch(
        self, step: Step, batch: Mapping[str, Tensor], weights: Mapping[str, Tensor], clock: Clock
    ) -> dict[str, Tensor]:
        if self._warm_up_left:
            self._warm_up_left -= 1
            return at_once(step, batch, weights, clock)
        if self._graph is None:
            self._graph = self._capture(step, batch, weights)
        self._check(batch, weights)
        with clock("graph"):
            for name, value in batch.items():
                self._batch[name].copy_(value)
            self._graph.replay()
        if not self._whole:
            with clock("optimizer"):
                step.update()
        return {name: term.clone() for name, term in self._terms.items()}  # the next replay writes over its own

    def _capture(self, step: Step, batch: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> torch.cuda.CUDAGraph:
        self._batch, self._weights = {name: value.clone() for name, value in batch.items()}, weights
        if not self._whole:
            # Without gradients before it, the backward pass makes its own and each replay writes them anew; so nobody
            # need clear them, and nobody may: the optimiser would no longer find what the graph writes.
            step.optimizer.zero_grad(set_to_none=True)
        launch = at_once if self._whole else Step.add_gradients
        graph, self._terms = record(self._stream, lambda: launch(step, self._batch, weights, no_clock))
        return graph

    def _check(self, batch: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        shapes = {name: tuple(value.shape) for name, value in batch.items()}
        captured = {name: tuple(value.shape) for name, value in self._batch.items()}
        if shapes != captured:
            raise ValueError(f"engine.graphs: a batch of {shapes} after the graph was captured with {captured}")
        if weights is not self._weights:
            raise ValueError("engine.graphs: the loss has other terms than when the graph was captured")


@contextlib.contextmanager
def on_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    """Launch on this stream, after all that the surrounding one has been given and before all that it will be given."""
    around = torch.cuda.current_stream(stream.device)
    stream.wait_stream(around)
    with torch.cuda.stream(stream):
        yield
    around.wait_stream(stream)


def record(
    stream: torch.cuda.Stream, launch: Callable[[], dict[str, Tensor]]
) -> tuple[torch.cuda.CUDAGraph, dict[str, Tensor]]:
    """Capture kernels without running them; return the graph, and the tensors that each replay fills."""
    gc.collect()  # now: a dead cycle that is collected amid the capture would free what is of another stream
    graph = torch.cuda.CUDAGraph()
    # thread_local: loader threads may lock pages meanwhile, which the default takes for an error.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        terms = launch()
    return graph, terms
