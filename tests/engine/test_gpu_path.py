"""GPU-only parts of the engine, tested on a CPU with stand-ins; these parts have not run on a GPU."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from trajectory import bare_model, setup, tier

from faze.engine import graphs, parallel
from faze.engine.optim import build_optimizer
from faze.engine.parallel import World, build_wrapper, join
from faze.model.dted import DTED

ROOT = Path(__file__).resolve().parents[2]
CUDA = torch.device("cuda", 0)


# --- errors are found in fp32 in every tier --------------------------------------------------------------------------


def tf32() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.fixture
def with_tf32() -> Iterator[None]:
    before = tf32()
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_validation_inside_a_training_is_in_fp32_and_leaves_the_tier_as_it_was(with_tf32, monkeypatch):
    chosen = setup(tier("amp", force=True, tf32=True))
    step, plain = chosen.step, setup(tier("baseline"))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    autocast, seen = bare_model(step).autocast, []
    encode = DTED.encode

    def watched(dted: DTED, image: torch.Tensor):
        with dted.autocast():
            seen.append((*tf32(), torch.is_autocast_enabled("cpu")))
        return encode(dted, image)

    monkeypatch.setattr(DTED, "encode", watched)
    found = chosen.validate()
    assert set(seen) == {(False, False, False)}
    assert tf32() == (True, True) and bare_model(step).autocast is autocast
    assert found == plain.validate()  # the same first weights: the same error


# --- apex is tried before it is trusted ------------------------------------------------------------------------------

SOUND = "from torch.optim import SGD as FusedSGD"
OTHER = "from torch.optim import SGD\nclass FusedSGD(SGD):\n    def step(self):\n        "
APEX = {
    SOUND: "apex FusedSGD",
    "raise ImportError('no apex_C')": "torch SGD, fused; apex failed in a trial step: ImportError, no apex_C",
    OTHER + "raise RuntimeError('no kernel')": "torch SGD, fused; apex failed in a trial step: RuntimeError, no kernel",
    OTHER + "pass": "torch SGD, fused; apex computes a different step from SGD (1, not 0.4775)",
    OTHER + "super().step(); self.param_groups[0]['params'][0].data += 1e-5": (
        "torch SGD, fused; apex computes a different step from SGD (0.47751, not 0.4775)"
    ),
}


@pytest.mark.parametrize("source", APEX)
def test_apex_serves_only_if_it_does_a_step_of_sgd(source, tmp_path, monkeypatch):
    folder = tmp_path / "apex" / "optimizers"
    folder.mkdir(parents=True)
    (tmp_path / "apex" / "__init__.py").touch()
    (folder / "__init__.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    weight = torch.nn.Parameter(torch.ones(3))
    settings = {"momentum": 0.9, "weight_decay": 0.1}
    try:
        optimizer, switch = build_optimizer("fused_sgd", {}, [{"params": [weight], "lr": 0.1}], CUDA, **settings)
    finally:
        for name in ("apex", "apex.optimizers"):
            sys.modules.pop(name, None)
    assert switch.active and switch.acted == APEX[source]
    assert optimizer.param_groups[0]["fused"] == (source != SOUND or None)


# --- graphs end before the process group whose kernels they hold -----------------------------------------------------


@pytest.fixture
def ended(monkeypatch) -> list[str]:
    """Simulate the end of a DistributedDataParallel process that has captured a graph on a GPU."""
    order: list[str] = []
    monkeypatch.setattr(parallel, "pick_device", lambda device: CUDA)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(dist, "init_process_group", lambda *a, device_id, **k: order.append(f"begin on {device_id}"))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: order.append("process group"))
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)

    class Recorded:
        reset = staticmethod(lambda: order.append("graph"))

    class Stream:
        synchronize = staticmethod(lambda: order.append("wait"))

    graph = graphs.Graph(Stream(), warm_up=0, whole=True)
    graph._graph = Recorded()
    order.append(graph)  # kept alive, as by a step
    yield order
    graph._graph = None


def test_captured_graphs_end_before_their_process_group(ended):
    with join(tier("ddp"), threads=1):
        pass
    assert ended[1:] == ["begin on cuda:0", "wait", "graph", "process group"]


def test_a_process_that_fails_does_not_wait_in_nccl(ended):
    with pytest.raises(KeyError), join(tier("ddp"), threads=1):
        raise KeyError
    assert ended[1:] == ["begin on cuda:0"]


# --- DataParallel over several devices -------------------------------------------------------------------------------


def test_data_parallel_takes_all_devices_and_whole_chunks_for_each(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    wrap, replicas, switches = build_wrapper(tier("baseline"), World(0, 1, CUDA))
    assert wrap is torch.nn.DataParallel and replicas == 3 and switches[0].acted == "DataParallel over 3 devices"
