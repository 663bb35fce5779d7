"""Commands that measure one tier: profile, largest batch."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from faze.benchmark.meters import EnergyMeter
from faze.benchmark.roofline import count_work
from faze.benchmark.tier_steps import TierBlocks, prepare, tier_config
from faze.commands import profile
from faze.commands.largest_batch import largest
from faze.config.validation import merge, read_config
from faze.engine.parallel import World
from faze.training.loop import Training

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "config/sizes/smoke.yaml"


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


def test_only_later_blocks_use_up_what_was_read_ahead_while_others_ran() -> None:
    """The first block is the warm-up, timed from its first step. Regression: its first steps were left out."""
    tier, done = small_tier({"data": {"workers": 1}}), []
    counted = dataclasses.replace(tier, step=lambda *_: done.append(1))
    blocks = TierBlocks(counted, 4, EnergyMeter("none"))
    blocks.block(4)
    assert len(done) == 4
    blocks.block(4)
    assert len(done) == 8 + tier.feed.transfer.ahead > 8


def test_profile_leaves_trace_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile.main(tier="baseline", configfile=[SMOKE], steps=1, threads=1, out=tmp_path / "out")
    assert (tmp_path / "out" / "trace.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    table = (tmp_path / "out" / "operations.txt").read_text()
    assert table in capsys.readouterr().out
    assert "aten::convolution_backward" in table or "convolution" in table


@pytest.mark.parametrize("limit", [0, 1, 5, 8, 31, 32, 33, 99, 100, 1000])
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


def test_frozen_parts_cost_no_work_in_the_backward_pass() -> None:
    config = read_config()
    whole, frozen = (
        count_work(config.model, config.loss, config.train.model_copy(update={"frozen": parts}))
        for parts in ((), ("encoder",))
    )
    assert 0.5 * whole.flop < frozen.flop < 0.9 * whole.flop and frozen.bytes < whole.bytes
