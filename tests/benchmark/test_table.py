"""The arithmetic of benchmark.json, compared with scipy's t tests."""

import numpy as np
import pytest
import scipy.stats
from stage_runs import engines_of

from faze.benchmark.table import ratio, tabulate


def measured(blocks_ms: list[float], peak_gib: float = 1.0, **about: object) -> dict:
    """Return one round of a tier."""
    row = {"blocks_ms": blocks_ms, "peak_gib": peak_gib, "phases_ms": {"forward": blocks_ms[0] / 2}, "switches": []}
    row |= {"joules_per_step": None, "warmup_s": 1.0, "warmup_steps": 10, "warmup_steady": True}
    return row | {"images": 16, "batch": 8, "devices": 1, "processes": 1, "threads": 2, "other_cores": 0.0} | about


def tabulated(rounds: list[dict], **tiers: dict) -> dict:
    return tabulate(rounds, engines_of({"baseline": {}} | tiers), is_cpu=True)


def t_interval(logs: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    found = scipy.stats.ttest_1samp(logs, 0).confidence_interval(confidence)
    return pytest.approx((np.exp(found.low), np.exp(found.high)))


def test_a_round_is_one_value_the_ratio_of_its_medians() -> None:
    slow, fast = [[100.0, 110.0, 900.0], [120.0] * 3, [90.0] * 3], [[50.0] * 3, [50.0, 40.0, 60.0], [45.0] * 3]
    found, logs = ratio(slow, fast), np.log([110 / 50, 120 / 50, 90 / 45])
    assert found["ratio"] == pytest.approx(np.exp(logs.mean())) and (found["low"], found["high"]) == t_interval(logs)


def test_an_interval_over_rounds_covers_what_processes_differ_by() -> None:
    """Regression: an interval over the blocks of a single process covered the truth in one of eight cases."""
    random = np.random.default_rng(0)
    covered = []
    for _ in range(200):
        processes, blocks = random.normal(0, 0.05, (2, 5, 1)), random.normal(0, 0.005, (2, 5, 4))
        found = ratio(*np.exp(processes + blocks))
        covered.append(found["low"] < 1 < found["high"])
    assert 0.9 < np.mean(covered) < 0.99


def test_too_few_rounds_give_an_interval_over_blocks_and_say_so() -> None:
    slow, fast = np.array([100.0, 104.0, 99.0, 102.0]), np.array([50.0, 51.0, 53.0, 49.0])
    rounds = [{"baseline": measured(slow.tolist()), "amp": measured(fast.tolist(), 0.5)}]
    result = tabulated(rounds, amp={"precision": "fp16"})
    row, logs = result["tiers"]["amp"], np.log(slow) - np.log(fast)
    assert result["rounds"] == 1 and result["speed_interval"] == {"confidence": 0.95, "over": "blocks"}
    assert row["speedup"]["ratio"] == pytest.approx(101 / 50.5)  # that of the times that are shown
    low, high = t_interval(logs).expected
    assert row["speedup"]["high"] / row["speedup"]["low"] == pytest.approx(high / low)
    assert row["memory_ratio"] == 2


def test_rows_compare_times_peaks_and_warm_ups_with_the_baseline() -> None:
    baseline, amp = [(100.0, 1.0), (120.0, 1.2), (110.0, 1.1)], [(50.0, 0.5), (40.0, 0.7), (55.0, 0.55)]
    rounds = [
        {"baseline": measured([a, a], p), "amp": measured([b, b], q, warmup_steady=b != 40.0)}
        for (a, p), (b, q) in zip(baseline, amp, strict=True)
    ]
    row = tabulated(rounds, amp={"precision": "fp16"}, bf16={"precision": "bf16"})["tiers"]["amp"]
    step_ms, ratios = (50 * 40 * 55) ** (1 / 3), [2.0, 1.2 / 0.7, 2.0]
    assert row["step_ms"] == pytest.approx(step_ms) and row["images_per_s"] == pytest.approx(16e3 / step_ms)
    assert row["step_ms_quartiles"] == [42.5, 53.75] and row["phases_ms"] == {"forward": 25.0}
    assert (row["peak_gib"], row["peak_gib_low"], row["peak_gib_high"]) == (0.55, 0.5, 0.7)
    assert row["memory_ratio"] == pytest.approx(scipy.stats.gmean(ratios))
    assert row["unsteady_rounds"] == 1
    extra_s, gained_ms = 1.0 - 10 * step_ms / 1e3, (100 * 120 * 110) ** (1 / 3) - step_ms
    assert row["pays_off_after_pairs"] == pytest.approx(8 * extra_s * 1e3 / gained_ms)


def test_intervals_of_a_tier_chosen_among_several_are_at_the_bonferroni_level() -> None:
    times = {"baseline": [10.0, 12.0, 11.0], "amp": [5.0, 7.0, 5.0], "bf16": [9.0, 8.0, 7.0]}
    rounds = [{tier: measured([of[n]] * 2, of[n] / 10) for tier, of in times.items()} for n in range(3)]
    row = tabulated(rounds, amp={"precision": "fp16"}, bf16={"precision": "bf16"})["tiers"]["amp"]["simultaneous"]
    expected = t_interval(np.log(times["baseline"]) - np.log(times["amp"]), 1 - 0.05 / 2)
    assert row["comparisons"] == 2
    assert (row["speedup"]["low"], row["speedup"]["high"]) == expected


def test_a_tier_that_cannot_act_has_the_baselines_step_and_does_not_count() -> None:
    switch = {"switch": "precision", "acted": "fp32"}
    rounds = [
        {
            "baseline": measured([100.0, 101.0], switches=[switch | {"wanted": "fp32", "reason": ""}]),
            "amp": measured([98.0, 99.0], switches=[switch | {"wanted": "fp16", "reason": "no kernels"}]),
            "recompute": measured([98.0, 99.0]),
        }
    ]
    tiers = tabulated(rounds, amp={"precision": "fp16"}, recompute={"recompute": True})["tiers"]
    assert "inactive" in tiers["amp"]["same_as_baseline"] and "no kernels" in tiers["amp"]["same_as_baseline"]
    assert tiers["baseline"]["same_as_baseline"] is tiers["recompute"]["same_as_baseline"] is None
    assert tiers["amp"]["simultaneous"]["comparisons"] == 1


def test_rounds_cut_short_show_the_tiers_measured_beside_the_baseline() -> None:
    rounds = [{"baseline": measured([10.0, 10.0]), "amp": measured([5.0, 5.0])}]
    rounds += [{"baseline": measured([30.0, 30.0])}, {"amp": measured([1.0, 1.0])}]
    result = tabulated(rounds, amp={"precision": "fp16"}, bf16={"precision": "bf16"})
    assert list(result["tiers"]) == ["baseline", "amp"] and result["rounds"] == 1
    assert result["tiers"]["amp"]["speedup"]["ratio"] == 2


@pytest.mark.parametrize(
    ("blocks", "other_cores", "words"),
    [
        ([100.0, 101.0], 0.02, None),
        ([100.0, 101.0], 0.7, "0.7 cores"),
        ([100.0, 300.0], 0.0, "quartiles of baseline are 50 %"),
    ],
)
def test_other_programs_are_reported_as_a_disturbance(blocks: list[float], other_cores: float, words: str) -> None:
    disturbed = tabulated([{"baseline": measured(blocks, other_cores=other_cores)}])["disturbed"]
    assert disturbed is None if words is None else words in disturbed
