"""The contents of benchmark.json, computed from the measured rounds: every tier compared with the baseline."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from faze.config.parameters import Engine
from faze.engine.switches import number_format

CONFIDENCE = 0.95  # of every interval in benchmark.json, and recorded there; independent of evaluate.confidence
ENOUGH_ROUNDS = 3  # to estimate how much fresh processes differ
BUSY, APART = 0.1, 0.25  # limits: cores that other programs keep busy; a tier's interquartile range over its time

Rows = Sequence[Mapping[str, Any]]  # one per round


def tabulate(rounds: Sequence[Mapping[str, Any]], engines: Mapping[str, Engine], is_cpu: bool) -> dict[str, Any]:
    """Summarise the rounds so far for benchmark.json, with a row for each tier measured together with the baseline."""
    first = next(iter(engines))
    pairs = {tier: [(r[tier], r[first]) for r in rounds if {tier, first} <= r.keys()] for tier in engines}
    measured = {tier: of_tier for tier, of_tier in pairs.items() if of_tier}
    same = {tier: why_same(engines, tier, *of_tier[0]) for tier, of_tier in measured.items() if tier != first}
    comparisons = max(1, sum(not reason for reason in same.values()))
    rows = {tier: compare(*zip(*of_tier, strict=True), comparisons) for tier, of_tier in measured.items()}
    rows = {tier: row | {"same_as_baseline": same.get(tier)} for tier, row in rows.items()}
    count = min(map(len, measured.values()), default=0)
    over = "rounds" if count >= ENOUGH_ROUNDS else "blocks"
    about = {"rounds": count, "speed_interval": {"confidence": CONFIDENCE, "over": over}}
    return about | {"disturbed": describe_disturbance(rounds, rows) if is_cpu else None, "tiers": rows}


def compare(of_tier: Rows, of_baseline: Rows, comparisons: int) -> dict[str, Any]:
    """Return a tier's times, memory and ratios to the baseline; a ratio above 1 means faster or less memory."""
    blocks, their_blocks = ([row["blocks_ms"] for row in rows] for rows in (of_tier, of_baseline))
    peaks, their_peaks = ([row["peak_gib"] for row in rows] for rows in (of_tier, of_baseline))
    # Geometric means over rounds of the medians over blocks.
    step_ms, their_step_ms = (float(stats.gmean(np.median(each, axis=1))) for each in (blocks, their_blocks))
    first, gained_ms = of_tier[0], their_step_ms - step_ms
    level = 1 - (1 - CONFIDENCE) / comparisons  # Bonferroni: also valid for a tier chosen among several
    joules = [row["joules_per_step"] for row in of_tier]
    phases_ms = {name: float(np.median([row["phases_ms"][name] for row in of_tier])) for name in first["phases_ms"]}
    extra_s = max(first["warmup_s"] - first["warmup_steps"] * step_ms / 1e3, 0.0)  # later rounds reuse compiled code
    return {
        "step_ms": step_ms,
        "step_ms_quartiles": np.percentile(np.concatenate(blocks), [25, 75]).tolist(),
        "blocks_ms": blocks,
        "images_per_s": first["images"] / step_ms * 1e3,
        "speedup": ratio(their_blocks, blocks),
        "simultaneous": {"comparisons": comparisons, "speedup": ratio(their_blocks, blocks, level)},
        **{name: float(np.median([row[name] for row in of_tier])) for name in first if name.endswith("_gib")},
        "peak_gib_low": min(peaks),
        "peak_gib_high": max(peaks),
        "peaks_gib": peaks,
        "memory_ratio": float(stats.gmean(np.divide(their_peaks, peaks))),
        "phases_ms": phases_ms,
        "joules_per_step": None if None in joules else float(np.mean(joules)),
        "unsteady_rounds": sum(not row["warmup_steady"] for row in of_tier),
        "pays_off_after_pairs": first["batch"] * extra_s * 1e3 / gained_ms if gained_ms > 0 else None,
        **{name: first[name] for name in ("warmup_s", "switches", "devices", "processes", "threads")},
    }


def ratio(above: Sequence[Sequence[float]], below: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> dict:
    """Return the geometric mean of the paired rounds' ratios, and its t interval on a log scale: ratio, low, high.

    Each round contributes the ratio of its medians. With fewer than ENOUGH_ROUNDS rounds, the interval is over blocks
    and excludes differences between processes.
    """
    medians = np.log([np.median(a) / np.median(b) for a, b in zip(above, below, strict=True)])
    blocks = [np.log(a) - np.log(b) for a, b in zip(above, below, strict=True)]
    samples = [medians] if len(medians) >= ENOUGH_ROUNDS else blocks
    residuals = np.concatenate([each - each.mean() for each in samples])
    freedom = len(residuals) - len(samples)
    error = math.sqrt(residuals @ residuals / freedom / len(residuals))
    mean, reach = medians.mean(), stats.t.ppf((1 + confidence) / 2, freedom) * error
    return {"ratio": math.exp(mean), "low": math.exp(mean - reach), "high": math.exp(mean + reach)}


def why_same(engines: Mapping[str, Engine], tier: str, of_tier: Mapping, of_baseline: Mapping) -> str | None:
    """Return the reason why a tier's step is identical to the baseline's on this device; None if it may differ."""
    wanted, baseline = engines[tier].model_dump(), next(iter(engines.values())).model_dump()
    own, theirs = ({switch["switch"]: switch for switch in row["switches"]} for row in (of_tier, of_baseline))
    changed = [key for key, value in wanted.items() if value != baseline[key]]
    if any(key not in own or own[key]["acted"] != theirs[key]["acted"] for key in changed):
        return None
    reasons = [own[key]["reason"] or theirs[key]["reason"] or f"{key} has the same effect" for key in changed]
    return f"inactive on this machine, so the step is the same: {'; '.join(reasons)}"


def peak_shares(row: Mapping[str, Any], work: Mapping[str, int], roof: Mapping[str, Any]) -> dict[str, float]:
    """Return the rates that a tier's step reaches, and their shares of its devices' roofline peaks."""
    tflops, gbytes_per_s = work["flop"] / row["step_ms"] / 1e9, work["bytes"] / row["step_ms"] / 1e6
    product, copy = roof["matmul_tflops"][number_format(row["switches"])]["median"], roof["copy_gbytes_per_s"]["median"]
    shares = {"share_of_matmul_roof": tflops / product, "share_of_copy_roof": gbytes_per_s / copy}
    return {"tflops": tflops, "gbytes_per_s": gbytes_per_s} | {k: v / row["devices"] for k, v in shares.items()}


def describe_disturbance(rounds: Sequence[Mapping[str, Any]], tiers: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return a sentence if other programs or noise disturbed the measurement on a CPU, else None."""
    busy = float(np.mean([row["other_cores"] for measured in rounds for row in measured.values()]))
    apart = {tier: np.diff(row["step_ms_quartiles"])[0] / row["step_ms"] for tier, row in tiers.items()}
    widest, share = max(apart.items(), key=lambda of_tier: of_tier[1])
    if busy <= BUSY and share <= APART:
        return None
    others = f"Other programs kept {busy:.1f} cores busy meanwhile, and the" if busy > BUSY else "The"
    return f"{others} quartiles of {widest} are {100 * share:.0f} % apart: repeat the benchmark on an idle machine."
