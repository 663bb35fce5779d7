"""Every tier and switch trains the same experiment: only speed and memory may change.

Effects that only a GPU can show, such as cuDNN's search, are not tested here: see docs/switches.md.
"""

import numpy as np
import pytest
import torch
from trajectory import LOSS, STEPS, TRAIN, bare_model, losses, setup, tier, trained
from weight_changes import assert_alike, change, copy_of

from faze.engine.step import Step
from faze.model.low_memory import SLICE_BYTES
from faze.training.dted import loss_weights

BF16 = {"precision": "bf16", "force": True}


@pytest.fixture
def float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def step_and_batch(**switches):
    chosen = setup(tier("baseline", **switches))
    return chosen.step, next(chosen.feed([0]))


def test_training_learns(float64):
    """A trajectory that does not move would pass every other test here.

    Regression: learning rates were 0; an optimiser took no step; a gaze head had no gradient.
    """
    chosen = setup(tier("baseline"))
    step, batches = chosen.step, list(chosen.feed(range(STEPS)))
    first, weights = copy_of(bare_model(step)), loss_weights(LOSS.ramp_pairs, LOSS, TRAIN.global_batch)
    loss_at_first = loss_of(step, batches[0], weights)
    for number, batch in enumerate(batches):
        pairs = number * TRAIN.global_batch
        chosen.take(batch, pairs)
    assert loss_of(step, batches[0], weights) < 0.9 * loss_at_first  # 0.80 of it: 58 of 73
    assert all(by.any() for by in change(first, copy_of(bare_model(step))).values())


@torch.no_grad()
def loss_of(step: Step, batch: dict[str, torch.Tensor], weights: dict[str, float]) -> float:
    """Return the weighted loss of a batch, without taking a step."""
    return sum(weights[name] * float(term) for name, term in step.model(batch).items())


EXACT, REORDERED = 1e-12, 1e-10  # another order of sums


@pytest.mark.parametrize(
    ("switches", "rtol"),
    [
        ({"optimizer": "fused_sgd"}, EXACT),
        ({"set_to_none": True}, EXACT),
        ({"checkpointing": True}, EXACT),
        ({"recompute": True}, REORDERED),
        ({"channels_last": True}, REORDERED),
        ({"accumulate": 2}, REORDERED),
        ({"accumulate": 4, "recompute": True}, REORDERED),
        ({"accumulate": 4, "checkpointing": True}, REORDERED),
    ],
    ids=str,
)
def test_switch_gives_the_baseline(switches, rtol, baseline_float64, baseline_float32, monkeypatch):
    monkeypatch.setitem(SLICE_BYTES, "cpu", 2**20)  # recompute cuts the batch
    engine = tier("baseline", **switches)
    np.testing.assert_allclose(losses(engine, steps=STEPS, dtype=torch.float64), baseline_float64, rtol=rtol)
    np.testing.assert_allclose(losses(engine, steps=5, dtype=torch.float32), baseline_float32, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("ddp", {}),
        ("fused_sgd", {}),
        ("ddp", {"accumulate": 2, "recompute": True}),  # both delay the exchange of gradients to the last part
        ("ddp", {"set_to_none": True, "checkpointing": True}),
    ],
)
def test_two_processes_give_the_baseline(name, switches, baseline_float64, baseline_float32):
    """The number format is fp32, since a CPU may have kernels for the format of amp; that tier has its own tests."""
    engine = tier(name, precision="fp32", **switches)
    found = losses(engine, steps=STEPS, dtype=torch.float64, processes=2)
    np.testing.assert_allclose(found, baseline_float64, rtol=REORDERED)
    if not switches:
        found = losses(engine, steps=5, dtype=torch.float32, processes=2)
        np.testing.assert_allclose(found, baseline_float32, rtol=1e-6)


WITHOUT = ({"reconstruction_l1": 0.0}, {"gaze_angle": 0.0, "gaze_mse": 0.0})


@pytest.mark.parametrize("without", WITHOUT, ids=["no picture", "no gaze"])
def test_two_processes_train_without_some_terms_too(without):
    """Regression: DistributedDataParallel waited for gradients of parameters that no term reaches."""
    loss = LOSS.model_copy(update=without)
    alone, together = (
        losses(engine, steps=4, dtype=torch.float64, processes=processes, loss=loss)
        for engine, processes in ((tier("baseline"), 1), (tier("ddp", precision="fp32", accumulate=2), 2))
    )
    np.testing.assert_allclose(together, alone, rtol=REORDERED)


def test_checkpointing_keeps_less():
    """Count the tensors kept for the backward pass, except in checkpointed parts, which keep their inputs."""

    def kept_bytes(checkpointing: bool) -> int:
        step, batch = step_and_batch(checkpointing=checkpointing)
        kept: dict[int, int] = {}

        def pack(value: torch.Tensor) -> torch.Tensor:
            kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
            return value

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            step.model(batch)
        return sum(kept.values())

    assert kept_bytes(True) < 0.3 * kept_bytes(False)


def test_checkpointing_computes_again_in_the_same_precision():
    plain = losses(tier("baseline", **BF16), steps=3, dtype=torch.float32)
    assert losses(tier("baseline", **BF16, checkpointing=True), steps=3, dtype=torch.float32) == plain


# --- low precision ---------------------------------------------------------------------------------------------------


def test_forced_fp16_moves_the_weights_as_the_baseline_does(trained_float32):
    """Rounding to fp16 has an error of 5e-4. The initial loss scale fits; the default of 65536 overflows here.

    Regression: learning rates were 0 in fp16 only; gradient clipping measured the scaled gradient; the encoder had no
    gradient.
    """
    found = trained(tier("amp", force=True), steps=5, dtype=torch.float32, loss_scale=64.0)
    assert_alike(found.moved, trained_float32.moved, "fp16")
    np.testing.assert_allclose(found.losses, trained_float32.losses, rtol=2e-2)


@pytest.mark.parametrize("recompute", [False, True])
def test_forced_bf16_moves_the_weights_as_the_baseline_does(recompute, trained_float32):
    """Rounding to bf16 has an error of 4e-3. Regression: as for fp16; also, recomputed layers had no gradients."""
    found = trained(tier("baseline", **BF16, recompute=recompute), steps=5, dtype=torch.float32)
    assert_alike(found.moved, trained_float32.moved, "bf16")
    np.testing.assert_allclose(found.losses, trained_float32.losses, rtol=5e-2)


def test_fp16_skips_a_step_that_overflows():
    """The weights stay, the scale is halved, the step is counted; the next step, whose scale fits, moves the weights.

    Regression: with an initial scale of 64, nothing overflowed; the scaler was off; the optimiser stepped anyway.
    """
    chosen = setup(tier("amp", force=True))
    step, weights = chosen.step, loss_weights(0, LOSS, TRAIN.global_batch)
    overflowing, fitting = chosen.feed(range(2))
    step.scalers[0].load_state_dict(step.scalers[0].state_dict() | {"scale": 2.0**40})
    first = copy_of(bare_model(step))
    assert torch.isfinite(step(overflowing, weights)["loss"])  # the gradient overflows
    assert all(torch.equal(first[name], weight) for name, weight in copy_of(bare_model(step)).items())
    assert step.scalers[0].get_scale() == 2.0**39 and step.counts() == {"train/skipped_steps": 1.0}
    step.scalers[0].load_state_dict(step.scalers[0].state_dict() | {"scale": 64.0})
    step(fitting, weights)
    moved = change(first, copy_of(bare_model(step)))
    assert all(by.any() and by.isfinite().all() for by in moved.values())
    assert step.scalers[0].get_scale() == 64.0 and step.counts() == {"train/skipped_steps": 1.0}


def test_fp16_is_inactive_without_kernels(baseline_float32, no_low_precision):
    assert losses(tier("amp"), steps=5, dtype=torch.float32) == baseline_float32
