"""A small benchmark in real processes: benchmark.json, its rounds, and what a kill leaves."""

import contextlib
import io
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from processes import family, living, until
from small_model import random_people
from stage_runs import ROOT, call_stage, engines_of, write_config
from stores import write_strips

from faze.base.errors import UserError
from faze.benchmark.rounds import TierProcesses, measure_rounds, read_rounds, warm_up
from faze.config.parameters import Benchmark
from faze.config.validation import DEFAULTS, merge, read_yaml

TIERS = ["baseline", "autotune", "allocator_retention", "recompute"]
CHANGES = {
    "run": {"tiers": TIERS, "controls": []},
    "tiers": {"baseline": {"device": "cpu"}, "allocator_retention": {"on": "autotune"}, "recompute": {"on": None}},
    "benchmark": {"rounds": 1},
}
CONFIG = merge(read_yaml(DEFAULTS, ROOT / "config/sizes/smoke.yaml"), CHANGES)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("strips") / "strips.h5"
    write_strips(path, "gazecapture", random_people(("1", "train", 6), ("2", "train", 6), ("3", "val", 3)))
    return path


@pytest.fixture(scope="module")
def measured(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, str]:
    """Measure one tier that cannot differ here and two tiers that can; return the JSON and the printed text."""
    folder, printed = tmp_path_factory.mktemp("benchmark"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert call_stage("benchmark", folder, config=CONFIG, data=data, threads=1, out=folder / "benchmark.json") == 0
    return json.loads((folder / "benchmark.json").read_text()), printed.getvalue()


def test_every_tier_is_compared_with_the_first(measured) -> None:
    result, printed = measured
    tiers = result["tiers"]
    assert list(tiers) == TIERS and all(f"\n{tier}: " in printed for tier in TIERS)
    assert tiers["baseline"]["speedup"] == {"ratio": 1.0, "low": 1.0, "high": 1.0}
    assert "cuDNN" in tiers["autotune"]["same_as_baseline"] and tiers["recompute"]["same_as_baseline"] is None
    for tier in tiers.values():
        assert tier["phases_ms"].keys() == {"data", "copy", "forward", "backward", "optimizer"}
        [blocks] = tier["blocks_ms"]  # of one round
        assert len(blocks) == 2 and tier["step_ms"] == pytest.approx(np.median(blocks))
        assert tier["peak_gib"] > 0 and tier["warmup_s"] > 0 and tier["joules_per_step"] is None
        assert tier["simultaneous"]["comparisons"] == 2  # autotune cannot act
    assert result["disturbed"] is None or "idle machine" in result["disturbed"]


def test_shares_of_the_peaks_follow_from_work_time_and_peaks(measured) -> None:
    result = measured[0]
    copy_rate, product = result["roof"]["copy_gbytes_per_s"], result["roof"]["matmul_tflops"]["fp32"]
    for tier in result["tiers"].values():
        assert tier["tflops"] == pytest.approx(result["work"]["flop"] / tier["step_ms"] / 1e9)
        assert tier["share_of_matmul_roof"] == pytest.approx(tier["tflops"] / product["median"])
        assert tier["gbytes_per_s"] == pytest.approx(result["work"]["bytes"] / tier["step_ms"] / 1e6)
        assert tier["share_of_copy_roof"] == pytest.approx(tier["gbytes_per_s"] / copy_rate["median"])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the settings")
def test_each_tier_has_its_own_allocator(measured) -> None:
    """Regression: every process was forked from the same server, and so had the same allocator settings."""
    allocators = [{s["switch"]: s for s in row["switches"]}["allocator"] for row in measured[0]["tiers"].values()]
    assert [s["acted"] for s in allocators] == ["default", "default", "keep", "keep"]


@pytest.mark.kills
def test_a_killed_benchmark_keeps_its_rounds(data: Path, tmp_path: Path) -> None:
    own = write_config(tmp_path, "benchmark", {"benchmark": {"rounds": 3}, "run": {"tiers": TIERS[:1]}}, config=CONFIG)
    out, kept = tmp_path / "benchmark.json", tmp_path / "rounds.jsonl"
    command = [sys.executable, "-m", "faze", "benchmark", "--config", own, "--data", data, "--threads", "1"]
    command = [*map(str, command), "--out", str(out)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        until(out.exists, "the first round", seconds=120)
        started = family(process.pid)
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: not living(started), "the end of all processes", seconds=60)
    [first, *_] = json.loads(out.read_text())["tiers"]["baseline"]["blocks_ms"]
    with kept.open("a") as file:
        file.write('\n{"run": "cut o')
    assert subprocess.run(command, cwd=ROOT).returncode == 0
    result = json.loads(out.read_text())
    assert result["rounds"] == 3 and result["tiers"]["baseline"]["blocks_ms"][0] == first
    assert len([line for line in kept.read_text().split("\n") if line.startswith('{"run": "", ')]) == 3


def test_a_tier_is_timed_beside_its_previous_state(data: Path, tmp_path: Path) -> None:
    out, found = tmp_path / "tier_recompute.json", []
    for growth in (24, 4, 4):  # of the network; the third measurement adds rounds to the second one
        changes = merge(CONFIG, {"model": {"growth": growth}})
        options = {"tier": "recompute", "config": changes, "data": data, "threads": 1, "out": out}
        assert call_stage("measure", tmp_path, **options) == 0
        found.append(json.loads(out.read_text()))
    assert [(result["rounds"], "change" in result) for result in found] == [(3, False), (3, True), (6, True)]
    assert all(len(row["peaks_gib"]) == result["rounds"] for result in found for row in result["tiers"].values())
    change = found[2]["change"]
    assert change["state"] == found[0]["states"]["recompute"] and len(change["after"]["peaks_gib"]) == 6
    assert found[1]["change"]["after"]["blocks_ms"] == change["after"]["blocks_ms"][:3]


# --- with stand-ins for the processes ---------------------------------------------------------------------------------


class FakeTier:
    """A stand-in for the two processes of a tier; each step takes the slower one 0.1 s and 3 J."""

    def __init__(self, tier: str, journal: list[tuple[str, str]]) -> None:
        self.tier, self.journal = tier, journal

    def __enter__(self) -> "FakeTier":
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.append((self.tier, "end"))

    def receive(self) -> list[dict]:
        return [{"settling_steps": 0, "least_s": 0.0, "images": 8}] * 2

    def ask(self, request: str, *arguments: int) -> list[dict]:
        self.journal.append((self.tier, request))
        if self.tier == "broken":
            raise UserError("broken: its process exited early")
        block = {"joules": 3.0 * sum(arguments)}
        blocks = [{"seconds": each * sum(arguments)} | block for each in (0.05, 0.1)]
        answers = {"memory": [{"peak_gib": 1.0}, {"peak_gib": 0.5}], "phases": [{"forward": 100.0}]}
        return answers.get(request, blocks)


BENCHMARK = Benchmark(warmup_steps=2, warmup_blocks=3, block_steps=4, blocks=3, rounds=3)


def measured_rounds(tmp_path: Path, *tiers: str, one_at_a_time: bool) -> tuple[list[dict], list[tuple[str, str]]]:
    journal: list[tuple[str, str]] = []
    kept, states = tmp_path / "rounds.jsonl", states_of(tiers)
    for _ in measure_rounds(BENCHMARK, states, lambda tier: FakeTier(tier, journal), kept, "", one_at_a_time):
        pass
    return list(read_rounds(kept, states).values()), journal


def states_of(tiers: Iterable[str]) -> dict[str, str]:
    return {tier: f"state of {tier}" for tier in tiers}


def test_tiers_take_turns_in_alternating_order_that_is_drawn_anew_in_each_round(tmp_path: Path) -> None:
    rounds, journal = measured_rounds(tmp_path, *"abcd", one_at_a_time=False)
    assert [set(measured) for measured in rounds] == [set("abcd")] * 3
    others = read_rounds(tmp_path / "rounds.jsonl", {"a": "another state", "b": "state of b"})
    assert [set(measured) for measured in others.values()] == [{"b"}] * 3
    row, orders = rounds[0]["a"], set()
    assert row["blocks_ms"] == pytest.approx([100.0] * 3) and row["joules_per_step"] == pytest.approx(6.0)
    assert row["peak_gib"] == 1.5 and row["phases_ms"] == {"forward": 100.0} and row["warmup_steady"]
    assert row["warmup_s"] == pytest.approx(1.4) and row["warmup_steps"] == 14
    ends = [0, *(at for at, (_, request) in enumerate(journal, 1) if request == "end")]
    for begin, end in zip(ends[:-1:4], ends[4::4], strict=True):
        settled = max(at for at in range(begin, end) if journal[at][1] == "settle")
        turns = [tier for tier, request in journal[settled:end] if request == "block"]
        order = turns[:4]
        assert turns == [*order, *reversed(order), *order]
        orders.add(tuple(order))
    assert len(orders) == 3


def test_one_at_a_time_a_tier_that_cannot_run_does_not_stop_the_others(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="broken: its process exited early"):
        measured_rounds(tmp_path, "a", "broken", "b", one_at_a_time=True)
    rounds = read_rounds(tmp_path / "rounds.jsonl", states_of(["a", "b", "broken"]))
    assert [set(measured) for measured in rounds.values()] == [{"a", "b"}] * 3


@pytest.mark.parametrize(
    ("seconds", "steady"),
    [([9.0, 1.0, 1.1, 1.0], True), ([1.0, 1.0, 1.0, 1.12, 1.05], False), ([9.0, 2.0, 1.0, 1.05, 1.0], True)],
)
def test_a_warm_up_ends_when_three_blocks_take_about_the_same_time(seconds: list[float], steady: bool) -> None:
    """They differ by at most a tenth; the first block counts only as time. There are at most four further blocks."""
    left, settings = list(seconds), BENCHMARK.model_copy(update={"warmup_blocks": 4})
    tier = FakeTier("a", [])
    tier.ask = lambda request, steps: [{"seconds": left.pop(0), "joules": 0.0}]
    found = warm_up(tier, {"settling_steps": 3, "least_s": 10.0}, settings)
    assert left == [] and (found["warmup_s"], found["warmup_steady"]) == (pytest.approx(sum(seconds)), steady)
    assert found["warmup_steps"] == 3 + 2 + 4 * (len(seconds) - 1)
    assert found["block_steps"] == np.ceil(4 * 10 / seconds[-1])  # for a counter of energy


def test_a_process_that_ends_early_is_reported_in_one_sentence() -> None:
    ranks = engines_of({"ddp": {"parallel": "ddp", "processes": 2}})["ddp"]
    with (
        pytest.raises(UserError, match="some tier: its process exited early"),
        TierProcesses("some tier", ranks, ["no-such-command"]) as tier,
    ):
        tier.receive()
