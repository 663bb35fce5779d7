"""A step launched as one CUDA graph equals the step launched kernel by kernel.

Without a GPU, a stand-in runs the captured step at each replay and shows that the bookkeeping around a graph is right:
the memory for batches and numbers, the clearing of gradients, and the returned values. On a GPU, the graph itself is
tested.
"""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from trajectory import LOSS, learning_rates, moved_since, setup, tier, weights_of

from faze.benchmark.proof import distances
from faze.config.parameters import Engine
from faze.engine import graphs
from faze.engine.parallel import World
from faze.engine.step import Step
from faze.training.dted import loss_weights

CPU = World(0, 1, torch.device("cpu"))
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs and streams need a CUDA device")


def built(switches: Engine, world: World):
    chosen = setup(switches, world)
    return chosen.step, chosen.feed


def train(step: Step, feed, steps: int) -> list[dict[str, torch.Tensor]]:
    """Return the loss and terms of each step, all read at the end; the learning rate and ramped weights always
    change."""
    found = []
    for number, batch in enumerate(feed(range(steps))):
        step.set_learning_rates(learning_rates(8 * number, step))
        found.append(step(batch, loss_weights(8 * number, LOSS, 8)))
    return found


def assert_same(found: list[dict], wanted: list[dict], rtol: float) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            torch.testing.assert_close(
                one[name], other[name], rtol=rtol, atol=0, msg=lambda text, n=name: f"{n}: {text}"
            )


class StandIn:
    """A stand-in for a graph: it runs the step at each replay, and writes the result to the memory of the capture."""

    def __init__(self, step: Step, launch, whole: bool) -> None:
        self.launch, self.step, self.whole, self.replays = launch, step, whole, 0
        names = ["loss", *(name for name in loss_weights(0, LOSS, 8) if getattr(LOSS, name))]
        self.terms = {name: torch.full((), float("nan")) for name in names}

    def replay(self) -> None:
        self.replays += 1
        parameters, self.attached = list(self.step.model.parameters()), []
        if not self.whole:
            self.attached = [parameter.grad for parameter in parameters]
            self.step.updates[0].optimizer.zero_grad(set_to_none=True)
        for name, term in self.launch().items():
            self.terms[name].copy_(term)
        if not self.whole:
            self._write_gradients(parameters)

    def _write_gradients(self, parameters: list[torch.nn.Parameter]) -> None:
        """Write into the captured gradients, as a graph does at each replay; only the capture attaches them."""
        if self.replays == 1:
            assert self.attached == [None] * len(parameters)
            self.gradients = [parameter.grad for parameter in parameters]
            return
        for parameter, attached, captured in zip(parameters, self.attached, self.gradients, strict=True):
            captured.copy_(parameter.grad)
            parameter.grad = attached


@pytest.mark.parametrize(
    "switches",
    [{"optimizer": "fused_sgd", "set_to_none": True}, {"optimizer": "fused_sgd"}, {}, {"accumulate": 2}],
)
def test_bookkeeping_around_a_graph(switches, monkeypatch):
    engine = tier("baseline", **switches)
    wanted = train(*built(engine, CPU), steps=8)
    step, feed = built(engine, CPU)
    whole = all(map(graphs._is_capturable, step.groups))
    assert whole == ("optimizer" in switches)
    stand_ins = []

    def record(stream, launch):
        stand_ins.append(StandIn(step, launch, whole))
        return stand_ins[-1], stand_ins[-1].terms

    stream = SimpleNamespace(device=None, wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(graphs, "record", record)
    object.__setattr__(step, "launch", graphs.Graph(stream, warm_up=2, whole=whole))
    assert_same(train(step, feed, steps=8), wanted, rtol=0)
    assert [stand_in.replays for stand_in in stand_ins] == [6]
    batch, weights = next(feed(range(1))), loss_weights(0, LOSS, 8)
    for wrong in ({name: value[:4] for name, value in batch.items()}, weights), (batch, weights | {"another": 1.0}):
        with pytest.raises(ValueError, match=r"engine\.graphs: the shapes or loss terms"):
            step(*wrong)


def test_data_parallel_replicas_are_not_captured():
    updates = [SimpleNamespace(optimizer=torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))]
    graph, switch = graphs.build_graph(tier("baseline", graphs=True), updates, 2, torch.device("cuda", 0))
    assert graph is None and "DataParallel" in switch.reason


def gpu() -> World:
    return World(0, 1, torch.device("cuda", 0))


def on_gpu(**switches) -> Engine:
    return tier("baseline", parallel="single", **{"device": "cuda", **switches})


GRAPHED = [
    {"optimizer": "fused_sgd", "set_to_none": True},
    {"optimizer": "fused_sgd", "accumulate": 2},
    {"optimizer": "sgd"},
    {"optimizer": "fused_sgd", "precision": "fp16"},
    {"optimizer": "sgd", "precision": "fp16", "set_to_none": True},
    {"optimizer": "fused_sgd", "precision": "bf16", "channels_last": True},
    {"optimizer": "fused_sgd", "precision": "bf16", "recompute": True},
    {"optimizer": "fused_sgd", "resident": True, "set_to_none": True},
]


@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("switches", GRAPHED)
def test_graph_is_eager(switches):
    """Compare 30 steps. They are equal only if kernels add in a fixed order; atomics and some cuDNN kernels do not."""
    losses, moved = [], []
    for graphs_on in (False, True):
        step, feed = built(on_gpu(**switches, graphs=graphs_on), gpu())
        assert [switch.acted != "false" for switch in step.switches if switch.switch == "graphs"] == [graphs_on]
        before = weights_of(step)
        losses.append(train(step, feed, steps=30))
        moved.append(moved_since(before, step))
    (wanted, found), low = losses, switches.get("precision", "fp32") != "fp32"
    assert_same(found[:5], wanted[:5], rtol=2e-2 if low else 1e-5)
    if not low:
        assert_same(found, wanted, rtol=1e-3)
    by_part, _ = distances(moved[1], moved[0])
    assert max(by_part.values()) < 0.2, by_part


@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("switches", GRAPHED[:3])
def test_graph_is_eager_in_float64(switches):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        wanted = train(*built(on_gpu(**switches), gpu()), steps=30)
        assert_same(train(*built(on_gpu(**switches, graphs=True), gpu()), steps=30), wanted, rtol=1e-9)
    finally:
        torch.set_default_dtype(before)


@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("switches", [{"pin": True}, {"resident": True}])
def test_batches_on_a_gpu_are_those_streamed_from_pageable_memory(switches):
    _, wanted = built(on_gpu(pin=False), gpu())
    _, found = built(on_gpu(**switches), gpu())
    for one, other in zip(found(range(12)), wanted(range(12)), strict=True):
        assert all(torch.equal(one[name], other[name]) for name in other)


@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("graphed", [False, True])
def test_nothing_in_a_step_waits_for_the_gpu(graphed):
    step, feed = built(on_gpu(optimizer="fused_sgd", precision="fp16", resident=True, pin=True, graphs=graphed), gpu())
    train(step, feed, steps=step.settling_steps + 1)
    batches = feed(range(3))
    try:
        torch.cuda.set_sync_debug_mode("error")
        for batch in batches:
            step.set_learning_rates(learning_rates(0, step))
            step(batch, loss_weights(0, LOSS, 8))
    finally:
        torch.cuda.set_sync_debug_mode("default")
