"""Every tier and switch trains the same experiment: only speed and memory may change.

Effects that only a GPU can show, such as cuDNN's search, are not tested here: see docs/switches.md.
"""

import numpy as np
import pytest
import torch
from trajectory import LOSS, STEPS, TRAIN, losses, moved_since, setup, tier, trained, weights_of

from faze.benchmark.proof import Change, distances
from faze.model.low_memory import SLICE_BYTES
from faze.training.dted import loss_weights

BF16 = {"precision": "bf16", "force": True}


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
        ({"fused_norm": True}, REORDERED),
        ({"fused_norm": True, "channels_last": True}, REORDERED),
        ({"fused_norm": True, "accumulate": 2}, REORDERED),
        ({"accumulate": 4, "recompute": True}, REORDERED),
        ({"accumulate": 4, "checkpointing": True}, REORDERED),
    ],
    ids=str,
)
def test_switch_gives_the_baseline(switches, rtol, baseline_float64, baseline_float32, monkeypatch):
    monkeypatch.setitem(SLICE_BYTES, "cpu", 2**20)  # recompute cuts the batch
    engine = tier("baseline", **switches)
    found = losses(engine, steps=STEPS, dtype=torch.float64)
    np.testing.assert_allclose(found, baseline_float64, rtol=rtol)
    assert found != baseline_float64 or not engine.fused_norm  # it did act
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
        chosen = setup(tier("baseline", checkpointing=checkpointing))
        step, batch = chosen.step, next(chosen.feed([0]))
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


# Largest distance of a part's change after five steps, as a share of its length. On a CPU, over seven seeds of the
# weights, the worst part had the cosine 0.994 and a length 2.7 % apart in fp16, 0.931 and 9.1 % in bf16: at most 0.12
# and 0.4. A part without a gradient has 1; one whose gradient keeps the loss scale of 64 has 63.
NEAR = {"fp16": 0.18, "bf16": 0.47}


def assert_alike(found: Change, wanted: Change, precision: str) -> None:
    """Fail if a part of DT-ED moved otherwise than low-precision rounding explains, or if nothing was rounded."""
    by_part, whole = distances(found, wanted)
    assert max(by_part.values()) < NEAR[precision] and whole > 0, by_part


def test_forced_fp16_moves_the_weights_as_the_baseline_does(trained_float32):
    """Rounding to fp16 has an error of 5e-4. The initial loss scale fits; the default of 65536 overflows here.

    Regression: learning rates were 0 in fp16 only; gradient clipping measured the scaled gradient; the encoder had no
    gradient.
    """
    found = trained(tier("amp", force=True), steps=5, dtype=torch.float32, loss_scale=64.0)
    assert_alike(found.moved, trained_float32.moved, "fp16")
    np.testing.assert_allclose(found.losses, trained_float32.losses, rtol=2e-2)


LISTS = {"keep_fp32": ["Conv2d", "Linear"], "force_low": ["layer_norm", "instance_norm"]}


@pytest.mark.parametrize("switches", [{}, {"recompute": True}, {"fused_norm": True}, LISTS], ids=str)
def test_forced_bf16_moves_the_weights_as_the_baseline_does(switches, trained_float32):
    """Rounding to bf16 has an error of 4e-3. Regression: as for fp16; also, such layers had no gradients."""
    found = trained(tier("baseline", **BF16, **switches), steps=5, dtype=torch.float32)
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
    first = weights_of(step)
    assert torch.isfinite(step(overflowing, weights)["loss"])  # the gradient overflows
    assert not any(by.any() for by in moved_since(first, step).values())
    assert step.scalers[0].get_scale() == 2.0**39 and step.counts() == {"train/skipped_steps": 1.0}
    step.scalers[0].load_state_dict(step.scalers[0].state_dict() | {"scale": 64.0})
    step(fitting, weights)
    assert all(by.any() and by.isfinite().all() for by in moved_since(first, step).values())
    assert step.scalers[0].get_scale() == 64.0 and step.counts() == {"train/skipped_steps": 1.0}


def test_fp16_is_inactive_without_kernels(baseline_float32, no_low_precision):
    assert losses(tier("amp"), steps=5, dtype=torch.float32) == baseline_float32
