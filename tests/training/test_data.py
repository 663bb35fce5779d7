"""Batches are equal however they reach the device, and no part of a step waits for the device.

Checked by breaking the code: a partner's index one too far, or with the first one's labels; gaze and head labels
exchanged; people read on demand treated as resident; all free device memory given to strips; a loader that
begins at step 0; the computing stream that does not wait for the copy, or does not keep its memory; pinning reported
as acting on a CPU; a step that reads its loss; weights and rates on the device that differ from the floats, weights
at new addresses; an optimiser whose state is not saved in the checkpoint.
"""

import itertools
import math
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from batches import assert_same
from torch.utils._python_dispatch import TorchDispatchMode
from trajectory import LOSS, TRAIN, losses, people, setup, tier
from worlds import Apart

from faze.base.errors import UserError
from faze.data.pairs import PeopleStrips
from faze.engine import optim, transfer
from faze.engine.step import DeviceNumbers, Step
from faze.training.dted_training import bare_model, build_step, learning_rates, loss_weights
from faze.training.feed import Feed, build_feed
from faze.training.resume import Resume, WorkFolder

CPU = torch.device("cpu")
STEPS = 12  # of 8 pairs: more than three epochs of 28


def feed(whom: PeopleStrips, *, rank: int = 0, processes: int = 1, workers: int = 0, **switches) -> Feed:
    world = Apart(rank, processes, CPU)
    return build_feed(whom, setup(tier("baseline", **switches), world), workers=workers)


@pytest.mark.parametrize("processes", [1, 2])
def test_resident_batches_are_the_streamed_ones(processes):
    for rank in range(processes):
        share = {"rank": rank, "processes": processes}
        resident, streamed = feed(people(), resident=True, **share), feed(people(), **share)
        assert [s.acted for s in resident.switches if s.switch == "resident"] != ["false"]
        assert_same(list(resident(range(STEPS))), list(streamed(range(STEPS))))


def test_resident_training_is_the_streamed_one():
    wanted = losses(tier("ddp"), steps=4, dtype=torch.float32, processes=2)
    assert losses(tier("ddp", resident=True), steps=4, dtype=torch.float32, processes=2) == wanted


def test_people_who_are_read_when_needed_are_not_resident_on_a_cpu():
    cached = people()
    read = replace(cached, rows=SimpleNamespace(gather=cached.rows.gather))
    resident = feed(read, resident=True)
    [switch] = [s for s in resident.switches if s.switch == "resident"]
    assert not switch.active and "data.memory_gib" in switch.reason
    assert_same(list(resident(range(3))), list(feed(cached)(range(3))))


def test_resident_needs_half_of_the_free_device_memory(monkeypatch):
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 * 2**30, 8 * 2**30))
    assert transfer.resident_switch(True, size=2 * 2**30, cached=False, device=cuda).active
    refused = transfer.resident_switch(True, size=2 * 2**30 + 1, cached=True, device=cuda)
    assert not refused.active and "4.00 GiB" in refused.reason


@pytest.mark.parametrize("workers", [0, 2])
def test_feed_goes_on_at_any_step(workers):
    whole, rest = feed(people()), feed(people(), workers=workers)
    assert_same(list(rest(range(2, 6))), list(whole(range(6)))[2:])


def test_feed_goes_round_for_ever():
    """The fourth step ends in the second epoch, from which the feed returns to the first one."""
    batches = list(itertools.islice(feed(people())(itertools.cycle(range(4))), 7))
    assert_same(batches[4:], batches[:3])


class Slow(torch.utils.data.Dataset):
    """Batches that take longer than the loader is waited for."""

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        time.sleep(1.0)
        return {"number": torch.tensor(number)}


@pytest.mark.parametrize(("least_bytes", "stuck"), [(0, False), (2**60, True)])
def test_loader_processes_are_waited_for_unless_they_cannot_send(least_bytes, stuck, monkeypatch, capsys):
    """Regression: with a full /dev/shm, a training waited for ever for a batch that a process could not send."""
    monkeypatch.setattr(transfer, "SILENT_S", 0.4)
    monkeypatch.setattr(transfer, "LEAST_SHARED_BYTES", least_bytes)
    batches = transfer.Transfer(1, False, transfer.Switch("pin", "false", "false")).load(Slow(), range(2))
    if stuck:
        with pytest.raises(UserError, match=r"/dev/shm has .* data\.workers: 0.*--shm-size"):
            next(batches)
        assert not torch.multiprocessing.active_children()
    else:
        assert [int(batch["number"]) for batch in batches] == [0, 1]
        assert "still waiting" in capsys.readouterr().err


def test_each_switch_of_the_transfer_says_why_it_does_not_act_on_a_cpu():
    switches = {s.switch: s for s in feed(people(), pin=True).switches}
    assert set(switches) == {"pin", "resident"}
    assert not switches["pin"].active and switches["resident"].active
    graphs = build_step(setup(tier("baseline", graphs=True))).switches[-1]
    assert graphs.switch == "graphs" and not graphs.active and "CUDA" in graphs.reason


class NoWaiting(TorchDispatchMode):
    """A tensor mode that refuses every operation whose result the host would have to wait for."""

    READS = ("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "unique", "_unique2")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in self.READS:
            raise AssertionError(f"the host waits for {func}")
        return func(*args, **(kwargs or {}))


WAITLESS = [
    {},
    {"set_to_none": True},
    {"optimizer": "fused_sgd", "accumulate": 2, "resident": True},
    {"recompute": True},
    {"precision": "fp16", "force": True, "optimizer": "fused_sgd"},
]


def train_without_waiting(**switches) -> None:
    """Run two steps; the first one creates the optimiser's state."""
    chosen = setup(tier("baseline", **switches))
    step = build_step(chosen)
    batches = build_feed(people(), chosen)(range(2))
    for number in range(2):
        with NoWaiting():
            step.set_learning_rates(learning_rates(8 * number, TRAIN, step.group_names))
            step(next(batches), loss_weights(8 * number, LOSS, 8))


@pytest.mark.parametrize("switches", WAITLESS)
def test_nothing_in_a_step_waits_for_the_device(switches):
    train_without_waiting(**switches)


def test_a_loss_scaler_waits_where_the_optimiser_is_not_fused():
    """Torch's own scaler reads the overflow flag on the host; the tier fused_sgd avoids that."""
    with pytest.raises(AssertionError, match="_local_scalar_dense"):
        train_without_waiting(precision="fp16", force=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_on_the_device_are_the_floats(dtype, monkeypatch):
    """Learning rate and loss weights change in each of these steps."""
    rates = [learning_rates(8 * n, TRAIN, ["encoder"])[0] for n in range(6)]
    weights = [loss_weights(8 * n, LOSS, 8)["embedding_consistency"] for n in range(6)]
    assert len(set(rates)) == len(set(weights)) == 6
    held = losses(tier("fused_sgd", parallel="single"), steps=6, dtype=dtype)
    monkeypatch.setattr(optim, "move_rates_to_device", lambda optimizer: None)
    monkeypatch.setattr(DeviceNumbers, "__call__", lambda self, values: dict(values))
    assert losses(tier("fused_sgd", parallel="single"), steps=6, dtype=dtype) == held


def test_rates_on_the_device_go_through_a_checkpoint(tmp_path):
    """The optimiser's state contains the rates as tensors, which a resumed step must continue to use."""
    chosen = setup(tier("fused_sgd", parallel="single"))
    steps = [build_step(replace(chosen, seed=seed)) for seed in (3, 4)]
    batches = list(build_feed(people(), chosen)(range(3)))

    def train(step: Step, number: int) -> float:
        step.set_learning_rates(learning_rates(8 * number, TRAIN, step.group_names))
        return float(step(batches[number], loss_weights(8 * number, LOSS, 8))["loss"])

    train(steps[0], 0)
    work = WorkFolder(tmp_path, "one")
    work.save(bare_model(steps[0]), steps[0], Resume(1, 8, 0), {})
    work.log.touch()
    assert work.load(bare_model(steps[1]), steps[1]).step == 1
    assert [train(steps[1], n) for n in (1, 2)] == [train(steps[0], n) for n in (1, 2)]
    assert isinstance(steps[1].groups[0]["lr"], torch.Tensor)


def test_held_numbers_keep_their_addresses_and_do_not_share_memory_with_the_host():
    held = DeviceNumbers(CPU, torch.float32)
    first = held({"a": 1.0, "b": 0.1})
    second = held({"a": 3.0, "b": 4.0})
    assert second is first and [float(v) for v in first.values()] == [3.0, 4.0]
    assert math.isclose(float(held({"a": 0.1, "b": 0.0})["a"]), 0.1, rel_tol=1e-7)


def test_numbers_on_the_device_go_by_name_not_by_order():
    """Regression: values that were passed in another order were stored under each other's names."""
    held = DeviceNumbers(CPU, torch.float32)
    held({"a": 1.0, "b": 2.0})
    assert {name: float(value) for name, value in held({"b": 4.0, "a": 3.0}).items()} == {"a": 3.0, "b": 4.0}
