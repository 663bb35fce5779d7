"""Speed and memory of the tiers, measured side by side. DESIGN section 7.

The tiers, and the roofline of the device, run one block each in turn, in alternating order; ratios are taken block by
block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from faze.base.progress import Progress
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


@dataclass(frozen=True)
class TierResult:
    """One tier's part of a benchmark."""

    tier: TierProcesses
    warm_up: WarmUp
    blocks_ms: list[float]  # a step of each block
    joules_per_step: float | None
    memory: dict[str, float]
    phases_ms: dict[str, float]


@dataclass(frozen=True)
class RooflineRates:
    """Blocks of the roofline: rates of a copy (bytes per second) and of matrix products (FLOP per second) by format."""

    copy: list[float]
    matmul: dict[str, list[float]]

    def as_dict(self) -> dict[str, Any]:
        """For benchmark.json."""
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
    return WarmUp(sum(seconds), first + (len(seconds) - 1) * benchmark.block_steps, steady)


def measure(
    tiers: Sequence[TierProcesses], roofline: TierProcesses | None, benchmark: Benchmark
) -> tuple[dict[str, TierResult], RooflineRates]:
    """Warm up, run the interleaved blocks, then the phases."""
    warmed = {tier.name: warm_up(tier, benchmark) for tier in tiers}
    rates = RooflineRates([], {number_format(tier.switches): [] for tier in tiers} if roofline else {})
    _time_roofline(roofline, RooflineRates([], {name: [] for name in rates.matmul}))  # its warm-up
    blocks: dict[str, list[float]] = {tier.name: [] for tier in tiers}
    joules: dict[str, list[float | None]] = {tier.name: [] for tier in tiers}
    progress = Progress("benchmark", benchmark.blocks * len(tiers), "blocks")
    for block in range(benchmark.blocks):
        _time_roofline(roofline, rates)
        for tier in tiers if block % 2 == 0 else reversed(tiers):
            answers = tier.ask("block", steps=benchmark.block_steps)
            blocks[tier.name].append(1e3 * _seconds(answers) / benchmark.block_steps)
            joules[tier.name].append(_joules(answers))
            progress(sum(map(len, blocks.values())))
    measured = {}
    for tier in tiers:
        memory = _add_up(tier.ask("memory"))
        phases = tier.ask("phases", steps=benchmark.block_steps)[0]
        used = [value for value in joules[tier.name] if value is not None]
        measured[tier.name] = TierResult(
            tier,
            warmed[tier.name],
            blocks[tier.name],
            sum(used) / len(used) / benchmark.block_steps if used else None,
            memory,
            {phase: 1e3 * seconds for phase, seconds in phases.items()},
        )
    return measured, rates


def ladder_rows(
    measured: Mapping[str, TierResult], rates: RooflineRates, *, work: Work, global_batch: int
) -> dict[str, dict[str, Any]]:
    """Per tier what benchmark.json holds; the first tier is the baseline."""
    baseline = next(iter(measured.values()))
    return {name: _row(tier, baseline, rates, work, global_batch) for name, tier in measured.items()}


def _row(m: TierResult, baseline: TierResult, rates: RooflineRates, work: Work, global_batch: int) -> dict[str, Any]:
    first, median, third = map(float, np.percentile(m.blocks_ms, [25, 50, 75]))
    before = float(np.median(baseline.blocks_ms))
    extra_s = m.warm_up.seconds - m.warm_up.steps * median / 1e3
    row = {
        "step_ms": median,
        "step_ms_quartiles": [first, third],
        "images_per_s": 2 * global_batch / median * 1e3,
        "blocks_ms": m.blocks_ms,
        "speedup": ratio_interval(baseline.blocks_ms, m.blocks_ms),
        **m.memory,
        "memory_ratio": baseline.memory["peak_gib"] / m.memory["peak_gib"],
        "phases_ms": m.phases_ms,
        "joules_per_step": m.joules_per_step,
        "energy": m.tier.description["energy"],
        "warmup_s": m.warm_up.seconds,
        "warmup_steps": m.warm_up.steps,
        "warmup_steady": m.warm_up.steady,
        "warmup_extra_s": extra_s,  # beyond what as many steady steps take: compiling, tuning
        "pays_off_after_pairs": global_batch * max(extra_s, 0.0) * 1e3 / (before - median) if median < before else None,
        "switches": m.tier.switches,
    }
    if rates.copy:
        copy, matmul = np.median(rates.copy), np.median(rates.matmul[number_format(m.tier.switches)])
        row |= shares(work, median, float(copy), float(matmul), m.tier.description["devices"])
    return row


def split_idle(full: TierProcesses, variants: Sequence[TierProcesses]) -> tuple[list[TierProcesses], dict[str, str]]:
    """Part the leave-one-outs that do another step than the full tier from those that do the same.

    Returns:
        Those to measure, and for each of the others why it is the same. The latter's processes are let go.
    """
    measured, same = [], {}
    for variant in variants:
        if reason := why_same(full.description, variant.description):
            same[variant.name] = reason
            variant.dismiss()
        else:
            measured.append(variant)
    return measured, same


def why_same(full: Mapping[str, Any], variant: Mapping[str, Any]) -> str:
    """Why a variant does the same step as the full tier on this device; empty if it may not.

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
        return ""
    reasons = [acts[key]["reason"] or f"{key} acts as before" for key in changed]
    return f"inactive here, so the same step: {'; '.join(reasons)}"


def leave_one_out_rows(measured: Mapping[str, TierResult], full: str, same: Mapping[str, str]) -> dict[str, Any]:
    """What benchmark.json holds of the leave-one-outs.

    Returns:
        `of` the full tier, and per variant either why it is the `same`, or its `speedup` and `memory_ratio` against the
        full tier: below 1, the switch that it lacks makes the full tier faster, or smaller.
    """
    top = measured[full]
    rows: dict[str, Any] = {}
    for name, m in measured.items():
        rows[name] = {
            "step_ms": float(np.median(m.blocks_ms)),
            "blocks_ms": m.blocks_ms,
            "speedup": ratio_interval(top.blocks_ms, m.blocks_ms),
            **m.memory,
            "memory_ratio": top.memory["peak_gib"] / m.memory["peak_gib"],
            "switches": m.tier.switches,
        }
    full_row = rows.pop(full)
    return {"of": full, "full": full_row, "without": rows | {name: {"same": reason} for name, reason in same.items()}}


def _time_roofline(roofline: TierProcesses | None, rates: RooflineRates) -> None:
    if not roofline:
        return
    rates.copy.append(roofline.ask("copy")[0]["rate"])
    for name, found in rates.matmul.items():
        found.append(roofline.ask("matmul", number_format=name)[0]["rate"])


def _seconds(answers: Sequence[Mapping[str, float]]) -> float:
    return max(answer["seconds"] for answer in answers)


def _joules(answers: Sequence[Mapping[str, float | None]]) -> float | None:
    used = [answer["joules"] for answer in answers if answer["joules"] is not None]
    return sum(used) if used else None


def _add_up(answers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(answer[name] for answer in answers) for name in answers[0]}


def _summary(rates: Sequence[float], unit: float) -> dict[str, float]:
    first, median, third = map(float, np.percentile(rates, [25, 50, 75]) / unit)
    return {"median": median, "first_quartile": first, "third_quartile": third}
