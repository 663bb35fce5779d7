"""Commands that measure one tier: profile, largest batch, scaling."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from roofline_sizes import small_roofline

from faze.benchmark.meters import EnergyMeter
from faze.benchmark.roofline import count_work
from faze.benchmark.tier_steps import TierBlocks, prepare, read_people, tier_config
from faze.commands import profile
from faze.commands.largest_batch import largest
from faze.config.check import build, fields_of
from faze.config.parameters import Loss, Model, Train
from faze.config.stage_config import load, to_lines
from faze.config.tiers import resolve_tier
from faze.config.validation import read_config
from faze.config.yaml_files import merge
from faze.data.store.strips import PersonStrips, write_strips
from faze.engine.parallel import World
from faze.training.loop import Training

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "config" / "smoke.yaml"
SPEC = importlib.util.spec_from_file_location("scaling", ROOT / "benchmarks" / "scaling.py")
scaling = importlib.util.module_from_spec(SPEC)
sys.modules["scaling"] = scaling
SPEC.loader.exec_module(scaling)


@pytest.fixture(scope="module")
def tier_steps() -> Training:
    return small_tier({})


def small_tier(changes: dict) -> Training:
    small = {"model": {"growth": 2}, "tiers": {"baseline": {"device": "cpu"}}}
    config, engine = tier_config([SMOKE], "baseline", merge(small, changes))
    return prepare(World(0, 1, torch.device("cpu")), config, engine)()


def test_what_is_timed_is_the_step_as_it_trains() -> None:
    """Regression: strips were not augmented, and the process itself read them regardless of data.workers."""
    plain, augmented = small_tier({}), small_tier({"augment": {"jitter_px": 4.0, "color_scale": 0.2}})
    (as_stored,), (changed,) = (list(tier.feed(range(1))) for tier in (plain, augmented))
    assert not torch.equal(as_stored["image_a"], changed["image_a"])
    assert (plain.feed.transfer.workers, plain.feed.transfer.ahead) == (0, 0)
    assert small_tier({"data": {"workers": 2}}).feed.transfer.workers == 2


def test_what_is_read_ahead_is_used_up_before_steps_are_timed() -> None:
    tier, done = small_tier({"data": {"workers": 1}}), []
    counted = dataclasses.replace(tier, step=lambda *_: done.append(1))
    batches = counted.begin(2)
    assert len(done) == 3  # the first, and two that were read ahead meanwhile
    counted.run(batches)
    assert len(done) == 5


def test_only_later_blocks_use_up_what_was_read_ahead_while_others_ran() -> None:
    """The first block is the warm-up, timed from its first step. Regression: its first steps were left out."""
    tier, done = small_tier({"data": {"workers": 1}}), []
    counted = dataclasses.replace(tier, step=lambda *_: done.append(1))
    blocks = TierBlocks(counted, 4, EnergyMeter("none"))
    blocks.block(4)
    assert len(done) == 4
    blocks.block(4)
    assert len(done) == 8 + tier.feed.transfer.ahead > 8


def test_processes_of_a_tier_share_memory_gib(tmp_path: Path) -> None:
    """Regression: each process used the whole budget."""
    pixels, labels = np.zeros((32, 32, 128, 3), np.uint8), np.zeros((32, 4), np.float32)
    people = [PersonStrips("one", "train", [f"f{i}" for i in range(32)], pixels, labels)]
    write_strips(tmp_path / "strips.h5", "made-up", people)
    config, _ = tier_config([SMOKE], "baseline", {"data": {"memory_gib": pixels.nbytes / 2**30}})
    assert read_people(tmp_path / "strips.h5", config).cached
    assert not read_people(tmp_path / "strips.h5", config, processes_here=2).cached


def test_operations_share_all_the_time_and_know_their_work(tier_steps: Training) -> None:
    tier_steps.run(tier_steps.feed(range(1)))
    flop, traffic = profile.count_operations(tier_steps)
    profiler = profile.record(tier_steps, 2)
    found = profile.operations(profiler, 2, flop, traffic, on_gpu=False)
    assert sum(operation.share for operation in found) == pytest.approx(1)
    recorded = sum(event.self_cpu_time_total for event in profiler.events())
    assert sum(operation.ms for operation in found) == pytest.approx(recorded / 1e3 / 2)
    by_name = {operation.name: operation for operation in found}
    convolution, backward = by_name["aten::convolution"], by_name["aten::convolution_backward"]
    assert 1.9 < backward.flop / convolution.flop < 2  # by input and by kernel, but for the first layer
    assert not [name for name in by_name if "mkldnn_conv" in name]  # theirs is their caller's
    assert by_name["aten::native_layer_norm"].bytes and by_name["aten::native_layer_norm"].flop is None
    assert {"forward", "backward", "optimizer"} <= by_name.keys()  # what is left of each: Python


def test_rates_take_the_nearer_roof() -> None:
    operation = profile.ProfiledOperation("aten::mm", ms=2.0, share=0.5, flop=4_000_000_000, bytes=2_000_000_000)
    rates = operation.rates(copy=4e12, matmul=4e12)
    assert rates == {"gflop_per_s": 2000.0, "gbytes_per_s": 1000.0, "share_of_roof": 0.5}
    assert operation.rates(copy=1.25e12, matmul=4e12)["share_of_roof"] == 0.8
    unknown = profile.ProfiledOperation("triton", ms=2.0, share=0.5, flop=None, bytes=None)
    assert set(unknown.rates(1.0, 1.0).values()) == {None}


def test_profile_leaves_trace_and_tables(
    tier_steps: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profile, "Roofline", lambda device: small_roofline(copy_mib=8, order=128))
    profile.write(tier_steps, 1, tmp_path / "out")
    assert (tmp_path / "out" / "trace.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    found = json.loads((tmp_path / "out" / "operations.json").read_text())
    assert len(found["operations"]) == 10
    shares = [operation["share"] for operation in found["operations"]]
    assert shares == sorted(shares, reverse=True) and sum(shares) > 0.5  # the costliest of all
    words = (tmp_path / "out" / "operations.txt").read_text()
    assert words.count("\n") == 11 and words in capsys.readouterr().out


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5, 7, 8, 9, 31, 32, 33, 99, 100, 1000])
@pytest.mark.parametrize("multiple", [1, 4])
def test_search_finds_the_largest_and_tries_few(limit: int, multiple: int) -> None:
    tried: list[int] = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= limit

    assert largest(fits, most=100, multiple=multiple) == min(limit, 100) // multiple * multiple
    assert all(number % multiple == 0 and 0 < number <= 100 for number in tried)
    assert len(tried) == len(set(tried)) <= 14


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "faze", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)


def test_largest_batch_of_a_cpu_stays_within_the_memory_it_was_given() -> None:
    ended = run(
        "largest-batch",
        "--tier",
        "baseline",
        "--configfile",
        SMOKE,
        *["--memory-gib", "0.25", "--threads", "1", "--multiple", "16", "--most", "256"],
    )
    assert ended.returncode == 0, ended.stderr
    tried = {int(line.split()[0]): line for line in ended.stderr.splitlines() if "samples: " in line}
    found = int(ended.stdout.split(": ")[1].split()[0])
    assert 16 <= found < 256 and float(ended.stdout.split(", ")[1].split()[0]) <= 0.25
    assert "too large" not in tried[found] and "too large" in tried[found + 16]
    assert "MiB more for each sample" in ended.stdout


def test_steps_of_another_workload_are_built_with_any_batch(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text("name: tiny\nworkload: tiny_workload:Tiny\n")
    config, engine = tier_config([tmp_path / "tiny.yaml"], "baseline")
    for batch, expected in ((None, 8), (6, 6)):
        made = prepare(World(0, 1, torch.device("cpu")), config, engine, batch=batch)()
        (found,) = made.feed(range(1))
        assert {len(tensor) for tensor in found.values()} == {expected} and made.schedule.batch == expected
        made.run([found])


def test_largest_batch_of_a_cpu_needs_to_know_the_memory() -> None:
    ended = run("largest-batch", "--tier", "amp", "--configfile", SMOKE, "--most", "1")
    assert ended.returncode == 1
    assert "--memory-gib" in ended.stderr and ended.stderr.count("\n") == 1


def test_scaling_finds_the_coefficients_that_made_the_times() -> None:
    engine = resolve_tier(read_config([]), "baseline")
    cases = scaling.size_cases(engine, [2, 4, 8], [32, 64], threads=1)
    random = np.random.default_rng(0)
    blocks = {case.name: 30 + 1e-4 * case.pairs * 4 * case.height**2 + random.normal(0, 0.1, 10) for case in cases}
    found = scaling.fit_sizes(cases, blocks)
    assert found["a_ms"]["low"] < 30 < found["a_ms"]["high"] and found["a_ms"]["high"] - found["a_ms"]["low"] < 1
    assert found["b_ns_per_pixel_pair"]["mean"] == pytest.approx(100, rel=0.01)
    assert found["explained"] > 0.999


def test_scaling_parts_compute_from_communication() -> None:
    blocks = {"together1": [100.0, 102.0], "together4": [40.0, 41.0], "alone4": [26.0, 25.0]}
    one, four = scaling.communication([1, 4], blocks, gradient_bytes=8 * 2**20)
    assert one["speedup"]["ratio"] == 1.0 and "communication_ms" not in one
    assert four["speedup"]["ratio"] == pytest.approx(2.494, abs=1e-3)
    assert four["communication_ms"]["mean"] == 15.0
    assert four["exchanged_mib"] == 12.0


def test_scaling_gives_each_case_its_own_benchmark_file(tmp_path: Path) -> None:
    values = read_config([SMOKE])
    engine = resolve_tier(values, "baseline")
    together, alone = scaling.process_cases(engine, [2], 8, 64)
    for case, chunk, pairs in ((together, 4, 8), (alone, 4, 4)):
        path = tmp_path / f"{case.name}.yaml"
        path.write_text("\n".join(to_lines(scaling.resolved(case, values))) + "\n")
        loaded = load(path, "benchmark")
        assert loaded.engines == {case.name: case.engine}
        assert (loaded.train.global_batch, loaded.loss.chunk_pairs) == (pairs, chunk)
        assert (loaded.model.image_height_px, loaded.model.image_width_px) == (64, 256)
    assert (together.engine.parallel, together.threads, alone.engine.parallel, alone.threads) == ("ddp", 2, "single", 1)


def test_frozen_parts_cost_no_work_in_the_backward_pass() -> None:
    values = read_config([])
    train = build(Train, {key: value for key, value in values["train"].items() if key in fields_of(Train)})
    sections = build(Model, values["model"]), build(Loss, values["loss"])
    whole, frozen = (count_work(*sections, dataclasses.replace(train, frozen=parts)) for parts in ((), ("encoder",)))
    assert 0.5 * whole.flop < frozen.flop < 0.9 * whole.flop and frozen.bytes < whole.bytes
