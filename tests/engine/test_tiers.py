"""Every tier is the same experiment: only speed and memory may change.

Seen red once by breaking the code: fused_sgd without Nesterov, autotune that changes the number format, ddp with shares
shifted by a pair and with positives searched over all that a process holds, fp16 with the scaler bypassed.
"""

import numpy as np
import pytest
import torch
from trajectory import STEPS, losses, tier


def test_training_learns(baseline_float64):
    """A trajectory that stood still would make every other test here pass."""
    assert np.isfinite(baseline_float64).all()
    assert np.std(baseline_float64) > 0.01 * np.mean(baseline_float64)


@pytest.mark.parametrize("switches", [{"optimizer": "fused_sgd"}, {"cudnn_benchmark": True}, {"set_to_none": True}])
def test_exact_switch_alone_gives_the_baseline(switches, baseline_float64, baseline_float32):
    engine = tier("baseline", **switches)
    found = losses(engine, steps=STEPS, dtype=torch.float64)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-12)
    np.testing.assert_allclose(losses(engine, steps=5, dtype=torch.float32), baseline_float32, rtol=1e-6)


REORDERING = [
    {"lean": True},
    {"channels_last": True},
    {"accumulate": 2},
    {"accumulate": 4, "lean": True},
]


@pytest.mark.parametrize("switches", REORDERING)
def test_switch_that_reorders_sums_gives_the_baseline(switches, baseline_float64, baseline_float32):
    engine = tier("baseline", **switches)
    found = losses(engine, steps=STEPS, dtype=torch.float64)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-10)
    np.testing.assert_allclose(losses(engine, steps=5, dtype=torch.float32), baseline_float32, rtol=1e-6)


def test_two_processes_that_accumulate_give_the_baseline(baseline_float64):
    """Both hold back their gradients until the last part."""
    found = losses(tier("ddp", accumulate=2, lean=True), steps=STEPS, dtype=torch.float64, processes=2)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-10)


@pytest.mark.parametrize("name", ["ddp", "fused_sgd", "autotune"])
def test_rung_with_two_processes_gives_the_baseline(name, baseline_float64, baseline_float32):
    """Two processes add up gradients in another order: 1e-10. The rungs above ddp contain it."""
    found = losses(tier(name), steps=STEPS, dtype=torch.float64, processes=2)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-10)
    found = losses(tier(name), steps=5, dtype=torch.float32, processes=2)
    np.testing.assert_allclose(found, baseline_float32, rtol=1e-6)


def test_forced_fp16_stays_near_the_baseline(baseline_float32):
    """Fp16 has 11 bits: 5e-4 per rounding. Seen: 3e-4 of the loss over four steps, 5e-3 at the fifth.

    The default first loss scale of 65536 overflows fp16 here, and the scaler skips those steps as it should; so the
    comparison starts from a scale that fits.
    """
    found = losses(tier("amp", force=True), steps=5, dtype=torch.float32, loss_scale=64.0)
    np.testing.assert_allclose(found, baseline_float32, rtol=2e-2)
    assert found != baseline_float32  # it did act


@pytest.mark.parametrize("lean", [False, True])
def test_forced_bf16_stays_near_the_baseline(lean, baseline_float32):
    """Bf16 has 8 bits: 4e-3 per rounding."""
    found = losses(tier("baseline", precision="bf16", lean=lean, force=True), steps=5, dtype=torch.float32)
    np.testing.assert_allclose(found, baseline_float32, rtol=5e-2)
    assert found != baseline_float32  # it did act


def test_fp16_skips_a_step_that_overflows(baseline_float32):
    """An overflow leaves the weights as they are: the second loss then equals the first, on the second batch."""
    engine = tier("amp", force=True)
    found = losses(engine, steps=2, dtype=torch.float32, loss_scale=2.0**40)
    assert np.isfinite(found).all()
    assert abs(found[1] - baseline_float32[1]) > 1e-3


def test_fp16_is_inactive_without_kernels(baseline_float32, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_fp16_supported", lambda: False)
    assert losses(tier("amp"), steps=5, dtype=torch.float32) == baseline_float32
