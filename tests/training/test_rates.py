"""Learning rates and ramps compared with the released schedules and hand-computed values."""

import numpy as np
import pytest

from faze.config.validation import read_config
from faze.training.dted import decay, part_rates, ramp

PLAN = {"pairs": 1000, "global_batch": 10, "base_lr": 0.01, "head_lr": 0.5, "warmup_pairs": 0, "decay_share": 0.5}
TRAIN = read_config().train.model_copy(update=PLAN)


@pytest.mark.parametrize("name", ["bash_8gpu_b64", "paper_b1536", "single_b128", "single_b64"])
def test_schedules_equal_the_released_ones(numbers, name: str) -> None:
    misc = numbers("misc")
    base_lr, batch, devices, warmup, *_, weight, ramp_pairs = misc[f"sched/{name}/params"]
    size = int(batch * devices)
    plan = {"base_lr": base_lr, "global_batch": size, "warmup_pairs": int(warmup)}
    steps, train = misc[f"sched/{name}/steps"], TRAIN.model_copy(update=plan)
    rates = [part_rates(int(step) * size, train)["encoder"] for step in steps]
    weights = [weight * ramp(int(step) * size, int(ramp_pairs), size) for step in steps]
    np.testing.assert_allclose(rates, misc[f"sched/{name}/lr"], rtol=1e-12)
    np.testing.assert_allclose(weights, misc[f"sched/{name}/embed_weight"], rtol=1e-12)


def test_ramp_shorter_than_a_batch_is_1_from_the_start() -> None:
    assert ramp(0, 0, 16) == ramp(0, 15, 16) == 1.0
    assert [ramp(pairs, 47, 16) for pairs in (0, 16, 32)] == [0.0, 0.5, 1.0]  # of two whole steps


def test_decay_is_a_half_cosine_at_the_end() -> None:
    found = [decay(pairs, 1000, 0.2) for pairs in (0, 800, 850, 900, 1000)]
    assert found == pytest.approx([1.0, 1.0, (1 + 0.5**0.5) / 2, 0.5, 0.0])
    assert decay(999, 1000, 0.0) == 1.0


def test_the_peak_is_proportional_to_the_global_batch() -> None:
    plan = {"base_lr": 0.5, "global_batch": 64, "warmup_pairs": 640}
    rates = [part_rates(pairs, TRAIN.model_copy(update=plan))["decoder"] for pairs in (0, 320, 640)]
    assert rates == pytest.approx([0.5, (0.5 + 32) / 2, 32])


def test_only_the_gaze_head_has_a_rate_of_its_own() -> None:
    train = TRAIN.model_copy(update={"warmup_pairs": 640})
    assert part_rates(0, train) == pytest.approx({"encoder": 0.01, "decoder": 0.01, "gaze_head": 0.5})
