"""Code errors that a comparison of weight changes must detect; comparing only the first losses would miss most of them.

The errors: weights that do not move, a learning rate frozen by a graph, batches that a graph ignores, parts that are
not averaged, momentum without Nesterov, lost gradients.
"""

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
import trajectory

from faze.benchmark.weight_changes import MOST, ROUNDING, SMALL, Moved, compare, take_steps, tolerances_of
from faze.engine.step import Step, launch_eagerly
from faze.training.dted_training import build_step, build_training
from faze.training.feed import build_feed
from faze.training.loop import Training

TRAIN = trajectory.TRAIN.model_copy(update={"clip_norm": 0.0})  # clipping would hide a gradient that is too long
RAMP = trajectory.LOSS.ramp_pairs


def built(**switches) -> Training:
    chosen = trajectory.setup(trajectory.tier("baseline", **switches), train=TRAIN)
    return build_training(chosen, build_step(chosen), build_feed(trajectory.people(), chosen), None)


def changed(training: Training, change: Callable[[Step], Step]) -> Training:
    return dataclasses.replace(training, step=change(training.step))


def moved(training: Training, **how) -> Moved:
    """Take two steps at rising rates."""
    groups = len(training.step.groups)
    rising = dataclasses.replace(training, rates=lambda seen: [2e-4 * seen / RAMP] * groups)
    return take_steps(rising, list(training.feed(range(2))), [RAMP // 2, RAMP], **how)


@pytest.fixture(scope="module")
def baseline(one_thread: None) -> list[Moved]:
    """Return the result of the baseline, followed by nudged repetitions that measure its noise."""
    return [moved(built())] + [moved(built(), nudge=(ROUNDING["fp32"], seed)) for seed in (0, 1, 2)]


def verdict(training: Training, baseline: list[Moved]) -> dict:
    return compare(moved(training), baseline[0], baseline[1:], "fp32")


@pytest.mark.parametrize("switches", [{}, {"optimizer": "fused_sgd"}, {"accumulate": 2}, {"recompute": True}])
def test_the_same_experiment_passes(switches, baseline) -> None:
    found = verdict(built(**switches), baseline)
    assert "failed" not in found and found["cosine"] > 0.999999 and abs(found["length"] - 1) < 1e-5


def frozen_rate(step: Step) -> Step:
    """Simulate a graph that keeps the learning rate with which it was captured."""
    rates = [group["lr"] for group in step.groups]

    def launch(step, *given):
        for group, rate in zip(step.groups, rates, strict=True):
            group["lr"] = rate
        return launch_eagerly(step, *given)

    return dataclasses.replace(step, launch=launch)


def no_update(step: Step) -> Step:
    return dataclasses.replace(step, launch=lambda step, batch, w, clock: step.add_gradients(batch, w, clock))


def stale_batches(step: Step) -> Step:
    """Simulate a graph, captured in the fourth step, that always uses the batch with which it was captured."""
    seen: list[dict] = []

    def launch(step, batch, *given):
        seen.append(batch)
        return launch_eagerly(step, batch if len(seen) < 4 else seen[3], *given)

    return dataclasses.replace(step, launch=launch, settling_steps=4)


def without_nesterov(step: Step) -> Step:
    for group in step.groups:
        group["nesterov"] = False
    return step


@pytest.mark.parametrize("broken", [frozen_rate, no_update, stale_batches, without_nesterov])
def test_another_experiment_fails(broken, baseline) -> None:
    assert "weights of encoder" in verdict(changed(built(), broken), baseline)["failed"]


def test_parts_that_are_added_up_fail(baseline) -> None:
    """Simulate a loss that is not divided by the number of parts."""
    training = built(accumulate=2)
    for parameter in training.step.model.parameters():
        parameter.register_hook(lambda gradient: 2 * gradient)
    found = verdict(training, baseline)
    assert "weights of encoder" in found["failed"] and "gradient" in found["failed"]


@pytest.mark.parametrize("part", ["encoder.block2.compo1", "decoder.last.conv3", "gaze1"])
def test_a_lost_gradient_fails(part, baseline) -> None:
    """Regression: compiled fused normalisation lost the gradient of most tensors in torch 2.11."""
    training = built()
    (parameter, *_) = [weight for name, weight in training.module.named_parameters() if name.startswith(part)]
    parameter.register_hook(torch.zeros_like)
    assert f"weights of {part.split('.')[0].rstrip('1')}" in verdict(training, baseline)["failed"]


@pytest.mark.parametrize(("multiple", "fails"), [(0.5, False), (2, True)])
@pytest.mark.parametrize("part", ["encoder", "fc_dec", "gaze"])
def test_a_fault_just_beyond_the_tolerance_fails(part, multiple, fails, baseline) -> None:
    wanted, noise = baseline[0], baseline[1:]
    change = wanted.weights[part]
    aside = change.roll(1) - (change.roll(1) @ change) / (change @ change) * change
    shortest = SMALL * math.hypot(*(float(each.norm()) for each in wanted.weights.values()))
    length = multiple * tolerances_of(wanted, noise, "fp32")[part] * max(float(change.norm()), shortest)
    aside *= length / aside.norm()
    faulty = dataclasses.replace(wanted, weights=wanted.weights | {part: change + aside})
    result = compare(faulty, wanted, noise, "fp32")
    assert result.get("failed") == (f"differ by more than rounding: weights of {part}" if fails else None)


def test_nothing_passes_that_does_not_move_however_coarse_the_format(baseline) -> None:
    """No tolerance may allow this. Regression: only losses were compared, within 5e-2 in bf16, at learning rate 0."""
    noise = [moved(built(), nudge=(0.5, 1))]
    found = compare(moved(changed(built(), no_update)), baseline[0], noise, "bf16")
    assert found["tolerance"] == MOST and "weights of" in found["failed"]


def test_a_settled_step_begins_where_an_unsettled_one_does() -> None:
    """The comparison starts from the initial weights, whatever the number of steps before a graph is captured."""
    settled = moved(changed(built(optimizer="fused_sgd"), lambda step: dataclasses.replace(step, settling_steps=3)))
    for part, change in moved(built(optimizer="fused_sgd")).weights.items():
        assert torch.equal(settled.weights[part], change)
