"""Every tier is the same experiment: only speed and memory may change.

What only a GPU shows, cuDNN's search and the rung `autotune` among it, is not here: docs/switches.md.

Seen red once by breaking the code: fused_sgd without Nesterov, ddp with shares
shifted by a pair and with positives searched over all that a process holds, fp16 with the scaler bypassed.
"""

import dataclasses

import numpy as np
import pytest
import torch
from trajectory import LOSS, STEPS, TRAIN, losses, people, setup, tier, trained
from weight_changes import assert_alike, change, copy_of

from faze.engine.step import Step
from faze.training.feed import build_feed
from faze.training.loop import bare_model, build_step, learning_rates, loss_weights


def test_training_learns():
    """A trajectory that stood still would make every other test here pass.

    Seen red: learning rates of 0; an optimiser that takes no step; a gaze head without a gradient.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        chosen = setup(tier("baseline"))
        step, batches = build_step(chosen), list(build_feed(people(), chosen)(range(STEPS)))
        first, wanted = copy_of(bare_model(step)), loss_weights(LOSS.ramp_pairs, LOSS, TRAIN.global_batch)
        at_first = loss_of(step, batches[0], wanted)
        for number, batch in enumerate(batches):
            pairs = number * TRAIN.global_batch
            step.set_learning_rates(learning_rates(pairs, TRAIN))
            step(batch, loss_weights(pairs, LOSS, TRAIN.global_batch))
        assert loss_of(step, batches[0], wanted) < 0.9 * at_first  # 0.80 of it: 58 of 73
        moved = change(first, copy_of(bare_model(step)))
        assert [name for name, by in moved.items() if not by.any()] == []
    finally:
        torch.set_default_dtype(before)


@torch.no_grad()
def loss_of(step: Step, batch: dict[str, torch.Tensor], weights: dict[str, float]) -> float:
    """The weighted loss of a batch, without a step."""
    return sum(weights[name] * float(term) for name, term in step.model(batch).items())


@pytest.mark.parametrize("switches", [{"optimizer": "fused_sgd"}, {"foreach": True}, {"set_to_none": True}])
def test_exact_switch_alone_gives_the_baseline(switches, baseline_float64, baseline_float32):
    engine = tier("baseline", **switches)
    found = losses(engine, steps=STEPS, dtype=torch.float64)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-12)
    np.testing.assert_allclose(losses(engine, steps=5, dtype=torch.float32), baseline_float32, rtol=1e-6)


REORDERING = [
    {"recompute": True},
    {"channels_last": True},
    {"accumulate": 2},
    {"accumulate": 4, "recompute": True},
]


@pytest.mark.parametrize("switches", REORDERING)
def test_switch_that_reorders_sums_gives_the_baseline(switches, baseline_float64, baseline_float32):
    engine = tier("baseline", **switches)
    found = losses(engine, steps=STEPS, dtype=torch.float64)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-10)
    np.testing.assert_allclose(losses(engine, steps=5, dtype=torch.float32), baseline_float32, rtol=1e-6)


def test_two_processes_that_accumulate_give_the_baseline(baseline_float64):
    """Both hold back their gradients until the last part."""
    found = losses(tier("ddp", accumulate=2, recompute=True), steps=STEPS, dtype=torch.float64, processes=2)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-10)


@pytest.mark.parametrize("name", ["ddp", "fused_sgd"])
def test_rung_with_two_processes_gives_the_baseline(name, baseline_float64, baseline_float32):
    """Two processes add up gradients in another order: 1e-10. The rungs above ddp contain it.

    Without the number format of the rung `amp`, which a CPU may have the kernels for, and which has tests of its own.
    """
    engine = tier(name, precision="fp32")
    found = losses(engine, steps=STEPS, dtype=torch.float64, processes=2)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-10)
    found = losses(engine, steps=5, dtype=torch.float32, processes=2)
    np.testing.assert_allclose(found, baseline_float32, rtol=1e-6)


WITHOUT = ({"reconstruction_l1": 0.0}, {"gaze_angle": 0.0, "gaze_mse": 0.0})


@pytest.mark.parametrize("without", WITHOUT, ids=["no picture", "no gaze"])
def test_two_processes_train_without_some_terms_too(without):
    """Seen red: DistributedDataParallel waited for gradients of what no term reaches."""
    loss = dataclasses.replace(LOSS, **without)
    alone, together = (
        losses(engine, steps=4, dtype=torch.float64, processes=processes, loss=loss)
        for engine, processes in ((tier("baseline"), 1), (tier("ddp", precision="fp32", accumulate=2), 2))
    )
    np.testing.assert_allclose(together, alone, rtol=1e-10)


def test_forced_fp16_moves_the_weights_as_the_baseline_does(trained_float32):
    """Fp16 has 11 bits: 5e-4 per rounding.

    The default first loss scale of 65536 overflows fp16 here, and the scaler skips those steps as it should; so the
    comparison starts from a scale that fits.

    Seen red: learning rates of 0 in fp16 alone; a clip that measures the gradient with its loss scale; the encoder
    without a gradient.
    """
    found = trained(tier("amp", force=True), steps=5, dtype=torch.float32, loss_scale=64.0)
    assert_alike(found.moved, trained_float32.moved, "fp16")
    np.testing.assert_allclose(found.losses, trained_float32.losses, rtol=2e-2)


@pytest.mark.parametrize("recompute", [False, True])
def test_forced_bf16_moves_the_weights_as_the_baseline_does(recompute, trained_float32):
    """Bf16 has 8 bits: 4e-3 per rounding. Seen red: as for fp16; recompute layers without gradients."""
    found = trained(tier("baseline", precision="bf16", recompute=recompute, force=True), steps=5, dtype=torch.float32)
    assert_alike(found.moved, trained_float32.moved, "bf16")
    np.testing.assert_allclose(found.losses, trained_float32.losses, rtol=5e-2)


def test_fp16_skips_a_step_that_overflows():
    """The weights stay, the scale is halved, the step is counted; the next one, whose scale fits, moves them.

    Seen red: a first scale of 64, with which nothing overflows; a scaler that is off; one whose optimiser steps all
    the same.
    """
    chosen = setup(tier("amp", force=True))
    step, weights = build_step(chosen), loss_weights(0, LOSS, TRAIN.global_batch)
    overflowing, fitting = build_feed(people(), chosen)(range(2))
    step.scaler.load_state_dict(step.scaler.state_dict() | {"scale": 2.0**40})
    first = copy_of(bare_model(step))
    assert torch.isfinite(step(overflowing, weights)["loss"])  # it is the gradient that does not fit
    assert all(torch.equal(first[name], weight) for name, weight in copy_of(bare_model(step)).items())
    assert step.scaler.get_scale() == 2.0**39 and step.scaler.counts() == {"train/skipped_steps": 1.0}
    step.scaler.load_state_dict(step.scaler.state_dict() | {"scale": 64.0})
    step(fitting, weights)
    moved = change(first, copy_of(bare_model(step)))
    assert all(by.any() and by.isfinite().all() for by in moved.values())
    assert step.scaler.get_scale() == 64.0 and step.scaler.counts() == {"train/skipped_steps": 1.0}


def test_fp16_is_inactive_without_kernels(baseline_float32, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_fp16_supported", lambda: False)
    assert losses(tier("amp"), steps=5, dtype=torch.float32) == baseline_float32
