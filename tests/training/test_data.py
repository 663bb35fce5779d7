"""Batches continue at any step, and no part of a step waits for the device."""

from dataclasses import replace

import pytest
import torch
from batches import assert_same
from torch.utils._python_dispatch import TorchDispatchMode
from trajectory import LOSS, TRAIN, people, setup, tier

from faze.engine.step import Step
from faze.training.dted_training import bare_model, build_step, learning_rates, loss_weights
from faze.training.feed import build_feed
from faze.training.resume import Resume, WorkFolder


@pytest.mark.parametrize("workers", [0, 2])
def test_feed_goes_on_at_any_step(workers):
    chosen = setup(tier("baseline"))
    whole, rest = build_feed(people(), chosen), build_feed(people(), chosen, workers=workers)
    assert_same(list(rest(range(2, 6))), list(whole(range(6)))[2:])


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
