"""The summary of an evaluation: each run's metrics for MLflow, the verdicts, and facts for the report."""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from faze.base.run_log import LoggedRun
from faze.config.stage_config import Resolved
from faze.data.codes import CodeStore
from faze.evaluation import verdict
from faze.evaluation.redirected_angles import ERRORS, GAINS, REDIRECTED, SIMILARITIES
from faze.evaluation.runs import Ablation, read_about_learners
from faze.evaluation.switches import Switches
from faze.evaluation.tables import Matrices

Tables = Mapping[str, pd.DataFrame]

# Metrics named after their columns in the table `performance`; one that the device does not report is omitted.
MEASURED = ("speed/images_per_s", "speed/step_ms", "memory/peak_gib", "memory/reserved_gib", "speed/joules_per_step")
MEASURED += ("speed/share_of_matmul_roof", "speed/share_of_copy_roof")


def summarize(
    ablation: Ablation,
    config: Resolved,
    tables: Tables,
    trainings: Mapping[tuple[str, int], LoggedRun],
    benchmark: Mapping[str, Any],
    switches: Mapping[str, Switches],
) -> dict[str, Any]:
    """Return the settings, verdicts and facts that the page shows."""
    evaluate, tiers, seeds, controls = config.evaluate, ablation.tiers, ablation.seeds, ablation.controls
    decisive = tables["changes"][tables["changes"]["decides"].astype(bool) & tables["changes"]["tier"].isin(tiers)]
    return {
        "tiers": list(tiers),
        "seeds": list(seeds),
        "controls": list(controls),
        "learners": list(ablation.learners),
        "largest_k": int(tables["persons"]["k"].max()),
        "query_entries": config.fewshot.query_entries,
        "margin_deg": evaluate.margin_deg,
        "learner_margin_deg": evaluate.learner_margin_deg,
        "confidence": evaluate.confidence,
        "verdict": {
            "fastest": verdict.best(tables["performance"], "speed_ratio")["tier"],
            "leanest": verdict.best(tables["performance"], "memory_ratio")["tier"],
            "error_word": verdict.overall(decisive) if len(decisive) else "",
            "sentences": verdict.describe(tables, tiers, controls, len(seeds), evaluate),
        },
        "tier_verdicts": verdict.tier_verdicts(decisive),
        "switches": switches,
        **read_about_learners(ablation),
        **_people(ablation, tables["persons"]),
        **_facts(trainings, benchmark),
        "estimator": json.loads(ablation.paths.estimator_errors.read_text(encoding="utf-8"))["errors"],
    }


def _people(ablation: Ablation, persons: pd.DataFrame) -> dict[str, Any]:
    """Return the source of each data set's pixels, and its test people with too few entries for few-shot learning."""
    pixel_sources, left_out = {}, {}
    for name in ablation.datasets:
        codes = CodeStore(ablation.paths.codes(ablation.tiers[0], ablation.seeds[0], name))
        tested = set(persons.loc[persons["dataset"] == name, "person"])
        pixel_sources[name] = codes.pixel_source
        left_out[name] = [person for person in codes.persons("test") if person not in tested]
    return {"pixel_sources": pixel_sources, "left_out": left_out}


def _facts(trainings: Mapping[tuple[str, int], LoggedRun], benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts about machines and trainings; the first training is the baseline's with the first seed."""
    first = next(iter(trainings.values())).start
    return {
        "folds": first["config"].get("fold.folds", 0),
        "began": min(training.start["time"] for training in trainings.values()),
        "machine": benchmark.get("machine", {}),
        "roof": benchmark.get("roof", {}),
        "training_machine": first.get("machine", {}),
        "notes": sorted({note for training in trainings.values() for note in training.notes}),
    }


def run_metrics(ablation: Ablation, tables: Tables, matrices: Matrices) -> list[dict[str, Any]]:
    """Return the tier, seed, metrics and curves of each run under their names in MLflow."""
    speed, times = tables["performance"].set_index("tier"), tables["convergence"].set_index(["tier", "seed"])
    people, largest_k, runs = tables["redirected_people"], tables["persons"]["k"].max(), []
    for tier, seed in ablation.runs():
        metrics, curves = {}, {}
        means = {cell: errors.loc[seed].mean() for cell, errors in matrices.items() if cell[0] == tier}
        for (_, dataset, learner, k), mean in means.items():
            if k == 0:
                metrics[f"error/{dataset}_deg"] = mean
            else:
                start = [0, metrics[f"error/{dataset}_deg"]]
                curves.setdefault(f"{dataset}_{learner}", [start]).append([k, mean])
            if (learner, k) == (ablation.learners[0], largest_k):
                metrics[f"error/{dataset}_k{k}_deg"] = mean
        if tier in speed.index:  # noise controls have no benchmark
            metrics |= {name: speed.loc[tier, name.split("/")[1]] for name in MEASURED}
        metrics |= _redirection_metrics(people[(people["tier"] == tier) & (people["seed"] == seed)])
        if (tier, seed) in times.index:
            metrics["speed/time_to_baseline_error_s"] = times.loc[(tier, seed), "rate_seconds"]
        known = {name: value for name, value in metrics.items() if pd.notna(value)}
        runs.append({"tier": tier, "seed": seed, "metrics": known, "curves": curves})
    return runs


def _redirection_metrics(people: pd.DataFrame) -> dict[str, float]:
    """Return the errors, similarities and gains of redirected strips and their controls, averaged over people."""
    metrics = {}
    for (dataset, variant), rows in people.groupby(["dataset", "variant"]):
        section, of = ("redirection", "") if variant == REDIRECTED else ("redirection_control", f"_{variant}")
        numbers = [*ERRORS, *SIMILARITIES] if variant == REDIRECTED else [*ERRORS]
        metrics |= {f"{section}/{dataset}_{variant}_{name}": value for name, value in rows[numbers].mean().items()}
        metrics |= {f"{section}/{dataset}_{name}{of}": value for name, value in rows[[*GAINS]].mean().items()}
    return metrics
