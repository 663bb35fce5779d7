"""Rounds of fresh processes: arithmetic and order.

Regression: an interval over the blocks of a single process per tier covered the truth in only one of eight cases; the
roles of medians and blocks were exchanged, so the ratio differed from the quotient of the reported times.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from faze.benchmark import rounds as rounds_module
from faze.benchmark.processes import Job
from faze.benchmark.rounds import ROOFLINE, Rounds, TierRound, WarmUp, measure_rounds, warm_up
from faze.benchmark.rows import (
    about_rounds,
    compare,
    ratio_interval,
    rounds_interval,
    tier_rows,
)
from faze.config.parameters import Benchmark
from faze.evaluation.wording import peaks_differ

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Benchmark(warmup_steps=2, warmup_blocks=3, block_steps=4, blocks=2, rounds=3)


def described(engine: dict, **acted: str) -> dict:
    switches = [{"switch": key, "wanted": "", "acted": value, "reason": ""} for key, value in acted.items()]
    return {"engine": engine, "switches": switches, "energy": {}, "notes": [], "devices": 1}


def tier_round(blocks_ms: Sequence[float], peak_gib: float, *, steady: bool = True, **about: object) -> TierRound:
    description = {**described({}, precision="fp32"), **about}
    phases = {"forward": blocks_ms[0] / 2}
    warm = WarmUp(1.0, 10, steady, 0.4)
    return TierRound(description, warm, list(blocks_ms), None, {"peak_gib": peak_gib}, phases, [])


def drawn_rounds(random: np.random.Generator, rounds: int, blocks: int = 4) -> list[list[float]]:
    """Return block times in ms for a tier whose processes differ by 5 % and whose blocks differ by 0.5 %."""
    of_process = random.normal(0, 0.05, (rounds, 1))
    return (100 * np.exp(of_process + random.normal(0, 0.005, (rounds, blocks)))).tolist()


def test_an_interval_over_rounds_covers_what_processes_differ_by() -> None:
    random = np.random.default_rng(0)
    drawn = [(drawn_rounds(random, 5), drawn_rounds(random, 5)) for _ in range(200)]
    found = [rounds_interval(a, b) for a, b in drawn]
    assert 0.9 < np.mean([i["low"] < 1 < i["high"] for i in found]) < 0.99
    one_process = [ratio_interval(a[0], b[0]) for a, b in drawn]  # what it was
    assert np.mean([i["low"] < 1 < i["high"] for i in one_process]) < 0.4


def test_a_round_is_one_value_the_ratio_of_its_medians() -> None:
    slow, fast = [[100.0, 110.0, 900.0], [120.0] * 3, [90.0] * 3], [[50.0] * 3, [50.0, 40.0, 60.0], [45.0] * 3]
    found = rounds_interval(slow, fast)
    logs = np.log([110 / 50, 120 / 50, 90 / 45])
    expected = scipy.stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert found["ratio"] == pytest.approx(np.exp(logs.mean()))
    assert (found["low"], found["high"]) == pytest.approx(np.exp([expected.low, expected.high]), rel=1e-3)


def test_two_rounds_give_an_interval_over_blocks_and_say_so() -> None:
    found = rounds_interval([[100.0, 102.0], [200.0, 204.0]], [[100.0, 102.0], [100.0, 102.0]])
    assert found["ratio"] == pytest.approx(2**0.5) and found["low"] == found["high"] == found["ratio"]
    slow, fast = [100.0, 104.0, 99.0, 102.0], [50.0, 51.0, 53.0, 49.0]
    found = rounds_interval([slow], [fast])
    expected = scipy.stats.ttest_1samp(np.log(slow) - np.log(fast), 0).confidence_interval(0.95)
    assert found["high"] / found["low"] == pytest.approx(np.exp(expected.high - expected.low))
    found = [about_rounds(number)["speed_interval"] for number in (2, 3)]
    assert found == [{"confidence": 0.95, "over": "blocks"}, {"confidence": 0.95, "over": "rounds"}]


def test_peaks_of_every_round_with_their_spread_and_a_paired_ratio() -> None:
    baseline = [tier_round([100.0, 100.0], peak) for peak in (1.0, 1.2, 1.1)]
    tier = [tier_round([50.0, 50.0], peak) for peak in (0.5, 0.7, 0.55)]
    row = compare(tier, baseline)
    assert (row["peak_gib"], row["peak_gib_low"], row["peak_gib_high"]) == (0.55, 0.5, 0.7)
    assert row["peaks_gib"] == [0.5, 0.7, 0.55]
    logs = np.log([2.0, 1.2 / 0.7, 2.0])
    expected = np.exp(scipy.stats.ttest_1samp(logs, 0).confidence_interval(0.95))
    assert row["memory_ratio"] == pytest.approx(np.exp(logs.mean()))
    assert (row["memory_low"], row["memory_high"]) == pytest.approx(tuple(expected), rel=1e-3)
    assert compare(tier[:2], baseline[:2])["memory_low"] is None


@pytest.mark.parametrize(("peaks", "differ"), [
    ((0.9, 0.95, 0.99), True),
    ((1.21, 1.3, 1.4), True),
    ((0.9, 0.95, 1.0), False),  # they touch
    ((0.9, 1.1, 1.3), False),
    ((0.5, 0.6), False),  # too few to know a spread
])  # fmt: skip
def test_memory_differs_where_rounds_keep_apart(peaks: Sequence[float], differ: bool) -> None:
    def row(peaks: Sequence[float]) -> dict:
        return {"peaks_gib": peaks, "peak_gib_low": min(peaks), "peak_gib_high": max(peaks)}

    assert peaks_differ(row(peaks), row((1.0, 1.1, 1.2))) == differ


def test_what_does_the_baselines_step_is_marked_and_unsteady_warm_ups_are_counted() -> None:
    switch = {"switch": "precision", "wanted": "fp16", "acted": "fp32", "reason": "no kernels"}
    amp = {"engine": {"precision": "fp16"}, "switches": [switch]}
    first = {"engine": {"precision": "fp32"}, "switches": [switch | {"wanted": "fp32", "reason": ""}]}
    found = Rounds({
        "baseline": [tier_round([100.0, 101.0], 1.0, **first), tier_round([100.0, 99.0], 1.1, **first)],
        "amp": [tier_round([98.0, 99.0], 1.0, steady=False, **amp), tier_round([97.0, 99.0], 1.0, **amp)],
    })  # fmt: skip
    found.rates.copy.append(1e10)
    found.rates.matmul.update({"fp32": [1e11], "fp16": [1e11]})
    rows = tier_rows(found, work=SimpleNamespace(flop=1, bytes=1), batch=8, images=16)
    assert rows["baseline"]["same_as_baseline"] is None
    assert rows["amp"]["same_as_baseline"] == "inactive on this machine, so the step is the same: no kernels"
    assert (rows["amp"]["unsteady_rounds"], rows["amp"]["warmup_steady"]) == (1, False)
    assert (rows["baseline"]["unsteady_rounds"], rows["baseline"]["warmup_steady"]) == (0, True)
    assert rows["amp"]["phases_ms"] == {"forward": 48.75}  # the median of both rounds
    baseline_ms, amp_ms = (100.5 * 99.5) ** 0.5, (98.5 * 98.0) ** 0.5
    assert rows["amp"]["images_per_s"] == pytest.approx(2 * 8 / amp_ms * 1e3)
    assert rows["amp"]["step_ms_quartiles"] == [97.75, 99.0]
    extra_s = 1.0 - 10 * amp_ms / 1e3  # of the first warm-up: 10 steps in a second
    assert rows["amp"]["warmup_extra_s"] == pytest.approx(extra_s)
    assert rows["amp"]["pays_off_after_pairs"] == pytest.approx(8 * extra_s * 1e3 / (baseline_ms - amp_ms))
    assert rows["baseline"]["pays_off_after_pairs"] is None


def test_intervals_of_the_best_of_several_tiers_are_at_the_bonferroni_level() -> None:
    peaks, times = {"a": [1.0, 1.2, 1.1], "b": [0.5, 0.7, 0.5], "c": [0.9, 0.8, 0.7]}, {"a": 10.0, "b": 5.0, "c": 8.0}
    found = Rounds({
        tier: [tier_round([times[tier] * peak] * 2, peak, **described({"s": tier}, s=tier))
               for peak in peaks[tier]]
        for tier in peaks
    })  # fmt: skip
    found.rates.copy.append(1e10)
    found.rates.matmul["fp32"] = [1e11]
    row = tier_rows(found, work=SimpleNamespace(flop=1, bytes=1), batch=8, images=16)["b"]["simultaneous"]
    logs = np.log(peaks["a"]) - np.log(peaks["b"])
    expected = np.exp(scipy.stats.ttest_1samp(logs, 0).confidence_interval(1 - 0.05 / 2))
    assert row["comparisons"] == 2
    assert (row["memory"]["low"], row["memory"]["high"]) == pytest.approx(tuple(expected))
    assert (row["speedup"]["low"], row["speedup"]["high"]) == pytest.approx(tuple(2 * expected))


class FakeProcesses:
    """A stand-in for the two processes of one tier; every step takes the slower one 0.1 s and 3 J."""

    def __init__(self, name: str, journal: list[tuple[str, str]]) -> None:
        self.name, self.journal = name, journal
        acted = "x" if name in ("baseline", "amp") else name
        self.description = described({"s": name}, s=acted) | {"settling_steps": 0, "least_block_s": 0.0}

    def ask(self, do: str, steps: int = 0, number_format: str = "") -> list[dict]:
        self.journal.append((self.name, do))
        answers = {
            "memory": [{"peak_gib": 1.0}, {"peak_gib": 0.5}],
            "phases": [{"forward": 0.1}],
            "copy": [{"rate": 1.0}],
            "matmul": [{"rate": 1.0}],
        }
        block = [{"seconds": 0.05 * steps, "joules": None, "boards": []}]
        block += [{"seconds": 0.1 * steps, "joules": 3.0 * steps, "boards": []}]
        return answers.get(do, block)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[FakeProcesses]]:
    """Return the groups of processes that were started together, in order."""
    groups: list[list[FakeProcesses]] = []

    @contextlib.contextmanager
    def fake(servers: object, jobs: Mapping[str, Job]) -> Iterator[list[FakeProcesses]]:
        assert all(job is JOBS.get(name, ROOF) for name, job in jobs.items())
        journal: list[tuple[str, str]] = []
        groups.append([FakeProcesses(name, journal) for name in jobs])
        yield groups[-1]

    monkeypatch.setattr(rounds_module, "fork_servers", lambda _: contextlib.nullcontext({False: object()}))
    monkeypatch.setattr(rounds_module, "benchmark_processes", fake)
    return groups


TIERS = ("baseline", "amp", "ddp", "recompute")
JOBS = {tier: Job(lambda connection: None) for tier in TIERS}
ROOF = Job(lambda connection: None)


def test_each_round_starts_fresh_processes_in_an_order_of_its_own(started: list) -> None:
    found = measure_rounds(JOBS, SETTINGS, roofline=ROOF)
    orders = [[processes.name for processes in group] for group in started]
    assert [sorted(order) for order in orders] == [sorted([*TIERS, ROOFLINE])] * 3
    assert len({tuple(order) for order in orders}) > 1
    assert list(found.tiers) == list(TIERS) and all(len(rounds) == 3 for rounds in found.tiers.values())
    assert all(one.description["engine"] == {"s": tier} for tier, rounds in found.tiers.items() for one in rounds)
    assert len(found.rates.copy) == 3 * SETTINGS.blocks and found.tiers["recompute"][0].phases_ms == {"forward": 100.0}
    first = found.tiers["recompute"][0]
    assert first.blocks_ms == pytest.approx([100.0, 100.0]) and first.joules_per_step == pytest.approx(3.0)
    assert first.memory == {"peak_gib": 1.5}  # of both processes
    # Two steps, and three blocks of four steps, which take the same time.
    assert first.warm_up == WarmUp(pytest.approx(1.4), 14, True, pytest.approx(0.4))
    again = list(orders)
    started.clear()
    measure_rounds(JOBS, SETTINGS, roofline=ROOF)
    assert [[processes.name for processes in group] for group in started] == again  # seeded


@pytest.mark.parametrize(
    ("seconds", "steady"),
    [([9.0, 1.0, 1.1, 1.0], True), ([1.0, 1.0, 1.0, 1.12, 1.05], False), ([9.0, 2.0, 1.0, 1.05, 1.0], True)],
)
def test_a_warm_up_ends_when_three_blocks_take_about_the_same_time(seconds: list[float], steady: bool) -> None:
    """They differ by at most a tenth; the first block counts only as time. There are at most four further blocks."""
    left = list(seconds)
    tier = SimpleNamespace(description={"settling_steps": 3}, ask=lambda do, steps: [{"seconds": left.pop(0)}])
    found = warm_up(tier, SETTINGS.model_copy(update={"warmup_blocks": 4}))
    assert left == []
    assert found == WarmUp(pytest.approx(sum(seconds)), 3 + 2 + 4 * (len(seconds) - 1), steady, seconds[-1])


def test_tiers_take_turns_in_alternating_order(started: list) -> None:
    blocks = 5
    measure_rounds(JOBS, SETTINGS.model_copy(update={"blocks": blocks}))
    for group in started:
        journal, order = group[0].journal, [processes.name for processes in group]
        settled = max(at for at, (_, do) in enumerate(journal) if do == "settle")
        turns = [name for name, do in journal[settled:] if do == "block"]
        assert turns == [name for block in range(blocks) for name in (order if block % 2 == 0 else order[::-1])]


def test_one_at_a_time_no_two_tiers_are_there_together(started: list) -> None:
    found = measure_rounds(JOBS, SETTINGS, roofline=ROOF, one_at_a_time=True)
    assert [len(group) for group in started] == [1] * 15
    assert len(found.rates.matmul["fp32"]) == len(found.rates.copy) == 3 * SETTINGS.blocks
    assert [rounds[2].blocks_ms for rounds in found.tiers.values()] == [pytest.approx([100.0, 100.0])] * 4
