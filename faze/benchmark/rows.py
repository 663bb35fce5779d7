"""The contents of benchmark.json for each tier, computed from the measurements of its rounds, with intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from faze.benchmark.roofline import Work, number_format, peak_shares
from faze.benchmark.rounds import Descriptions, RooflineRates, Rounds, TierRound
from faze.evaluation.switches import acting
from faze.evaluation.wording import ENOUGH_ROUNDS

CONFIDENCE = 0.95  # of every interval of benchmark.json, and stored there: evaluate.confidence is independent of it


def mean_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> dict[str, float]:
    """Compute the mean of independent values with its t interval: mean, low, high."""
    values = np.asarray(values, dtype=float)
    n, mean = len(values), float(values.mean())
    half = float(special.stdtrit(n - 1, (1 + confidence) / 2)) * float(values.std(ddof=1)) / math.sqrt(n)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float], confidence: float = CONFIDENCE) -> dict:
    """Compute the ratio of two paired series, with a t interval on the logarithms.

    Returns:
        ratio, low, high; ratio is the geometric mean.
    """
    logs = mean_interval(np.log(np.asarray(numerator)) - np.log(np.asarray(denominator)), confidence)
    return {"ratio": math.exp(logs["mean"]), "low": math.exp(logs["low"]), "high": math.exp(logs["high"])}


def rounds_interval(
    numerator: Sequence[Sequence[float]], denominator: Sequence[Sequence[float]], confidence: float = CONFIDENCE
) -> dict:
    """Compute the ratio between two series of rounds; in each round, fresh processes ran their blocks in turn.

    Each round contributes one value: the ratio of the medians of its blocks. The interval is over rounds. With fewer
    than ENOUGH_ROUNDS rounds, it is over the blocks within each round and excludes differences between processes.

    Args:
        numerator: blocks of each round.
        denominator: blocks of the same rounds.
        confidence: level of the interval.

    Returns:
        ratio, low, high; ratio is the geometric mean over the rounds.
    """
    above, below = ([float(np.median(blocks)) for blocks in series] for series in (numerator, denominator))
    if len(numerator) >= ENOUGH_ROUNDS:
        return ratio_interval(above, below, confidence)
    logs = [np.log(np.asarray(a) / np.asarray(b)) for a, b in zip(numerator, denominator, strict=True)]
    within = np.concatenate([round_logs - round_logs.mean() for round_logs in logs])
    freedom = len(within) - len(logs)
    error = math.sqrt(float(within @ within) / freedom / len(within))
    reach = math.exp(float(special.stdtrit(freedom, (1 + confidence) / 2)) * error)
    ratio = math.exp(float(np.mean(np.log(above) - np.log(below))))
    return {"ratio": ratio, "low": ratio / reach, "high": ratio * reach}


def tier_rows(found: Rounds, *, work: Work, batch: int, images: int) -> dict[str, Any]:
    """Compute a row for every tier that compares it with the baseline.

    Args:
        found: measurements of every tier.
        work: work of a step.
        batch: samples per step.
        images: number of images of a step, or other items whose rate is of interest.
    """
    baseline = next(iter(found.tiers.values()))
    same = same_steps({tier: rounds[0].description for tier, rounds in found.tiers.items()})
    compared = len(found.tiers.keys() - same.keys()) - 1  # with the baseline
    return {
        tier: _tier_row(rounds, baseline, found.rates, work=work, batch=batch, images=images)
        | {"same_as_baseline": same.get(tier)}
        | {"simultaneous": _simultaneous(rounds, baseline, max(compared, 1))}
        for tier, rounds in found.tiers.items()
    }


def _simultaneous(rounds: Sequence[TierRound], baseline: Sequence[TierRound], comparisons: int) -> dict[str, Any]:
    """Compute intervals that also hold for a tier chosen among several for its speed or memory (Bonferroni)."""
    level = 1 - (1 - CONFIDENCE) / comparisons
    peaks, theirs = ([r.memory["peak_gib"] for r in series] for series in (rounds, baseline))
    return {
        "comparisons": comparisons,
        "speedup": rounds_interval([r.blocks_ms for r in baseline], [r.blocks_ms for r in rounds], level),
        "memory": ratio_interval(theirs, peaks, level) if len(peaks) >= ENOUGH_ROUNDS else None,
    }


def _tier_row(
    rounds: Sequence[TierRound],
    baseline: Sequence[TierRound],
    rates: RooflineRates,
    *,
    work: Work,
    batch: int,
    images: int,
) -> dict[str, Any]:
    row, first = compare(rounds, baseline), rounds[0]
    step_ms = row["step_ms"]
    blocks = [block for r in rounds for block in r.blocks_ms]
    joules = [r.joules_per_step for r in rounds if r.joules_per_step is not None]
    row |= {
        "step_ms_quartiles": [float(quartile) for quartile in np.percentile(blocks, [25, 75])],
        "images_per_s": images / step_ms * 1e3,
        "phases_ms": {phase: float(np.median([r.phases_ms[phase] for r in rounds])) for phase in first.phases_ms},
        "joules_per_step": float(np.mean(joules)) if joules else None,
        "energy": first.description["energy"],
        "notes": first.description["notes"],
    }
    if boards := [board for r in rounds for board in r.boards]:
        throttled = sorted({reason for board in boards for reason in board["throttled"]})
        row |= {"boards": boards, "throttled": throttled}
    row |= _warm_up(rounds, step_ms, _step_ms(baseline), batch)
    copy, matmul = np.median(rates.copy), np.median(rates.matmul[number_format(first.description["switches"])])
    return row | peak_shares(work, step_ms, float(copy), float(matmul), first.description["devices"])


def _warm_up(rounds: Sequence[TierRound], step_ms: float, baseline_ms: float, batch: int) -> dict[str, Any]:
    """Describe the first round's warm-up, whose compiled code later rounds reuse, and count unsteady rounds."""
    first = rounds[0].warm_up
    extra_s = first.seconds - first.steps * step_ms / 1e3
    gained_ms = baseline_ms - step_ms
    unsteady = sum(not r.warm_up.steady for r in rounds)
    return {
        "warmup_s": first.seconds,
        "warmup_steps": first.steps,
        "warmup_steady": not unsteady,
        "unsteady_rounds": unsteady,
        "warmup_extra_s": extra_s,  # beyond the duration of as many steady steps: compiling, tuning
        "pays_off_after_pairs": batch * max(extra_s, 0.0) * 1e3 / gained_ms if gained_ms > 0 else None,
    }


def compare(rounds: Sequence[TierRound], reference: Sequence[TierRound]) -> dict[str, Any]:
    """Compute the time and memory of a step; a ratio above 1 means that the tier is faster or needs less memory.

    The ratio is the quotient of two values of step_ms. Each is the geometric mean, over rounds, of the median over
    blocks.
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
    """Return the number of rounds, and the nominal level and unit (rounds or blocks) of the speed-up intervals."""
    over = "rounds" if rounds >= ENOUGH_ROUNDS else "blocks"
    return {"rounds": rounds, "speed_interval": {"confidence": CONFIDENCE, "over": over}}


def same_steps(descriptions: Descriptions) -> dict[str, str]:
    """Find tiers whose step on this machine is the same as the first tier's, with the reason."""
    (_, full), *others = descriptions.items()
    reasons = {tier: why_same(full, description) for tier, description in others}
    return {tier: reason for tier, reason in reasons.items() if reason}


def why_same(full: Mapping[str, Any], variant: Mapping[str, Any]) -> str | None:
    """Return the reason why a variant's step is the same as the full tier's on this device; None if it may differ.

    Args:
        full: description from a process of the full tier: `engine` (its settings) and `switches` (their effect).
        variant: description from a process of the variant.
    """
    changed = [key for key, value in full["engine"].items() if variant["engine"][key] != value]
    if not changed:
        return "all settings are the same, since another tier sets the same switch"
    # A setting without an entry among the switches counts as effective.
    if full["engine"] | acting(full["switches"]) != variant["engine"] | acting(variant["switches"]):
        return None
    full_reasons, variant_reasons = ({s["switch"]: s["reason"] for s in of["switches"]} for of in (full, variant))
    reasons = [full_reasons[key] or variant_reasons[key] or f"{key} has the same effect" for key in changed]
    return f"inactive on this machine, so the step is the same: {'; '.join(reasons)}"
