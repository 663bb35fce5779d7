"""The summary of an evaluation: each run's metrics for MLflow, and the people behind the errors."""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from faze.base.run_log import LoggedRun
from faze.config.stage_config import Resolved
from faze.data.codes import CodeStore
from faze.evaluation import verdict
from faze.evaluation.redirected_angles import ERRORS, GAINS, REDIRECTED, SIMILARITIES
from faze.evaluation.runs import PERSON_KEYS, Ablation, read_about_learners

# Metrics named after their columns in the table `performance`; one that the device does not report is omitted.
MEASURED = ("speed/images_per_s", "speed/step_ms", "memory/peak_gib", "memory/reserved_gib", "speed/joules_per_step")
MEASURED += ("speed/share_of_matmul_roof", "speed/share_of_copy_roof")


def summarize(
    ablation: Ablation,
    config: Resolved,
    tables: Mapping[str, pd.DataFrame],
    trainings: Mapping[tuple[str, int], LoggedRun],
    benchmark: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the settings, cards, verdicts, facts and metrics that the page and MLflow show."""
    evaluate, baseline, first = config.evaluate, ablation.tiers[0], next(iter(trainings.values())).start
    learners, errors, changes = read_about_learners(ablation), tables["tiers"], tables["changes"]
    deciding = changes[changes["decides"]]
    decisive, noise = (deciding[deciding["tier"].isin(names)] for names in (ablation.tiers, ablation.controls))
    cards = [
        verdict.speed_card(tables["performance"]),
        verdict.memory_card(tables["performance"]),
        verdict.error_card(decisive, noise, baseline, evaluate),
        verdict.learner_card(errors[errors["tier"] == baseline], learners["recommended_learners"]),
    ]
    sources, left_out, tested = {}, {}, tables["persons"].groupby("dataset")["person"].unique()
    for name in ablation.datasets:
        codes = CodeStore(ablation.paths.codes(baseline, ablation.seeds[0], name))
        sources[name] = codes.pixel_source
        left_out[name] = [person for person in codes.persons("test") if person not in set(tested[name])]
    return {
        "cards": [dict(zip(("title", "value", "note"), card, strict=True)) for card in cards],
        "tier_verdicts": decisive.groupby("tier", sort=False)["verdict"].agg(verdict.overall).to_dict(),
        "tiers": list(ablation.tiers),
        "seeds": list(ablation.seeds),
        "controls": list(ablation.controls),
        "learners": list(ablation.learners),
        "largest_k": max(config.fewshot.shots),
        "query_entries": config.fewshot.query_entries,
        "margin_deg": evaluate.margin_deg,
        "learner_margin_deg": evaluate.learner_margin_deg,
        "confidence": evaluate.confidence,
        "switches": {tier: measured["switches"] for tier, measured in benchmark["tiers"].items()},
        **learners,
        "pixel_sources": sources,
        "left_out": left_out,
        "folds": first["config"].get("fold.folds", 0),
        "began": min(training.start["time"] for training in trainings.values()),
        "machine": benchmark["machine"],
        "training_machine": first["machine"],
        "roof": benchmark["roof"],
        "notes": sorted({note for training in trainings.values() for note in training.notes}),
        "estimator": json.loads(ablation.paths.estimator_errors.read_text(encoding="utf-8"))["errors"],
        "runs": run_metrics(ablation, tables),
    }


def run_metrics(ablation: Ablation, tables: Mapping[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """Return the tier, seed, metrics and curves of each run under their names in MLflow."""
    speed, times = tables["performance"].set_index("tier"), tables["convergence"].set_index(["tier", "seed"])
    by_run = tables["redirected_people"].groupby(["tier", "seed"])
    errors = tables["persons"].groupby([key for key in PERSON_KEYS if key != "person"], sort=False)["error_deg"].mean()
    runs = []
    for run in ablation.runs():
        metrics, curves, of_run = {}, {}, errors.loc[run]
        for (dataset, learner, k), mean in of_run.items():
            if k == 0:
                metrics[f"error/{dataset}_deg"] = mean
                continue
            curves.setdefault(f"{dataset}_{learner}", [[0, metrics[f"error/{dataset}_deg"]]]).append([k, mean])
            if (learner, k) == (ablation.learners[0], of_run.index[-1][-1]):
                metrics[f"error/{dataset}_k{k}_deg"] = mean
        if run[0] in speed.index:  # noise controls have no benchmark
            metrics |= {name: speed.loc[run[0], name.split("/")[1]] for name in MEASURED}
        for (dataset, variant), rows in by_run.get_group(run).groupby(["dataset", "variant"]):
            is_redirected = variant == REDIRECTED
            section, of = ("redirection", "") if is_redirected else ("redirection_control", f"_{variant}")
            numbers = [*ERRORS, *SIMILARITIES] if is_redirected else [*ERRORS]
            metrics |= {f"{section}/{dataset}_{variant}_{name}": rows[name].mean() for name in numbers}
            metrics |= {f"{section}/{dataset}_{name}{of}": rows[name].mean() for name in GAINS}
        if run in times.index:
            metrics["speed/time_to_baseline_error_s"] = times.loc[run, "rate_seconds"]
        known = {name: value for name, value in metrics.items() if pd.notna(value)}
        runs.append({"tier": run[0], "seed": run[1], "metrics": known, "curves": curves})
    return runs
