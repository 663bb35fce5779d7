"""Learning rate and ramps against the released code's schedules."""

import numpy as np
import pytest

from faze.engine.schedule import decay, learning_rate, ramp


@pytest.mark.parametrize("name", ["bash_8gpu_b64", "paper_b1536", "single_b128", "single_b64"])
def test_schedules_equal_the_released_ones(numbers, name):
    misc = numbers("misc")
    base_lr, batch, devices, warmup, *_, weight, ramp_pairs = misc[f"sched/{name}/params"]
    global_batch = int(batch * devices)
    settings = {"base_lr": base_lr, "global_batch": global_batch, "warmup_pairs": int(warmup), "scaling": "linear"}
    steps = misc[f"sched/{name}/steps"]
    rates = [learning_rate(int(step) * global_batch, **settings) for step in steps]
    weights = [weight * ramp(int(step) * global_batch, int(ramp_pairs), global_batch) for step in steps]
    np.testing.assert_allclose(rates, misc[f"sched/{name}/lr"], rtol=1e-12)
    np.testing.assert_allclose(weights, misc[f"sched/{name}/embed_weight"], rtol=1e-12)


def test_ramp_without_length_is_climbed_at_once():
    assert ramp(0, 0, 16) == 1.0
    assert ramp(0, 8, 16) == 1.0  # shorter than a batch


def test_decay_is_a_half_cosine_at_the_end():
    assert [decay(pairs, 1000, 0.5) for pairs in (0, 500)] == [1.0, 1.0]
    assert decay(750, 1000, 0.5) == pytest.approx(0.5)
    assert decay(1000, 1000, 0.5) == pytest.approx(0.0)
    assert decay(999, 1000, 0.0) == 1.0


@pytest.mark.parametrize(("scaling", "peak"), [("linear", 0.5 * 64), ("sqrt", 0.5 * 8), ("none", 0.5)])
def test_peak_follows_the_global_batch(scaling, peak):
    settings = {"base_lr": 0.5, "global_batch": 64, "warmup_pairs": 640, "scaling": scaling}
    assert learning_rate(640, **settings) == peak
    assert learning_rate(0, **settings) == 0.5
    assert learning_rate(320, **settings) == pytest.approx((0.5 + peak) / 2)
