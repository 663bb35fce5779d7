"""The summary of an evaluation: each run's metrics for MLflow, the verdicts, and facts for the report."""

import json
import math
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from faze.base.run_log import LoggedRun, finite
from faze.config.parameters import Evaluate
from faze.data.codes import CodeStore
from faze.evaluation import UNADAPTED, verdict
from faze.evaluation.redirected_angles import CONTROLS, ERRORS, GAINS, REDIRECTED, SIMILARITIES
from faze.evaluation.runs import Ablation, read_learner_times, read_left_out, read_val_errors, tier_switches

Tables = Mapping[str, pd.DataFrame]

# MLflow's name -> column of the table `performance`; a metric is omitted if the device does not report it.
METRICS = {
    "speed/images_per_s": "images_per_s",
    "speed/step_ms": "step_ms",
    "memory/peak_gib": "peak_gib",
    "speed/share_of_matmul_roof": "share_of_matmul_roof",
    "speed/share_of_copy_roof": "share_of_copy_roof",
    "speed/joules_per_step": "joules_per_step",
    "memory/reserved_gib": "reserved_gib",
}


def summarize(
    ablation: Ablation,
    tables: Tables,
    trainings: Mapping[tuple[str, int], LoggedRun],
    benchmark: Mapping[str, Any],
    evaluate: Evaluate,
) -> dict[str, Any]:
    """Summarise an evaluation.

    Args:
        ablation: the runs to summarise.
        tables: all tables of the evaluation, by name.
        trainings: the run log of every run.
        benchmark: the measurements of the benchmark.
        evaluate: margin and confidence.
    """
    seed, baseline = ablation.seeds[0], ablation.tiers[0]
    largest_k = int(tables["runs"]["k"].max())
    switches = tier_switches(ablation, benchmark, {tier: trainings[tier, seed] for tier in ablation.tiers})
    decisive = {tier: verdict.decisive(tables["changes"], tier) for tier in ablation.tiers[1:]}
    tier_verdicts = {tier: verdict.overall(changes) for tier, changes in decisive.items()}
    sentences = verdict.describe(tables, switches, ablation.controls, len(ablation.seeds), evaluate)
    return {
        "tiers": list(ablation.tiers),
        "seeds": list(ablation.seeds),
        "controls": list(ablation.controls),
        "learners": list(ablation.learners),
        "largest_k": largest_k,
        "query_entries": ablation.query_entries,
        "margin_deg": evaluate.margin_deg,
        "learner_margin_deg": evaluate.learner_margin_deg,
        "confidence": evaluate.confidence,
        "verdict": {
            "fastest": verdict.best(tables["performance"], "speed_ratio"),
            "leanest": verdict.best(tables["performance"], "memory_ratio"),
            "error_word": verdict.overall(pd.concat(decisive.values())) if decisive else "",
            "sentences": sentences,
        },
        "tier_verdicts": tier_verdicts,
        "runs": [_run_metrics(tables, *run, ablation.learners[0], largest_k) for run in ablation.all_runs()],
        "switches": switches,
        "recommended_learners": recommended_learners(read_val_errors(ablation)),
        "learner_times": read_learner_times(ablation),
        "folds": trainings[baseline, seed].start["config"].get("fold.folds", 0),
        "pixel_sources": {dataset: store.pixel_source for dataset, store in _code_stores(ablation).items()},
        "left_out": left_out(ablation, tables["persons"]),
        "left_out_reasons": read_left_out(ablation),
        "estimator": json.loads(ablation.paths.estimator_errors.read_text(encoding="utf-8"))["errors"],
        "began": min(training.start["time"] for training in trainings.values()),
        "machine": benchmark.get("machine", {}),
        "roof": benchmark.get("roof", {}),
        "training_machine": trainings[baseline, seed].start.get("machine", {}),
        "notes": sorted({note for training in trainings.values() for note in training.notes}),
    }


def _run_metrics(tables: Tables, tier: str, seed: int, learner: str, largest_k: int) -> dict[str, Any]:
    """Collect the metrics and curves of one run under their MLflow names."""
    performance = tables["performance"].set_index("tier")
    errors = tables["runs"][(tables["runs"]["tier"] == tier) & (tables["runs"]["seed"] == seed)]
    metrics: dict[str, float] = {}
    curves: dict[str, list[list[float]]] = {}
    for dataset in dict.fromkeys(errors["dataset"]):
        of_dataset = errors[errors["dataset"] == dataset]
        start = of_dataset[of_dataset["learner"] == UNADAPTED]["mean_deg"].iloc[0]
        metrics[f"error/{dataset}_deg"] = start
        for name, rows in of_dataset[of_dataset["learner"] != UNADAPTED].groupby("learner", sort=False):
            curve = [[0, start], *([int(k), deg] for k, deg in zip(rows["k"], rows["mean_deg"], strict=True))]
            curves[f"{dataset}_{name}"] = curve
            if name == learner:
                metrics[f"error/{dataset}_k{largest_k}_deg"] = curve[-1][1]
    if tier in performance.index:  # noise controls have no benchmark
        metrics |= {name: value for name, of in METRICS.items() if math.isfinite(value := performance.loc[tier, of])}
    metrics |= _redirection_metrics(tables, tier, seed)
    times = tables["convergence"]
    reached = times[(times["tier"] == tier) & (times["seed"] == seed) & times["reached"].astype(bool)]
    if len(reached):
        metrics["speed/time_to_baseline_error_s"] = reached["rate_seconds"].iloc[0]
    return {"tier": tier, "seed": seed, "metrics": metrics, "curves": curves}


def _redirection_metrics(tables: Tables, tier: str, seed: int) -> dict[str, float]:
    """Collect the errors, similarities and gains of redirected strips and their controls, averaged over people."""
    people, turned = (
        table[(table["tier"] == tier) & (table["seed"] == seed)]
        for table in (tables["redirected_people"], tables["turned_people"])
    )
    found = {}
    sections = {REDIRECTED: ("redirection", (*ERRORS, *SIMILARITIES))}
    sections |= dict.fromkeys(CONTROLS, ("redirection_control", ERRORS))
    for (dataset, variant), rows in people.groupby(["dataset", "variant"]):
        section, numbers = sections.get(variant, ("", ()))
        means = rows[list(numbers)].mean().dropna()
        found |= {f"{section}/{dataset}_{variant}_{name}": float(value) for name, value in means.items()}
    for dataset, rows in turned.groupby("dataset"):
        for name, value in rows[list(GAINS)].mean().dropna().items():
            section = "redirection_control" if name.endswith("_real") else "redirection"
            found[f"{section}/{dataset}_{name}"] = float(value)
    return found


def recommended_learners(val: pd.DataFrame) -> list[dict[str, Any]]:
    """Select, for each k, the learner with the lowest error on val people, or UNADAPTED if none improves on k = 0.

    Args:
        val: columns learner, k (0: unadapted), error_deg.

    Returns:
        Rows with k, learner, error_deg and unadapted_deg.
    """
    unadapted, rows = val.loc[val["k"] == 0, "error_deg"].mean(), []
    for k, of_k in val[val["k"] > 0].groupby("k"):
        best = of_k.loc[of_k["error_deg"].idxmin()]
        learner = best["learner"] if best["error_deg"] < unadapted else UNADAPTED
        row = {"k": k, "learner": learner, "error_deg": min(best["error_deg"], unadapted)}
        rows.append(row | {"unadapted_deg": unadapted})
    return rows


def left_out(ablation: Ablation, persons: pd.DataFrame) -> dict[str, list[str]]:
    """List the test people without a measured error: they have too few entries for a query and the largest k."""
    tested = set(zip(persons["dataset"], persons["person"], strict=True))
    return {
        dataset: [person for person in store.persons("test") if (dataset, person) not in tested]
        for dataset, store in _code_stores(ablation).items()
    }


def _code_stores(ablation: Ablation) -> dict[str, CodeStore]:
    """Open the first run's codes for each data set."""
    run = next(ablation.runs())
    return {name: CodeStore(ablation.paths.codes(*run, name)) for name in ablation.datasets}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, converting nan to null and NumPy numbers to plain Python numbers."""
    path.write_text(
        json.dumps(finite(content), allow_nan=False, default=operator.methodcaller("item")), encoding="utf-8"
    )
