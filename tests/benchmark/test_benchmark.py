"""A small benchmark in real processes, from its configuration to benchmark.json and its tables."""

import copy
import dataclasses
import json
import platform
import re
from collections.abc import Callable

import numpy as np
import pytest
from stage_runs import defaults

from faze.base.cgroup import throttling
from faze.benchmark.rows import rounds_interval
from faze.benchmark.tier_table import markdown_tables
from faze.config.stage_config import Resolved, build_config, resolve
from faze.config.tiers import leave_one_out, resolve_tier
from faze.config.validation import read_config, validate
from faze.config.yaml_files import PAPER, merge
from faze.stages.benchmark import at_paper_width

PAPER_SIZES = ("growth", "blocks", "image_height_px", "image_width_px")


def row_of(result: dict, name: str) -> str:
    return next(line for line in markdown_tables(result).splitlines() if line.startswith(f"| {name} |"))


def test_every_tier_is_compared_with_the_first(measured) -> None:
    tiers = measured[0]["tiers"]
    assert list(tiers) == ["baseline", "autotune", "allocator_retention", "recompute"]
    assert tiers["baseline"]["speedup"] == {"ratio": 1.0, "low": 1.0, "high": 1.0}
    for tier in tiers.values():
        assert tier["phases_ms"].keys() == {"data", "copy", "forward", "backward", "optimizer"}
        [blocks] = tier["blocks_ms"]  # of one round
        assert len(blocks) == 2 and tier["step_ms"] == pytest.approx(np.median(blocks))
        assert tier["peak_gib"] > 0 and tier["warmup_s"] > 0 and tier["warmup_steps"] >= 1 + 3
        assert (tier["joules_per_step"] is None) == bool(tier["energy"]["reason"])


def test_simultaneous_intervals_are_wider_and_count_the_tiers_that_act(measured) -> None:
    for name, tier in measured[0]["tiers"].items():
        found = tier["simultaneous"]
        assert found["comparisons"] == 2 and found["memory"] is None  # autotune cannot act; one round
        assert found["speedup"]["ratio"] == tier["speedup"]["ratio"]
        if name != "baseline":
            assert found["speedup"]["low"] < tier["speedup"]["low"] < tier["speedup"]["high"] < found["speedup"]["high"]


def test_shares_of_the_peaks_follow_from_work_time_and_peaks(measured) -> None:
    result = measured[0]
    copy, product = result["roof"]["copy_gbytes_per_s"], result["roof"]["matmul_tflops"]["fp32"]
    for tier in result["tiers"].values():
        assert tier["tflops"] == pytest.approx(result["work"]["flop"] / tier["step_ms"] / 1e9)
        assert tier["share_of_matmul_roof"] == pytest.approx(tier["tflops"] / product["median"])
        assert tier["gbytes_per_s"] == pytest.approx(result["work"]["bytes"] / tier["step_ms"] / 1e6)
        assert tier["share_of_copy_roof"] == pytest.approx(tier["gbytes_per_s"] / copy["median"])
        assert 0 < tier["share_of_matmul_roof"] < 1


def test_leave_one_outs_are_compared_with_the_top_tier(measured) -> None:
    result = measured[0]["leave_one_out"]
    full, left_out = result["full"], result["left_out"]
    assert result["of"] == "recompute"
    assert list(left_out) == ["allocator_retention", "recompute", "autotune"]
    assert left_out["autotune"].keys() == {"same"} and "cuDNN" in left_out["autotune"]["same"]
    without_recompute = left_out["recompute"]
    assert without_recompute["memory_ratio"] == pytest.approx(full["peak_gib"] / without_recompute["peak_gib"])
    assert without_recompute["speedup"] == rounds_interval(full["blocks_ms"], without_recompute["blocks_ms"])
    assert {s["switch"]: s["acted"] for s in without_recompute["switches"]}["recompute"] == "false"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the settings")
def test_each_tier_has_its_own_allocator(measured) -> None:
    """Regression: every process was forked from the same server, and so had the same allocator settings."""
    tiers, leave_one_out = measured[0]["tiers"], measured[0]["leave_one_out"]
    without = leave_one_out["left_out"]["allocator_retention"]
    found = [tiers["baseline"], tiers["recompute"], leave_one_out["full"], without]
    allocators = [{s["switch"]: s for s in row["switches"]}["allocator"] for row in found]
    assert [s["acted"] for s in allocators] == ["default", "keep", "keep", "default"]
    assert not any(s["reason"] for s in allocators)


def test_stage_and_ledger_command_print_the_tables(measured, tmp_path, run_stage, capsys) -> None:
    result, printed = measured
    tables = markdown_tables(result)
    assert tables in printed
    for row in ("baseline", "autotune", "allocator_retention", "recompute"):
        assert sum(line.startswith(f"| {row} |") for line in tables.splitlines()) in (1, 2), row
    assert "on baseline: cudnn_benchmark true inactive: cuDNN" in row_of(result, "autotune")
    assert "on allocator_retention: recompute true (true)" in row_of(result, "recompute")
    path = tmp_path / "benchmark.json"
    path.write_text(json.dumps(result))
    assert run_stage("ledger", None, path) == 0 and capsys.readouterr().out == tables
    path.write_text("{")
    assert run_stage("ledger", None, path) == 1
    error = capsys.readouterr().err
    assert str(path) in error and error.count("\n") == 1


def test_table_names_switches_that_no_longer_act_and_when_a_warm_up_pays_off(measured) -> None:
    result = copy.deepcopy(measured[0])
    before, after = result["tiers"]["baseline"], result["tiers"]["recompute"]
    for tier, acted in ((before, "true"), (after, "false")):
        (switch,) = [switch for switch in tier["switches"] if switch["switch"] == "channels_last"]
        switch |= {"wanted": "true", "acted": acted, "reason": "" if acted == "true" else "planes"}
    after |= {"pays_off_after_pairs": 12345.6, "reserved_gib": 1.25, "throttled": ["power cap"]}
    row = row_of(result, "recompute")
    assert "channels_last true inactive: planes" in row and "(1.250 reserved)" in row and row.endswith("| 12,346 |")
    assert "throttled: power cap" in row and "throttled" not in row_of(result, "baseline")
    result["speed_interval"] = {"confidence": 0.9, "over": "rounds"}
    assert "90 % intervals over rounds" in markdown_tables(result)
    after["pays_off_after_pairs"] = None
    assert row_of(result, "recompute").endswith("| never |")


def test_a_cpu_quota_that_stopped_the_benchmark_is_recorded_and_printed(measured) -> None:
    """Regression: the times of a container that was stopped in 216 of 308 periods looked like the machine's."""
    result = copy.deepcopy(measured[0])
    assert (result["cpu_throttling"] is None) == (throttling() == {}) and "quota" not in markdown_tables(result)
    result["cpu_throttling"] = {"periods": 308, "throttled_periods": 216, "throttled_s": 12.0}
    assert "216 of 308 periods" in markdown_tables(result)


TIERS = {
    "a": defaults()["tiers"]["baseline"],
    "b": {"precision": "fp16"},
    "c": {"recompute": True},
    "d": {"precision": "bf16"},
}


def test_leave_one_out_removes_one_change_and_keeps_the_others() -> None:
    config = {"tiers": TIERS, "run": {"tiers": ["a", "b", "c", "d"]}}
    variants, full = leave_one_out(config), resolve_tier(config, "d")
    assert list(variants) == ["b", "c", "d"]
    assert variants["b"] == full  # d sets the same switch
    assert variants["c"] == dataclasses.replace(full, recompute=False)
    assert variants["d"] == dataclasses.replace(full, precision="fp16")
    assert list(leave_one_out(config | {"run": {"tiers": ["a", "b", "c", "d on b"]}})) == ["b", "d"]
    assert leave_one_out(config | {"run": {"tiers": ["a"]}}) == {}


def test_the_tier_with_variants_is_the_last() -> None:
    changes = {"run": {"tiers": ["baseline", "amp", "recompute"]}, "benchmark": {"leave_one_out": True}}
    values = merge(defaults(), changes)
    flat = resolve(validate(values), "benchmark")
    assert flat["leave_one_out.amp.recompute"] is True
    assert flat["leave_one_out.recompute.recompute"] is False
    values["benchmark"]["leave_one_out"] = False
    assert not [key for key in resolve(values, "benchmark") if key.startswith("leave_one_out.")]


def wide(changes: dict) -> Resolved | None:
    values = validate(merge(read_config([]), changes))
    return at_paper_width(build_config(resolve(values, "benchmark"), "benchmark", "config"))


def test_the_papers_width_is_that_of_its_configuration() -> None:
    config, paper = wide({}), read_config([PAPER])["model"]
    assert dataclasses.asdict(config.model) == paper and paper["growth"] == 32
    assert (config.train.global_batch, config.loss.chunk_pairs) == (8, 4)  # two chunks, as by default
    assert (config.benchmark.rounds, config.benchmark.blocks, config.benchmark.block_steps) == (3, 2, 1)


@pytest.mark.parametrize("changes", [
    {"benchmark": {"paper_width": []}},
    {"run": {"tiers": ["baseline", "amp"]}},  # none of the tiers in its list
    {"model": {name: read_config([PAPER])["model"][name] for name in PAPER_SIZES}},  # the tiers are as wide
    {"preprocess": {"height_px": 32, "width_px": 128}},  # smaller strips than the paper's
])  # fmt: skip
def test_the_papers_width_is_measured_only_where_it_is_wanted_and_new(changes: dict) -> None:
    assert wide(changes) is None


def test_rounds_and_the_papers_width(run_benchmark: Callable) -> None:
    tiers = {"baseline": defaults()["tiers"]["baseline"] | {"device": "cpu"}, "bare": {}, "lean": {"recompute": True}}
    changes = {
        "run": {"tiers": ["baseline", "bare", "lean"], "controls": []},
        "benchmark": {"rounds": 1, "paper_width": ["lean"]},
    }
    result, _ = run_benchmark(changes, tiers=tiers)
    assert list(result["tiers"]) == ["baseline", "bare", "lean"]
    assert list(result["paper_width"]["tiers"]) == ["baseline", "lean"]
    assert result["rounds"] == 1 and result["speed_interval"] == {"confidence": 0.95, "over": "blocks"}
    small, large = result["tiers"]["baseline"], result["paper_width"]["tiers"]["baseline"]
    for row in (small, large):
        assert len(row["peaks_gib"]) == len(row["blocks_ms"]) == 1
        assert 0 < row["peak_gib_low"] <= row["peak_gib"] <= row["peak_gib_high"]
    assert large["peak_gib"] > 3 * small["peak_gib"]  # activations
    assert result["paper_width"]["global_batch"] == 8 and result["paper_width"]["model"]["growth"] == 32
    text = markdown_tables(result)
    assert re.search(r"\| baseline \| \d\S* \| 1 \| [^|]+ \| 1 \|", text[text.index("growth 32, 64 x 256, 8 pairs") :])
