"""The results of a workload's ablation: for each tier sameness, speed, memory and score, compared with the baseline."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from faze.base.result_paths import ResultPaths
from faze.base.run_log import SCORE, read_run
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.switches import tier_changes
from faze.evaluation.wording import peaks_differ


@dataclass(frozen=True)
class WorkloadResults:
    """Everything that the page and MLflow show."""

    rows: Sequence[Mapping[str, Any]]  # one per measured tier, the baseline first
    curves: Mapping[str, list[list[tuple[int, float]]]]  # trained tier -> samples and score, for each seed
    noise: Mapping[str, float]  # noise control -> change of the score
    scores: Mapping[tuple[str, int], float]  # tier or control, seed -> final score
    machine: Mapping[str, Any]


def read_results(
    paths: ResultPaths, tiers: Sequence[str], seeds: Sequence[int], controls: Sequence[str], confidence: float
) -> WorkloadResults:
    """Read the proofs, the benchmark and the run logs of trained tiers, the baseline first, and of noise controls."""
    proofs = json.loads(paths.benchmark.with_name("proofs.json").read_text(encoding="utf-8"))
    benchmark = json.loads(paths.benchmark.read_text(encoding="utf-8"))
    curves = {}
    for run in [(tier, seed) for tier in tiers for seed in seeds] + [(control, seeds[0]) for control in controls]:
        values = read_run(paths.run_log(*run)).values
        curves[run] = [(value.step, value.value) for value in values if value.metric == SCORE]
    scores = {run: curve[-1][1] for run, curve in curves.items()}
    measured, first = benchmark["tiers"], tiers[0]
    changes = tier_changes({tier: row["switches"] for tier, row in measured.items()})
    rows = []
    for tier, row in measured.items():
        before, changed = changes[tier]
        of_tier = [scores[tier, seed] for seed in seeds] if tier in tiers else []
        gained = np.subtract(of_tier, [scores[first, seed] for seed in seeds]) if of_tier and tier != first else []
        rows.append(
            {
                "tier": tier,
                "before": before,
                "changed": changed,
                "proof": proofs.get(tier, {}),  # none for the baseline
                "same": "failed" not in proofs.get(tier, {}),
                "speed": row["speedup"],
                "memory_differs": tier != first and peaks_differ(row, measured[first]),
                "idle": row["same_as_baseline"],
                "scores": of_tier,
                "score": _interval(of_tier, confidence),
                "change": _interval(gained, confidence),
            }
            | {name: row[name] for name in ("simultaneous", "step_ms", "peak_gib", "memory_ratio")}
        )
    noise = {control: scores[control, seeds[0]] - scores[first, seeds[0]] for control in controls}
    by_tier = {tier: [curves[tier, seed] for seed in seeds] for tier in tiers}
    return WorkloadResults(rows, by_tier, noise, scores, benchmark["machine"])


def _interval(values: Sequence[float], confidence: float) -> dict[str, float] | None:
    """Return the mean of independent values with its t interval, nan if they are too few; None without values."""
    if not len(values):
        return None
    mean, half = float(np.mean(values)), np.nan
    if len(values) >= SEEDS_FOR_A_TIER:
        quantile = special.stdtrit(len(values) - 1, (1 + confidence) / 2)
        half = float(quantile * np.std(values, ddof=1) / np.sqrt(len(values)))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def run_metrics(results: WorkloadResults) -> list[dict[str, Any]]:
    """Return the metrics of each run for MLflow."""
    measured, runs = {row["tier"]: row for row in results.rows}, []
    for (tier, seed), score in results.scores.items():
        metrics = {"score/final": score}
        if row := measured.get(tier):
            metrics |= {"speed/step_ms": row["step_ms"], "speed/speedup": row["speed"]["ratio"]}
            metrics |= {"memory/peak_gib": row["peak_gib"], "proof/same": float(row["same"])}
        runs.append({"tier": tier, "seed": seed, "metrics": metrics, "curves": {}})
    return runs
