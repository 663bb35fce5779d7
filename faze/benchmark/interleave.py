"""Speed and memory of the tiers, measured side by side. See docs/explanation/measurement.md.

The tiers, and the roofline of the device, run one block each in turn, in alternating order; ratios are taken block by
block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from faze.base.progress import Progress
from faze.benchmark.energy import lengthened
from faze.benchmark.intervals import ratio_interval
from faze.benchmark.processes import TierProcesses
from faze.benchmark.roofline import Work, number_format, shares
from faze.config.parameters import Benchmark


@dataclass(frozen=True)
class WarmUp:
    """What a tier did before it was measured."""

    seconds: float
    steps: int
    steady: bool  # the last three blocks differed by no more than benchmark.steady_share
    block_s: float  # of the last one


@dataclass(frozen=True)
class TierResult:
    """What was measured of one tier."""

    name: str
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

    copy: list[float]
    matmul: dict[str, list[float]]

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
    return WarmUp(sum(seconds), first + (len(seconds) - 1) * benchmark.block_steps, steady, seconds[-1])


def measure(
    tiers: Sequence[TierProcesses], roofline: TierProcesses | None, benchmark: Benchmark
) -> tuple[list[TierResult], RooflineRates]:
    """Warm up, run the interleaved blocks, then the phases; results are in the order of the tiers."""
    warmed = [warm_up(tier, benchmark) for tier in tiers]
    for tier in tiers:
        tier.ask("settle")
    steps = [
        lengthened(benchmark.block_steps, warm.block_s, tier.description["least_block_s"])
        for tier, warm in zip(tiers, warmed, strict=True)
    ]
    formats = [number_format(tier.description["switches"]) for tier in tiers] if roofline else []
    rates = RooflineRates([], {name: [] for name in formats})
    _time_roofline(roofline, RooflineRates([], {name: [] for name in formats}))  # its warm-up
    blocks: dict[str, list[list[dict]]] = {tier.name: [] for tier in tiers}
    progress = Progress("benchmark", benchmark.blocks * len(tiers), "blocks")
    for block in range(benchmark.blocks):
        _time_roofline(roofline, rates)
        in_turn = list(zip(tiers, steps, strict=True))
        for tier, of_block in in_turn if block % 2 == 0 else reversed(in_turn):
            blocks[tier.name].append(tier.ask("block", steps=of_block))
            progress(sum(map(len, blocks.values())))
    return [_finish(t, w, blocks[t.name], n) for t, w, n in zip(tiers, warmed, steps, strict=True)], rates


def _finish(tier: TierProcesses, warmed: WarmUp, blocks: Sequence[Sequence[dict]], steps: int) -> TierResult:
    """Ask for memory and phases, and gather what the processes of a tier answered.

    Args:
        tier: whose.
        warmed: what it did before.
        blocks: of each the answers of all processes.
        steps: of a block.
    """
    memory = tier.ask("memory")
    joules = [answer["joules"] for answers in blocks for answer in answers if answer["joules"] is not None]
    return TierResult(
        tier.name,
        tier.description,
        warmed,
        [1e3 * _seconds(answers) / steps for answers in blocks],
        sum(joules) / len(blocks) / steps if joules else None,
        {name: sum(answer[name] for answer in memory) for name in memory[0]},
        {phase: 1e3 * seconds for phase, seconds in tier.ask("phases", steps=steps)[0].items()},
        [board for answers in blocks for answer in answers for board in answer["boards"]],
    )


def ladder_row(
    result: TierResult, baseline: TierResult, rates: RooflineRates, *, work: Work, global_batch: int
) -> dict[str, Any]:
    """Gather what benchmark.json holds of a tier, compared with the baseline."""
    row = _compare(result, baseline)
    step_ms, warmed = row["step_ms"], result.warm_up
    extra_s = warmed.seconds - warmed.steps * step_ms / 1e3
    gained_ms = float(np.median(baseline.blocks_ms)) - step_ms
    row |= {
        "step_ms_quartiles": [float(quartile) for quartile in np.percentile(result.blocks_ms, [25, 75])],
        "images_per_s": 2 * global_batch / step_ms * 1e3,
        "phases_ms": result.phases_ms,
        "joules_per_step": result.joules_per_step,
        "energy": result.description["energy"],
        "notes": result.description["notes"],
        "warmup_s": warmed.seconds,
        "warmup_steps": warmed.steps,
        "warmup_steady": warmed.steady,
        "warmup_extra_s": extra_s,  # beyond what as many steady steps take: compiling, tuning
        "pays_off_after_pairs": global_batch * max(extra_s, 0.0) * 1e3 / gained_ms if gained_ms > 0 else None,
    }
    if result.boards:
        throttled = sorted({reason for board in result.boards for reason in board["throttled"]})
        row |= {"boards": result.boards, "throttled": throttled}
    if rates.copy:
        copy, matmul = np.median(rates.copy), np.median(rates.matmul[number_format(result.description["switches"])])
        row |= shares(work, step_ms, float(copy), float(matmul), result.description["devices"])
    return row


def _compare(result: TierResult, reference: TierResult) -> dict[str, Any]:
    """Gather time and memory of a step; a ratio above 1 says that it is faster, or smaller, than the reference."""
    return {
        "step_ms": float(np.median(result.blocks_ms)),
        "blocks_ms": result.blocks_ms,
        "speedup": ratio_interval(reference.blocks_ms, result.blocks_ms),
        **result.memory,
        "memory_ratio": reference.memory["peak_gib"] / result.memory["peak_gib"],
        "switches": result.description["switches"],
    }


def dismiss_same(
    full: TierProcesses, variants: Mapping[str, TierProcesses]
) -> tuple[dict[str, TierProcesses], dict[str, str]]:
    """Let those leave-one-outs go that do the same step as the full tier.

    Returns:
        Those to measure, and for each of the others why it is the same; both by the rung that is left out.
    """
    reasons = {rung: why_same(full.description, variant.description) for rung, variant in variants.items()}
    same = {rung: reason for rung, reason in reasons.items() if reason}
    for rung in same:
        variants[rung].dismiss()
    return {rung: variant for rung, variant in variants.items() if rung not in same}, same


def why_same(full: Mapping[str, Any], variant: Mapping[str, Any]) -> str | None:
    """Say why a variant does the same step as the full tier on this device; None if it may not.

    Args:
        full: what a process of the full tier said of itself: `engine` (its settings), `switches` (how they act).
        variant: likewise.
    """
    acts = {switch["switch"]: switch for switch in full["switches"]}
    others = {switch["switch"]: switch["acted"] for switch in variant["switches"]}
    changed = [key for key, value in full["engine"].items() if variant["engine"][key] != value]
    if not changed:
        return "a later rung sets the same switch, so nothing is left out"
    # A setting that no switch speaks of may act for all we know.
    if any(key not in acts for key in changed) or {key: acts[key]["acted"] for key in acts} != others:
        return None
    reasons = [acts[key]["reason"] or f"{key} acts as before" for key in changed]
    return f"inactive here, so the same step: {'; '.join(reasons)}"


def leave_one_out_rows(full: TierResult, left_out: Mapping[str, TierResult], same: Mapping[str, str]) -> dict[str, Any]:
    """Gather what benchmark.json holds of the leave-one-outs.

    Args:
        full: the topmost tier.
        left_out: by rung, the same tier without that rung's change.
        same: rungs without whose change it does the same step, and why: these were not measured.

    Returns:
        `of`: the tier's name; `full`; `left_out`: by rung either why it is the `same`, or its time and memory against
        the full tier: a ratio below 1 says that the rung's change makes the tier faster, or smaller.
    """
    rows = {rung: _compare(result, full) for rung, result in left_out.items()}
    rows |= {rung: {"same": reason} for rung, reason in same.items()}
    return {"of": full.name, "full": _compare(full, full), "left_out": rows}


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
