"""What benchmark.json holds of each tier, from what its rounds measured."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from faze.base.benchmark_file import ENOUGH_ROUNDS
from faze.base.run_log import acting
from faze.benchmark.interleave import RooflineRates, TierRound
from faze.benchmark.intervals import CONFIDENCE, ratio_interval, rounds_interval
from faze.benchmark.roofline import Work, number_format, shares
from faze.benchmark.rounds import Descriptions, Rounds, Same


def ladder_rows(found: Rounds, *, work: Work, global_batch: int) -> dict[str, Any]:
    """Gather what benchmark.json holds of every tier, compared with the baseline."""
    baseline = next(iter(found.tiers.values()))
    same = same_steps({tier: rounds[0].description for tier, rounds in found.tiers.items()}, as_first=True)
    return {
        tier: _ladder_row(rounds, baseline, found.rates, work=work, global_batch=global_batch)
        | {"same_as_baseline": same[tier][1] if tier in same else None}
        for tier, rounds in found.tiers.items()
    }


def _ladder_row(
    rounds: Sequence[TierRound],
    baseline: Sequence[TierRound],
    rates: RooflineRates,
    *,
    work: Work,
    global_batch: int,
) -> dict[str, Any]:
    row, first = compare(rounds, baseline), rounds[0]
    step_ms = row["step_ms"]
    blocks = [block for r in rounds for block in r.blocks_ms]
    joules = [r.joules_per_step for r in rounds if r.joules_per_step is not None]
    row |= {
        "step_ms_quartiles": [float(quartile) for quartile in np.percentile(blocks, [25, 75])],
        "images_per_s": 2 * global_batch / step_ms * 1e3,
        "phases_ms": {phase: float(np.median([r.phases_ms[phase] for r in rounds])) for phase in first.phases_ms},
        "joules_per_step": float(np.mean(joules)) if joules else None,
        "energy": first.description["energy"],
        "notes": first.description["notes"],
    }
    if boards := [board for r in rounds for board in r.boards]:
        throttled = sorted({reason for board in boards for reason in board["throttled"]})
        row |= {"boards": boards, "throttled": throttled}
    row |= _warm_up(rounds, step_ms, _step_ms(baseline), global_batch)
    copy, matmul = np.median(rates.copy), np.median(rates.matmul[number_format(first.description["switches"])])
    return row | shares(work, step_ms, float(copy), float(matmul), first.description["devices"])


def _warm_up(rounds: Sequence[TierRound], step_ms: float, baseline_ms: float, global_batch: int) -> dict[str, Any]:
    """Describe the first round's warm-up, which compiles what later ones find compiled, and count the unsteady ones."""
    first = rounds[0].warm_up
    extra_s = first.seconds - first.steps * step_ms / 1e3
    gained_ms = baseline_ms - step_ms
    unsteady = sum(not r.warm_up.steady for r in rounds)
    return {
        "warmup_s": first.seconds,
        "warmup_steps": first.steps,
        "warmup_steady": not unsteady,
        "unsteady_rounds": unsteady,
        "warmup_extra_s": extra_s,  # beyond what as many steady steps take: compiling, tuning
        "pays_off_after_pairs": global_batch * max(extra_s, 0.0) * 1e3 / gained_ms if gained_ms > 0 else None,
    }


def compare(rounds: Sequence[TierRound], reference: Sequence[TierRound]) -> dict[str, Any]:
    """Gather time and memory of a step; a ratio above 1 says that it is faster, or smaller, than the reference.

    The quotient of two step_ms is the ratio: each is the geometric mean over rounds of the medians of their blocks.
    """
    peaks, theirs = ([r.memory["peak_gib"] for r in series] for series in (rounds, reference))
    saved = ratio_interval(theirs, peaks) if len(peaks) >= ENOUGH_ROUNDS else {"low": None, "high": None}
    memory = {name: float(np.median([r.memory[name] for r in rounds])) for name in rounds[0].memory}
    return {
        "step_ms": _step_ms(rounds),
        "blocks_ms": [r.blocks_ms for r in rounds],
        "speedup": rounds_interval([r.blocks_ms for r in reference], [r.blocks_ms for r in rounds]),
        **memory,
        "peak_gib_low": min(peaks),
        "peak_gib_high": max(peaks),
        "peaks_gib": peaks,
        "memory_ratio": float(np.exp(np.mean(np.log(theirs) - np.log(peaks)))),
        "memory_low": saved["low"],
        "memory_high": saved["high"],
        "switches": rounds[0].description["switches"],
    }


def _step_ms(rounds: Sequence[TierRound]) -> float:
    return float(np.exp(np.mean([np.log(np.median(r.blocks_ms)) for r in rounds])))


def about_rounds(rounds: int) -> dict[str, Any]:
    """Say what the intervals of a speed-up are over, and how wide they are meant to be."""
    over = "rounds" if rounds >= ENOUGH_ROUNDS else "blocks"
    return {"rounds": rounds, "speed_interval": {"confidence": CONFIDENCE, "over": over}}


def leave_one_out_rows(found: Rounds) -> dict[str, Any]:
    """Gather what benchmark.json holds of the leave-one-outs.

    Args:
        found: the topmost tier, then the same tier without each rung's change, by `without_rung`'s name; `same` are
            those of them that do the same step.

    Returns:
        `of`: the tier's name; `full`; `left_out`: by rung either why it is the `same`, or its time and memory against
        the full tier: a ratio below 1 says that the rung's change makes the tier faster, or smaller.
    """
    (name, full), *variants = found.tiers.items()
    rows = {variant: compare(rounds, full) for variant, rounds in variants}
    rows |= {variant: {"same": reason} for variant, (_, reason) in found.same.items()}
    left_out = {variant.removeprefix(without_rung(name, "")): row for variant, row in rows.items()}
    return {"of": name, "full": compare(full, full), "left_out": left_out}


def without_rung(tier: str, rung: str) -> str:
    """Name a tier without the change of one of its rungs."""
    return f"{tier} without {rung}"


def paper_width_rows(found: Rounds) -> dict[str, Any]:
    """Gather time and memory of every tier against the baseline; of one that does another's step, whose and why."""
    baseline = next(iter(found.tiers.values()))
    rows = {tier: compare(rounds, baseline) for tier, rounds in found.tiers.items()}
    return rows | {tier: {"same": reason, "as": other} for tier, (other, reason) in found.same.items()}


def same_steps(descriptions: Descriptions, *, as_first: bool = False) -> Same:
    """Find the tiers that do the same step as an earlier one here, or as the first; the earliest counts."""
    found: Same = {}
    for position, tier in enumerate(descriptions):
        earlier = [other for other in list(descriptions)[:position] if other not in found]
        for other in earlier[:1] if as_first else earlier:
            reason = why_same(descriptions[other], descriptions[tier])
            if reason and tier not in found:
                found[tier] = (other, reason)
    return found


def why_same(full: Mapping[str, Any], variant: Mapping[str, Any]) -> str | None:
    """Say why a variant does the same step as the full tier on this device; None if it may not.

    Args:
        full: what a process of the full tier said of itself: `engine` (its settings), `switches` (how they act).
        variant: likewise.
    """
    changed = [key for key, value in full["engine"].items() if variant["engine"][key] != value]
    if not changed:
        return "all settings are the same, since another rung sets the same switch"
    # A setting that no switch speaks of stays as it is set: it may act for all we know.
    if full["engine"] | acting(full["switches"]) != variant["engine"] | acting(variant["switches"]):
        return None
    full_reasons, reasons_told = ({s["switch"]: s["reason"] for s in of["switches"]} for of in (full, variant))
    reasons = [full_reasons[key] or reasons_told[key] or f"{key} acts as before" for key in changed]
    return f"inactive here, so the same step: {'; '.join(reasons)}"
