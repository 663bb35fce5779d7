"""Rounds of the benchmark: each starts fresh processes for every tier, in random order, and times them in turn.

Processes that do the same work differ in memory layout, allocator state and memory peak. With fresh processes in each
round, the measured variation includes these differences. Within a round, the tiers and the roofline take turns, one
block at a time, in alternating order. See docs/explanation/measurement.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from faze.base.progress import Progress
from faze.benchmark.meters import steps_lasting
from faze.benchmark.processes import ForkServer, Job, TierProcesses, benchmark_processes, fork_servers
from faze.benchmark.roofline import number_format
from faze.config.parameters import Benchmark

ROOFLINE = "the roofline"
STEADY_SHARE = 0.1  # the slowest of three blocks over their fastest, minus 1

Descriptions = Mapping[str, Mapping[str, Any]]  # tier -> description by its first process


@dataclass(frozen=True)
class WarmUp:
    """The warm-up of a tier before its measurement."""

    seconds: float
    steps: int
    steady: bool  # the last three blocks differed by no more than STEADY_SHARE
    block_s: float  # duration of block_steps steps, from the last block


@dataclass(frozen=True)
class TierRound:
    """Measurements of one tier in one round."""

    description: Mapping[str, Any]  # by its first process
    warm_up: WarmUp
    blocks_ms: list[float]  # duration of a step, by block
    joules_per_step: float | None
    memory: dict[str, float]
    phases_ms: dict[str, float]
    boards: list[dict]  # state of each GPU before and after each block


@dataclass(frozen=True)
class RooflineRates:
    """Rates in each block: copies in bytes per second, and matrix products in FLOP per second by number format."""

    copy: list[float] = field(default_factory=list)
    matmul: dict[str, list[float]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the medians and quartiles for benchmark.json."""

        def summary(rates: Sequence[float], unit: float) -> dict[str, float]:
            first, median, third = map(float, np.percentile(rates, [25, 50, 75]) / unit)
            return {"median": median, "first_quartile": first, "third_quartile": third}

        return {
            "copy_gbytes_per_s": summary(self.copy, 1e9),
            "matmul_tflops": {name: summary(rates, 1e12) for name, rates in self.matmul.items()},
        }


@dataclass(frozen=True)
class Rounds:
    """Measurements of each tier in each round."""

    tiers: dict[str, list[TierRound]]
    rates: RooflineRates = field(default_factory=RooflineRates)


def measure_rounds(
    jobs: Mapping[str, Job],
    benchmark: Benchmark,
    *,
    roofline: Job | None = None,
    one_at_a_time: bool = False,
) -> Rounds:
    """Measure every tier in each of the benchmark.rounds rounds.

    Args:
        jobs: tier -> the job of its processes.
        benchmark: number of rounds, and of blocks in each.
        roofline: job that measures the roofline; if given, the phases of the steps are timed too.
        one_at_a_time: measure one tier after the other instead of interleaving them, so that each has the machine's
            whole memory.
    """
    random = np.random.default_rng(0)
    found = Rounds({tier: [] for tier in jobs})
    progress = Progress("benchmark", benchmark.rounds, "rounds")
    for number in range(benchmark.rounds):
        needed = {tier: jobs[tier] for tier in map(str, random.permutation(list(found.tiers)))}
        needed |= {ROOFLINE: roofline} if roofline else {}
        with fork_servers(needed.values()) as servers:
            for group in [{name: needed[name]} for name in needed] if one_at_a_time else [needed]:
                _measure_group(servers, group, benchmark, found, phases=bool(roofline))
        progress(number + 1)
    return found


def _measure_group(
    servers: Mapping[bool, ForkServer], jobs: Mapping[str, Job], benchmark: Benchmark, found: Rounds, *, phases: bool
) -> None:
    """Measure the tiers in turn, and the roofline too if it is among the jobs; add the results to `found`."""
    with benchmark_processes(servers, jobs) as started:
        tiers = [processes for processes in started if processes.name != ROOFLINE]
        roofline = next((processes for processes in started if processes.name == ROOFLINE), None)
        measured = measure(tiers, benchmark, found.rates, roofline, phases=phases)
    for tier, result in zip(tiers, measured, strict=True):
        found.tiers[tier.name].append(result)


def measure(
    tiers: Sequence[TierProcesses],
    benchmark: Benchmark,
    rates: RooflineRates,
    roofline: TierProcesses | None = None,
    *,
    phases: bool = False,
) -> list[TierRound]:
    """Warm up, run the interleaved blocks, then read the memory peaks.

    Args:
        tiers: processes of each tier.
        benchmark: number of blocks.
        rates: the roofline's rates are appended to it; it has the number formats of all tiers measured so far.
        roofline: processes of the roofline, timed in turn with the tiers.
        phases: also time the phases of a step.

    Returns:
        One result for each tier, in the order of `tiers`.
    """
    for tier in tiers:
        rates.matmul.setdefault(number_format(tier.description["switches"]), [])
    warmed = [warm_up(tier, benchmark) for tier in tiers]
    for tier in tiers:
        tier.ask("settle")
    steps = [
        steps_lasting(tier.description["least_block_s"], benchmark.block_steps, warm.block_s)
        for tier, warm in zip(tiers, warmed, strict=True)
    ]
    _time_roofline(roofline, RooflineRates([], {name: [] for name in rates.matmul}))  # its warm-up
    blocks: dict[str, list[list[dict]]] = {tier.name: [] for tier in tiers}
    for block in range(benchmark.blocks):
        _time_roofline(roofline, rates)
        in_turn = list(zip(tiers, steps, strict=True))
        for tier, block_steps in in_turn if block % 2 == 0 else reversed(in_turn):
            blocks[tier.name].append(tier.ask("block", steps=block_steps))
    gathered = zip(tiers, warmed, steps, strict=True)
    return [_finish(tier, warm, blocks[tier.name], block_steps, phases) for tier, warm, block_steps in gathered]


def warm_up(tier: TierProcesses, benchmark: Benchmark) -> WarmUp:
    """Run blocks until the last three take about the same time, but no more than warmup_blocks."""
    first = tier.description["settling_steps"] + benchmark.warmup_steps
    seconds = [_seconds(tier.ask("block", steps=first))]
    steady = False
    while not steady and len(seconds) <= benchmark.warmup_blocks:
        seconds.append(_seconds(tier.ask("block", steps=benchmark.block_steps)))
        last = seconds[1:][-3:]
        steady = len(last) == 3 and max(last) <= min(last) * (1 + STEADY_SHARE)
    block_s = seconds[-1] if len(seconds) > 1 else seconds[0] * benchmark.block_steps / first
    return WarmUp(sum(seconds), first + (len(seconds) - 1) * benchmark.block_steps, steady, block_s)


def _finish(
    tier: TierProcesses, warmed: WarmUp, blocks: Sequence[Sequence[dict]], steps: int, phases: bool
) -> TierRound:
    """Read the memory use and the phase times, and combine the answers from a tier's processes.

    Args:
        tier: processes of the tier.
        warmed: warm-up of the tier.
        blocks: the answers of all processes, for each block.
        steps: number of steps in a block.
        phases: also time the phases of a step.
    """
    memory = tier.ask("memory")
    joules = [answer["joules"] for answers in blocks for answer in answers if answer["joules"] is not None]
    timed = tier.ask("phases", steps=steps)[0] if phases else {}
    return TierRound(
        tier.description,
        warmed,
        [1e3 * _seconds(answers) / steps for answers in blocks],
        sum(joules) / len(blocks) / steps if joules else None,
        {name: sum(answer[name] for answer in memory) for name in memory[0]},
        {phase: 1e3 * seconds for phase, seconds in timed.items()},
        [board for answers in blocks for answer in answers for board in answer["boards"]],
    )


def _time_roofline(roofline: TierProcesses | None, rates: RooflineRates) -> None:
    if roofline:
        rates.copy.append(roofline.ask("copy")[0]["rate"])
        for name, found in rates.matmul.items():
            found.append(roofline.ask("matmul", number_format=name)[0]["rate"])


def _seconds(answers: Sequence[Mapping[str, float]]) -> float:
    """Return the duration of a block: that of the slowest process."""
    return max(answer["seconds"] for answer in answers)
