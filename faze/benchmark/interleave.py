"""One round of the benchmark: tiers measured side by side. See docs/explanation/measurement.md.

The tiers, and the roofline of the device, run one block each in turn, in alternating order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from faze.benchmark.energy import lengthened
from faze.benchmark.processes import TierProcesses
from faze.benchmark.roofline import number_format
from faze.config.parameters import Benchmark


@dataclass(frozen=True)
class WarmUp:
    """What a tier did before it was measured."""

    seconds: float
    steps: int
    steady: bool  # the last three blocks differed by no more than benchmark.steady_share
    block_s: float  # of a block of block_steps, by the last steps


@dataclass(frozen=True)
class TierRound:
    """What was measured of one tier in one round, by processes that were started for it."""

    description: Mapping[str, Any]  # which its first process gave of itself
    warm_up: WarmUp
    blocks_ms: list[float]  # a step of each block
    joules_per_step: float | None
    memory: dict[str, float]
    phases_ms: dict[str, float]
    boards: list[dict]  # state of each GPU before and after each block


@dataclass(frozen=True)
class RooflineRates:
    """Rates of each block: of a copy (bytes per second) and of matrix products (FLOP per second) by number format."""

    copy: list[float] = field(default_factory=list)
    matmul: dict[str, list[float]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Summarise them for benchmark.json."""
        return {
            "copy_gbytes_per_s": _summary(self.copy, 1e9),
            "matmul_tflops": {name: _summary(rates, 1e12) for name, rates in self.matmul.items()},
        }


def warm_up(tier: TierProcesses, benchmark: Benchmark) -> WarmUp:
    """Run steps until the last three blocks are alike, or warmup_blocks of them."""
    first = tier.description["settling_steps"] + benchmark.warmup_steps
    seconds = [_seconds(tier.ask("block", steps=first))]
    steady = False
    while not steady and len(seconds) <= benchmark.warmup_blocks:
        seconds.append(_seconds(tier.ask("block", steps=benchmark.block_steps)))
        last = seconds[1:][-3:]
        steady = len(last) == 3 and max(last) <= min(last) * (1 + benchmark.steady_share)
    block_s = seconds[-1] if len(seconds) > 1 else seconds[0] * benchmark.block_steps / first
    return WarmUp(sum(seconds), first + (len(seconds) - 1) * benchmark.block_steps, steady, block_s)


def measure(
    tiers: Sequence[TierProcesses],
    benchmark: Benchmark,
    rates: RooflineRates,
    roofline: TierProcesses | None = None,
    *,
    phases: bool = False,
) -> list[TierRound]:
    """Warm up, run the interleaved blocks, then read the memory; results are in the order of the tiers.

    Args:
        tiers: their processes.
        benchmark: how many blocks.
        rates: what the roofline's blocks are added to; its number formats are those of the tiers so far.
        roofline: timed in turn with the tiers.
        phases: also time the phases of a step.
    """
    for tier in tiers:
        rates.matmul.setdefault(number_format(tier.description["switches"]), [])
    warmed = [warm_up(tier, benchmark) for tier in tiers]
    for tier in tiers:
        tier.ask("settle")
    steps = [
        lengthened(benchmark.block_steps, warm.block_s, tier.description["least_block_s"])
        for tier, warm in zip(tiers, warmed, strict=True)
    ]
    _time_roofline(roofline, RooflineRates([], {name: [] for name in rates.matmul}))  # its warm-up
    blocks: dict[str, list[list[dict]]] = {tier.name: [] for tier in tiers}
    for block in range(benchmark.blocks):
        _time_roofline(roofline, rates)
        in_turn = list(zip(tiers, steps, strict=True))
        for tier, of_block in in_turn if block % 2 == 0 else reversed(in_turn):
            blocks[tier.name].append(tier.ask("block", steps=of_block))
    gathered = zip(tiers, warmed, steps, strict=True)
    return [_finish(tier, warm, blocks[tier.name], of_block, phases) for tier, warm, of_block in gathered]


def _finish(
    tier: TierProcesses, warmed: WarmUp, blocks: Sequence[Sequence[dict]], steps: int, phases: bool
) -> TierRound:
    """Ask for memory and phases, and gather what the processes of a tier answered.

    Args:
        tier: whose.
        warmed: what it did before.
        blocks: of each the answers of all processes.
        steps: of a block.
        phases: also time them.
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
    if not roofline:
        return
    rates.copy.append(roofline.ask("copy")[0]["rate"])
    for name, found in rates.matmul.items():
        found.append(roofline.ask("matmul", number_format=name)[0]["rate"])


def _seconds(answers: Sequence[Mapping[str, float]]) -> float:
    return max(answer["seconds"] for answer in answers)


def _summary(rates: Sequence[float], unit: float) -> dict[str, float]:
    first, median, third = map(float, np.percentile(rates, [25, 50, 75]) / unit)
    return {"median": median, "first_quartile": first, "third_quartile": third}
