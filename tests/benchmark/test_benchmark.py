"""A small benchmark from its configuration to benchmark.json, in real processes; and its parts on their own."""

import copy
import dataclasses
import json
import math
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from roofline_sizes import small_roofline

from faze.benchmark.interleave import warm_up
from faze.benchmark.intervals import rounds_interval
from faze.benchmark.roofline import Roofline, count_work, number_format, shares
from faze.benchmark.rows import why_same
from faze.benchmark.tier_table import markdown_tables
from faze.config.check import build
from faze.config.parameters import Benchmark, Loss, Model, Train
from faze.config.stage_config import resolve, to_lines
from faze.config.tiers import leave_one_out, resolve_tier
from faze.config.validation import validate
from faze.config.yaml_files import merge, read_yaml
from faze.data.store.strips import PersonStrips, write_strips

ROOT = Path(__file__).resolve().parents[2]
DEFAULTS = read_yaml(ROOT / "config" / "config.yaml")
SETTINGS = Benchmark(
    2, warmup_blocks=5, steady_share=0.1, block_steps=4, blocks=2, rounds=1, leave_one_out=False, paper_width=False
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)

    def person(name: str) -> PersonStrips:
        pixels = random.integers(0, 256, (6, 64, 256, 3), dtype=np.uint8)
        labels = random.normal(0, 0.2, (6, 4)).astype(np.float32)
        return PersonStrips(name, "train", [f"{i}.jpg" for i in range(6)], pixels, labels)

    path = tmp_path_factory.mktemp("data") / "gazecapture.h5"
    write_strips(path, "gazecapture", [person("1"), person("2")])
    return path


@pytest.fixture(scope="module")
def measured(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, str]:
    """benchmark.json of a ladder with a rung that cannot act here and two that do, and what was printed."""
    folder = tmp_path_factory.mktemp("benchmark")
    tiers = {"baseline": DEFAULTS["tiers"]["baseline"] | {"device": "cpu"}}
    tiers |= {"autotune": {"cudnn_benchmark": True}, "set_to_none": {"set_to_none": True}}
    tiers |= {"allocator_retention": {"allocator": "keep"}, "recompute": {"recompute": True}}
    values = merge(DEFAULTS, read_yaml(ROOT / "config" / "smoke.yaml")) | {"tiers": tiers}
    values["run"] = {"tiers": ["baseline", "recompute"], "seeds": [0], "controls": []}
    values["benchmark"] = values["benchmark"] | {"leave_one_out": True}
    path, out = folder / "benchmark.yaml", folder / "benchmark.json"
    path.write_text("\n".join(to_lines(resolve(validate(values), "benchmark"))) + "\n")
    command = [
        sys.executable,
        "-m",
        "faze",
        "benchmark",
        "--config",
        path,
        "--data",
        data,
        "--threads",
        "1",
        "--out",
        out,
    ]
    ended = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr
    return json.loads(out.read_text()), ended.stdout


def test_every_tier_is_measured_against_the_first(measured: tuple[dict, str]) -> None:
    tiers = measured[0]["tiers"]
    assert list(tiers) == ["baseline", "recompute"]
    assert tiers["baseline"]["speedup"] == {"ratio": 1.0, "low": 1.0, "high": 1.0}
    for tier in tiers.values():
        assert tier["phases_ms"].keys() == {"data", "copy", "forward", "backward", "optimizer"}
        [blocks] = tier["blocks_ms"]  # of one round
        assert len(blocks) == 2 and tier["step_ms"] == pytest.approx(np.median(blocks))
        assert tier["peak_gib"] > 0 and tier["warmup_s"] > 0 and tier["warmup_steps"] >= 1 + 3
        assert (tier["joules_per_step"] is None) == bool(tier["energy"]["reason"])


def test_each_share_of_the_roof_follows_from_work_time_and_roof(measured: tuple[dict, str]) -> None:
    result = measured[0]
    copy, product = result["roof"]["copy_gbytes_per_s"], result["roof"]["matmul_tflops"]["fp32"]
    for tier in result["tiers"].values():
        assert tier["tflops"] == pytest.approx(result["work"]["flop"] / tier["step_ms"] / 1e9)
        assert tier["share_of_matmul_roof"] == pytest.approx(tier["tflops"] / product["median"])
        assert tier["gbytes_per_s"] == pytest.approx(result["work"]["bytes"] / tier["step_ms"] / 1e6)
        assert tier["share_of_copy_roof"] == pytest.approx(tier["gbytes_per_s"] / copy["median"])
        assert 0 < tier["share_of_matmul_roof"] < 1


def test_leave_one_outs_are_measured_against_the_topmost_tier(measured: tuple[dict, str]) -> None:
    left_out = measured[0]["leave_one_out"]
    assert left_out["of"] == "recompute"
    assert list(left_out["left_out"]) == ["set_to_none", "allocator_retention", "recompute", "autotune"]
    assert "same" not in left_out["left_out"]["set_to_none"]
    without_recompute = left_out["left_out"]["recompute"]
    assert without_recompute["memory_ratio"] == pytest.approx(
        left_out["full"]["peak_gib"] / without_recompute["peak_gib"]
    )
    assert without_recompute["speedup"] == rounds_interval(
        left_out["full"]["blocks_ms"], without_recompute["blocks_ms"]
    )
    assert {s["switch"]: s["acted"] for s in without_recompute["switches"]}["recompute"] == "false"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone can be told to keep memory")
def test_only_tiers_that_keep_memory_are_measured_so(measured: tuple[dict, str]) -> None:
    """Seen red: every process started alike."""
    tiers, left_out = measured[0]["tiers"], measured[0]["leave_one_out"]
    found = [tiers["baseline"], tiers["recompute"], left_out["full"], left_out["left_out"]["allocator_retention"]]
    allocators = [{s["switch"]: s for s in row["switches"]}["allocator"] for row in found]
    assert [s["acted"] for s in allocators] == ["default", "keep", "keep", "default"]
    assert not any(s["reason"] for s in allocators)


def test_a_switch_that_cannot_act_here_is_not_measured_and_says_why(measured: tuple[dict, str]) -> None:
    assert measured[0]["leave_one_out"]["left_out"]["autotune"] == {
        "same": "inactive here, so the same step: cuDNN runs on CUDA devices only"
    }


def test_the_ledger_is_printed_with_a_row_each(measured: tuple[dict, str]) -> None:
    result, printed = measured
    assert markdown_tables(result) in printed
    for row in (
        "| baseline |",
        "| recompute | allocator keep (keep); cudnn_benchmark true inactive: cuDNN",
        "| set_to_none |",
        "| autotune |  | inactive",
    ):
        assert sum(line.startswith(row) for line in printed.splitlines()) == 1, row


def test_the_ledger_names_switches_that_ceased_to_act_and_when_a_warm_up_pays_off(measured: tuple[dict, str]) -> None:
    result = copy.deepcopy(measured[0])
    before, after = result["tiers"]["baseline"], result["tiers"]["recompute"]
    for tier, acted in ((before, "true"), (after, "false")):
        (switch,) = [switch for switch in tier["switches"] if switch["switch"] == "channels_last"]
        switch |= {"wanted": "true", "acted": acted, "reason": "" if acted == "true" else "planes"}
    after |= {"pays_off_after_pairs": 12345.6, "reserved_gib": 1.25}
    row = next(line for line in markdown_tables(result).splitlines() if line.startswith("| recompute |"))
    assert "channels_last true inactive: planes" in row and "(1.250 reserved)" in row and row.endswith("| 12,346 |")
    after["pays_off_after_pairs"] = None
    row = next(line for line in markdown_tables(result).splitlines() if line.startswith("| recompute |"))
    assert row.endswith("| never |")


def test_the_ledger_command_prints_the_same(measured: tuple[dict, str], tmp_path: Path) -> None:
    path = tmp_path / "benchmark.json"
    path.write_text(json.dumps(measured[0]))
    command = [sys.executable, "-m", "faze", "ledger"]
    ended = subprocess.run([*command, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, markdown_tables(measured[0]))
    path.write_text("{")
    ended = subprocess.run([*command, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and ended.stderr.startswith(f"faze ledger: {path}: ") and ended.stderr.count("\n") == 1


LADDER = {
    "a": DEFAULTS["tiers"]["baseline"],
    "b": {"precision": "fp16"},
    "c": {"recompute": True},
    "d": {"precision": "bf16"},
}


def test_leave_one_out_takes_back_one_rung_and_keeps_the_others() -> None:
    variants = leave_one_out(LADDER, "d")
    full = resolve_tier(LADDER, "d")
    assert list(variants) == ["b", "c", "d"]
    assert variants["b"] == full  # d sets the same switch
    assert variants["c"] == dataclasses.replace(full, recompute=False)
    assert variants["d"] == dataclasses.replace(full, precision="fp16")


def test_leave_one_out_stops_at_the_tier_and_of_the_first_there_is_none() -> None:
    assert list(leave_one_out(LADDER, "c")) == ["b", "c"]
    assert leave_one_out(LADDER, "a") == {}


def test_the_topmost_tier_is_the_ladders_last_whatever_the_order_of_run_tiers() -> None:
    values = merge(DEFAULTS, {"run": {"tiers": ["recompute", "baseline", "amp"]}, "benchmark": {"leave_one_out": True}})
    flat = resolve(validate(values), "benchmark")
    assert flat["leave_one_out.amp.recompute"] is True
    assert flat["leave_one_out.recompute.recompute"] is False
    values["benchmark"]["leave_one_out"] = False
    assert not [key for key in resolve(values, "benchmark") if key.startswith("leave_one_out.")]


def describe(engine: dict, **acted: str) -> dict:
    switches = [{"switch": key, "wanted": "", "acted": value, "reason": ""} for key, value in acted.items()]
    return {"engine": engine, "switches": switches}


@pytest.mark.parametrize(
    ("variant", "same"),
    [
        (describe({"recompute": True, "foreach": False}, recompute="true"), True),  # a later rung
        (describe({"recompute": False, "foreach": False}, recompute="false"), False),
        (describe({"recompute": False, "foreach": False}, recompute="true"), True),
        (describe({"recompute": True, "foreach": True}, recompute="true"), False),  # no switch speaks of foreach
    ],
)
def test_same_is_only_what_is_known_to_act_the_same(variant: dict, same: bool) -> None:
    assert bool(why_same(describe({"recompute": True, "foreach": False}, recompute="true"), variant)) == same


class Pace:
    """A tier whose steps take the given seconds, one entry per block."""

    def __init__(self, *seconds: float, settling_steps: int = 0) -> None:
        self.seconds = list(seconds)
        self.description = {"settling_steps": settling_steps}
        self.asked: list[int] = []

    def ask(self, do: str, steps: int) -> list[dict]:
        self.asked.append(steps)
        return [{"seconds": self.seconds.pop(0)}]


def test_warm_up_ends_when_three_blocks_are_alike() -> None:
    tier = Pace(100.0, 9.0, 5.0, 4.1, 4.0, 4.05, 1.0)
    warm = warm_up(tier, SETTINGS)
    assert tier.asked == [2, 4, 4, 4, 4, 4]
    assert (warm.steps, warm.seconds, warm.steady) == (22, pytest.approx(126.15), True)


def test_warm_up_compares_blocks_of_the_same_length_only() -> None:
    assert warm_up(Pace(4.0, 4.0, 4.0, 4.0, 1.0), SETTINGS).steps == 14


def test_warm_up_begins_with_the_steps_that_settle() -> None:
    tier = Pace(4.0, 4.0, 4.0, 4.0, 1.0, settling_steps=3)
    assert warm_up(tier, SETTINGS).steps == 17
    assert tier.asked == [5, 4, 4, 4]


def test_warm_up_ends_unsteady_after_its_most_blocks() -> None:
    warm = warm_up(Pace(1, 1, 2, 1, 2, 1), SETTINGS)
    assert (warm.steps, warm.steady) == (22, False)


def test_the_work_of_the_papers_step_is_that_of_the_literature_of_this_network() -> None:
    """19 GFLOP a pair; a convolution counted by hand."""
    model = build(Model, DEFAULTS["model"])
    model = dataclasses.replace(model, growth=32, blocks=4, image_height_px=64, image_width_px=256)
    train = dataclasses.replace(build(Train, DEFAULTS["train"]), global_batch=8)
    loss = build(Loss, DEFAULTS["loss"])
    work = count_work(model, loss, train)
    assert work.flop / 8 == pytest.approx(19.01e9, rel=1e-3)
    # Proportional to the pairs but for the optimiser and the pairwise loss.
    twice = count_work(model, loss, dataclasses.replace(train, global_batch=16))
    assert twice.flop == pytest.approx(2 * work.flop, rel=1e-6)
    assert 1.8 * work.bytes < twice.bytes < 2 * work.bytes


def test_the_roof_is_higher_than_nothing_and_of_the_right_unit() -> None:
    """A copy of 8 MiB and a product of order 128: a machine of this decade does between these rates."""
    roof = small_roofline(copy_mib=8, order=128)
    assert 1e8 < roof.copy()["rate"] < 1e13
    assert 1e8 < roof.matmul("fp32")["rate"] < 1e14


def test_roof_counts_reading_and_writing_and_two_flop_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    roof = small_roofline(copy_mib=2, order=10)
    monkeypatch.setattr(Roofline, "_per_second", lambda self, call: 3.0)
    assert roof.copy()["rate"] == 3 * 2 * 2 * 2**20
    assert roof.matmul("bf16")["rate"] == 3 * 2 * 1000


def test_shares_of_several_devices() -> None:
    work = dataclasses.replace(count_small(), flop=4_000, bytes=2_000)
    found = shares(work, step_ms=1e3, copy=1e3, matmul=1e3, devices=4)
    assert (found["share_of_matmul_roof"], found["share_of_copy_roof"]) == (1.0, 0.5)
    assert math.isclose(found["tflops"], 4e-9) and math.isclose(found["gbytes_per_s"], 2e-6)


def count_small():
    model = dataclasses.replace(build(Model, DEFAULTS["model"]), growth=2)
    return count_work(model, build(Loss, DEFAULTS["loss"]), build(Train, DEFAULTS["train"]))


@pytest.mark.parametrize(
    ("precision", "tf32", "expected"),
    [
        (("fp32", ""), ("false", ""), "fp32"),
        (("fp32", ""), ("true", ""), "tf32"),
        (("bf16", ""), ("true", ""), "bf16"),
        (("fp16", ""), ("false", ""), "fp16"),
        (("fp16", "no kernels"), ("false", ""), "fp32"),
        (("fp16", "no kernels"), ("true", ""), "tf32"),
        (("fp32", ""), ("true", "not CUDA"), "fp32"),
    ],
)
def test_number_format_of_a_tier_whatever_the_words_of_its_switches(precision, tf32, expected: str) -> None:
    switches = [
        {"switch": name, "wanted": wanted, "acted": "some words", "reason": reason}
        for name, (wanted, reason) in (("precision", precision), ("tf32", tf32))
    ]
    assert number_format(switches) == expected


def test_the_leave_one_outs_of_an_older_file_are_read(measured: tuple[dict, str]) -> None:
    older = copy.deepcopy(measured[0])
    rows = older["leave_one_out"].pop("left_out")
    older["leave_one_out"]["without"] = {f"without_{rung}": row for rung, row in rows.items()}
    assert markdown_tables(older) == markdown_tables(measured[0])


def test_the_table_of_an_older_file_is_as_it_was(measured: tuple[dict, str]) -> None:
    """Of one process each, with flat blocks, and neither least nor most: its ratios of memory are told as they are."""
    older = {key: copy.deepcopy(measured[0][key]) for key in ("machine", "work", "roof", "tiers")}
    for tier in older["tiers"].values():
        for name in ("peaks_gib", "peak_gib_low", "peak_gib_high", "memory_low", "memory_high", "same_as_baseline"):
            del tier[name]
        tier |= {"blocks_ms": tier["blocks_ms"][0], "peak_gib": 0.125, "memory_ratio": 2.0}
    row = next(line for line in markdown_tables(older).splitlines() if line.startswith("| recompute |"))
    assert "| 0.125 | 2.00× less |" in row
    assert "In brackets 95 % intervals over blocks; 1 round of fresh processes." in markdown_tables(older)
