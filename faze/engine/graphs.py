"""CUDA graphs: a step's kernels are captured once and then launched together, without Python in between.

A graph replays exactly what was captured, with the same shapes, addresses and Python numbers. Therefore, batches are
copied to the captured addresses, and loss weights, learning rates and the loss scale are tensors on the device.
https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from faze.config.parameters import Engine
from faze.engine.step import Clock, Step, Update, launch_eagerly, no_clock
from faze.engine.switches import Switch

# Number of eager steps before the capture. In these, algorithms are chosen and the optimiser's state is created.
# DistributedDataParallel also rebuilds its buckets after the first step and times the first ten steps.
WARM_UP, WARM_UP_DDP = 2, 11


def build_graph(
    engine: Engine, updates: Sequence[Update], replicas: int, device: torch.device
) -> tuple["Graph | None", Switch]:
    """Return the launcher of a captured graph, or None for eager launches, and the report on the switch `graphs`."""
    reason = "" if device.type == "cuda" else "CUDA graphs need a CUDA device"
    reason = "DataParallel copies the model to its devices in every step" if replicas > 1 else reason
    switch = Switch.of("graphs", engine.graphs, reason)
    if not engine.graphs or reason:
        return None, switch
    whole = all(_is_capturable(group) for update in updates for group in update.optimizer.param_groups)
    warm_up = WARM_UP_DDP if engine.parallel == "ddp" else WARM_UP
    acted = "the whole step" if whole else "forward and backward; the optimiser runs outside the graph"
    return Graph(torch.cuda.Stream(device), warm_up=warm_up, whole=whole), replace(switch, acted=acted)


def _is_capturable(group: Mapping[str, object]) -> bool:
    """Return whether the optimiser reads this group's learning rate, step count and overflow flag from the device."""
    return bool(group.get("fused")) and isinstance(group["lr"], Tensor) and bool(group.get("capturable", True))


_graphs: "weakref.WeakSet[Graph]" = weakref.WeakSet()  # all graphs of this process


def drop_captured() -> None:
    """Destroy all captured graphs, because NCCL waits at shutdown for graphs that contain its kernels."""
    for graph in list(_graphs):
        graph.drop()


class Graph:
    """A launcher that runs the first steps eagerly, captures the next one, and replays it from then on.

    Gradients remember the stream on which they were created, and libraries keep workspaces per stream, so warm-up and
    capture use the same stream. If `whole` is true, the optimiser is part of the graph.
    """

    def __init__(self, stream: torch.cuda.Stream, *, warm_up: int, whole: bool) -> None:
        self.stream, self._warm_up_left, self._whole = stream, warm_up, whole
        self.settling_steps = warm_up + 1  # see Step
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch, self._weights, self._terms = {}, {}, {}
        _graphs.add(self)

    def drop(self) -> None:
        """Wait for the device and destroy the graph; a later step would capture a new one."""
        if self._graph is not None:
            self.stream.synchronize()
            self._graph.reset()
            self._graph, self._batch, self._terms = None, {}, {}

    def __call__(
        self, step: Step, batch: Mapping[str, Tensor], weights: Mapping[str, Tensor], clock: Clock
    ) -> dict[str, Tensor]:
        """Train on one batch; return the loss terms and `loss`."""
        with on_stream(self.stream):
            if self._warm_up_left:
                self._warm_up_left -= 1
                return launch_eagerly(step, batch, weights, clock)
            if self._graph is None:
                self._capture(step, batch, weights)
            if _shapes(batch) != _shapes(self._batch) or weights is not self._weights:
                raise ValueError("engine.graphs: the shapes or loss terms of this batch differ from the captured ones")
            with clock("graph"):
                for name, value in batch.items():
                    self._batch[name].copy_(value)
                self._graph.replay()
            if not self._whole:
                with clock("optimizer"):
                    step.update()
            return {name: term.clone() for name, term in self._terms.items()}  # replays overwrite the originals

    def _capture(self, step: Step, batch: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        self._batch, self._weights = {name: value.clone() for name, value in batch.items()}, weights
        if not self._whole:
            # If there are no gradients yet, the captured backward pass creates them and each replay overwrites them.
            # They must not be cleared after that, or the optimiser would no longer see what the graph writes.
            for update in step.updates:
                update.optimizer.zero_grad(set_to_none=True)
        launch = launch_eagerly if self._whole else Step.add_gradients
        self._graph, self._terms = record(self.stream, lambda: launch(step, self._batch, weights, no_clock))


def _shapes(batch: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in batch.items()}


@contextlib.contextmanager
def on_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    """Launch kernels on a stream, after all earlier work and before all later work on the current stream."""
    surrounding = torch.cuda.current_stream(stream.device)
    stream.wait_stream(surrounding)
    with torch.cuda.stream(stream):
        yield
    surrounding.wait_stream(stream)


def record(
    stream: torch.cuda.Stream, launch: Callable[[], dict[str, Tensor]]
) -> tuple[torch.cuda.CUDAGraph, dict[str, Tensor]]:
    """Capture kernels without running them; return the graph and the tensors that each replay fills."""
    gc.collect()  # a reference cycle collected during the capture would free another stream's memory
    graph = torch.cuda.CUDAGraph()
    # thread_local, because loader threads may pin pages during the capture; the default mode would raise an error.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        terms = launch()
    return graph, terms
