"""The loop: a loss that diverges, validation in fp32, and steps that never wait for the device."""

import copy
import math

import pytest
import torch
from tiny_workload import Tiny
from torch.utils._python_dispatch import TorchDispatchMode
from trajectory import ALONE, bare_model, setup, tier

from faze.base.errors import UserError
from faze.training.train import Training, build, fit


def train_on(losses: list[float], scaled: bool) -> None:
    """Run the loop with a step that returns these losses, in log windows of two steps."""
    given = iter(losses)

    class Losing(Training):
        def take(self, batch: dict, seen: int) -> dict:
            return {"loss": torch.tensor(next(given))}

    class Short(Tiny):
        steps, every = len(losses), (16, 10**6, 10**6)
        validate = staticmethod(lambda model: 0.0)

    made = build(Short(), tier("baseline", precision="fp16" if scaled else "fp32", force=True), ALONE, 0)
    fit(Losing(**vars(made)), None, 0, lambda number: None)


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_a_training_without_a_scaler(lost):
    with pytest.raises(UserError, match="the loss is not finite after 16 samples; lower"):
        train_on([1.0, lost, 1.0, 1.0], False)


def test_a_scaler_does_not_skip_for_ever():
    """It skips at most 19 steps in a row."""
    with pytest.raises(UserError, match=f"after {8 * 22} samples"):
        train_on([1.0, 1.0, *[math.nan] * 24], True)
    train_on([1.0, *[math.nan] * 19, 1.0, *[math.nan] * 19], True)


@pytest.mark.parametrize(
    "switches", [{"channels_last": True}, {"recompute": True}, {"precision": "bf16", "force": True}]
)
def test_validation_knows_the_last_weights_and_no_switch(switches):
    found = []
    for engine in (tier("baseline"), tier("baseline", **switches)):
        training = setup(engine)
        before = training.validate()
        with torch.no_grad():
            bare_model(training.step).fc_enc.weight[64:].neg_()
        found.append((before, training.validate()))
    for baseline, other in zip(*found, strict=True):
        assert other == pytest.approx(baseline, rel=1e-4)
    assert abs(found[0][0]["val/gaze_deg"] - found[0][1]["val/gaze_deg"]) > 1e-3


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


@pytest.mark.parametrize("switches", WAITLESS)
def test_nothing_in_a_step_waits_for_the_device(switches):
    training = setup(tier("baseline", **switches))
    for number, batch in enumerate(training.feed(range(2))):  # the first step creates the optimiser's state
        with NoWaiting():
            training.take(batch, 8 * number)


def test_rates_on_the_device_go_through_a_checkpoint():
    """The optimiser's state contains the rates as tensors, which a resumed step must continue to use."""
    first, second = (setup(tier("fused_sgd", parallel="single"), seed=seed) for seed in (3, 4))
    batches = list(first.feed(range(3)))
    first.take(batches[0], 0)
    second.model.load_state_dict(first.model.state_dict())
    second.step.load_state_dict(copy.deepcopy(first.step.state_dict()))
    losses = [[float(each.take(batches[n], 8 * n)["loss"]) for n in (1, 2)] for each in (first, second)]
    assert losses[0] == losses[1] and isinstance(second.step.groups[0]["lr"], torch.Tensor)
