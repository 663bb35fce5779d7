"""Clock, memory and intervals of the benchmark."""

import numpy as np
import pytest
import scipy.stats
import torch

from faze.measurement import MemoryPeak, PhaseClock, ratio_interval, student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 9, 40, 200])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.975, 0.995])
def test_student_quantile_equals_scipy(p, freedom):
    assert student_quantile(p, freedom) == pytest.approx(scipy.stats.t.ppf(p, freedom), rel=2e-4, abs=1e-6)


def test_ratio_interval_is_the_t_interval_of_the_logs():
    rng = np.random.default_rng(0)
    slow, fast = np.exp(rng.normal(1.0, 0.1, 12)), np.exp(rng.normal(0.0, 0.1, 12))
    found = ratio_interval(slow, fast)
    expected = scipy.stats.ttest_1samp(np.log(slow / fast), 0).confidence_interval(0.95)
    assert found["ratio"] == pytest.approx(scipy.stats.gmean(slow / fast))
    assert (found["low"], found["high"]) == pytest.approx(np.exp([expected.low, expected.high]), rel=1e-3)


def test_drift_that_meets_both_alike_leaves_the_ratio():
    drift = np.linspace(1, 3, 10)
    found = ratio_interval(2.0 * drift, 1.0 * drift)
    assert found["low"] == pytest.approx(2.0) and found["high"] == pytest.approx(2.0)


def test_memory_peak_sees_a_block_that_is_gone_again():
    held = torch.ones(2**22)  # before: not counted
    peak = MemoryPeak(torch.device("cpu"))
    torch.ones(2**24).sum()  # 64 MiB, freed at once
    found = peak.read()["peak_gib"]
    assert 0.06 < found < 0.2
    assert held.sum() > 0


def test_phase_clock_adds_up():
    clock = PhaseClock(torch.device("cpu"))
    for _ in range(2):
        with clock("forward"):
            torch.ones(1000).sum()
    assert set(clock.seconds) == {"forward"} and clock.seconds["forward"] > 0
