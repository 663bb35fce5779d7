"""One JSON file that says it all: each run's metrics for MLflow, each tier's verdict, and what the report prints."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from faze.base.result_paths import DATASETS
from faze.config.parameters import Evaluate
from faze.data.store.codes import CodeStore
from faze.evaluation import UNADAPTED, verdict
from faze.evaluation.learner_verdict import SIMPLE, describe_learners, describe_other_tiers, describe_simple, samples
from faze.evaluation.runs import Ablation, Training, read_left_out
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.tables import leave_one_out

Tables = Mapping[str, pd.DataFrame]

TOLD = {  # MLflow's name -> column of the performance table, where the device tells it
    "speed/share_of_matmul_roof": "share_of_matmul_roof",
    "speed/share_of_copy_roof": "share_of_copy_roof",
    "speed/joules_per_step": "joules_per_step",
    "memory/reserved_gib": "reserved_gib",
}


def summarize(
    ablation: Ablation,
    tables: Tables,
    trainings: Mapping[tuple[str, int], Training],
    benchmark: Mapping[str, Any],
    evaluate: Evaluate,
) -> dict[str, Any]:
    """Gather what a reader asks first.

    Args:
        ablation: the runs.
        tables: runs, tiers, persons, changes, learners, controls, performance, convergence, by name.
        trainings: the run log of every run.
        benchmark: its measurements (`runs.read_benchmark`).
        evaluate: margin and confidence.
    """
    largest_k = int(tables["runs"]["k"].max())
    learner, seed = ablation.learners[0], ablation.seeds[0]
    of_tier = {tier: trainings[tier, seed] for tier in ablation.tiers}
    decisive = {tier: verdict.decisive(tables["changes"], tier, learner, largest_k) for tier in ablation.tiers[1:]}
    return {
        "tiers": list(ablation.tiers),
        "seeds": list(ablation.seeds),
        "learners": list(ablation.learners),
        "largest_k": largest_k,
        "query_entries": ablation.query_entries,
        "margin_deg": evaluate.margin_deg,
        "confidence": evaluate.confidence,
        "verdict": describe(ablation, tables, of_tier, largest_k, evaluate),
        "tier_verdicts": {tier: verdict.judge(changes) for tier, changes in decisive.items()},
        "tier_words": {tier: verdict.tier_words(changes) for tier, changes in decisive.items()},
        "runs": [_run_metrics(tables, *run, learner, largest_k) for run in ablation.runs()],
        "switches": {tier: training.switches for tier, training in of_tier.items()},
        "learner_words": learner_words(tables, ablation.tiers[0], largest_k, evaluate.margin_deg),
        "other_tiers": describe_other_tiers(tables["learners"], ablation.tiers, largest_k),
        "left_out": left_out(ablation, tables["persons"]),
        "left_out_words": read_left_out(ablation),
        "began": min(training.began for training in trainings.values()),
        "machine": dict(benchmark.get("machine", {})),
        "roof": benchmark.get("roof", {}),
        "leave_one_out": leave_one_out(benchmark),
        "training_machine": dict(of_tier[ablation.tiers[0]].machine),
        "notes": sorted({note for training in trainings.values() for note in training.notes}),
    }


def describe(
    ablation: Ablation,
    tables: Tables,
    trainings: Mapping[str, Training],
    largest_k: int,
    evaluate: Evaluate,
) -> dict[str, str]:
    """The verdict on the last tier, the whole ladder: sentences on speed, memory, error, scope and switches.

    Args:
        ablation: the runs.
        tables: changes, learners and performance, by name.
        trainings: the run log of one training per tier.
        largest_k: the k, beside 0, at which the error is judged.
        evaluate: confidence.
    """
    performance = tables["performance"].set_index("tier")
    first, last = ablation.tiers[0], ablation.tiers[-1]
    learners = {"learners": headline(tables["learners"], first, largest_k, evaluate.confidence)}
    if first == last:
        alone = f"Only {first} was run: with no second tier there is nothing to compare (run.tiers)."
        return {
            "tier": last,
            "error_word": "",
            "error": alone,
            "speed": "",
            "memory": "",
            "scope": "",
            "switches": "",
            **learners,
        }
    decisive = verdict.decisive(tables["changes"], last, ablation.learners[0], largest_k)
    before = {switch["switch"]: switch["wanted"] for switch in trainings[first].switches}
    ladder = [s for s in trainings[last].switches if before.get(s["switch"]) != s["wanted"]]
    return {
        "tier": last,
        "error_word": verdict.judge(decisive),
        "speed": verdict.describe_speed(performance.loc[last], evaluate.confidence),
        "memory": verdict.describe_memory(performance.loc[last], performance.loc[first]),
        "error": verdict.describe_error(decisive, evaluate.confidence),
        "scope": verdict.describe_scope(len(ablation.seeds)),
        "switches": verdict.describe_switches(ladder),
        **learners,
    }


def headline(pairs: pd.DataFrame, tier: str, largest_k: int, confidence: float) -> str:
    """Whether any learner beats `offset` in a tier at the largest k, data set by data set; empty without one."""
    at_k = pairs[(pairs["tier"] == tier) & (pairs["k"] == largest_k)]
    at_k = at_k[(at_k["learner"] == SIMPLE) | (at_k["other"] == SIMPLE)]
    told = [_after_colon(verdict.NAMES[d], describe_simple(rows)) for d, rows in at_k.groupby("dataset", sort=False)]
    over = "people and seeds" if (at_k["seeds"] >= SEEDS_FOR_A_TIER).any() else "people"
    brackets = f"in brackets {100 * confidence:g} % intervals over {over}"
    return f"Few-shot learners after {samples(largest_k)} ({brackets}). {' '.join(told)}" if told else ""


def _after_colon(dataset: str, sentence: str) -> str:
    """On MPIIGaze: no learner is shown to beat ..."""
    return f"On {dataset}: {sentence[0].lower()}{sentence[1:]}"


def learner_words(tables: Tables, tier: str, largest_k: int, margin_deg: float) -> dict[str, list[str]]:
    """Which learners of a tier differ, in sentences, by data set (`learner_words.describe_learners`)."""
    pairs = tables["learners"][tables["learners"]["tier"] == tier]
    errors = tables["tiers"][tables["tiers"]["tier"] == tier]
    return {
        str(dataset): describe_learners(pairs[pairs["dataset"] == dataset], of_dataset, largest_k, margin_deg)
        for dataset, of_dataset in errors.groupby("dataset", sort=False)
    }


def _run_metrics(tables: Tables, tier: str, seed: int, learner: str, largest_k: int) -> dict[str, Any]:
    """Metrics and curves of one run under the names that MLflow shows."""
    performance = tables["performance"].set_index("tier").loc[tier]
    errors = tables["runs"][(tables["runs"]["tier"] == tier) & (tables["runs"]["seed"] == seed)]
    metrics: dict[str, float] = {}
    curves: dict[str, list[list[float]]] = {}
    for dataset in [d for d in DATASETS if d in set(errors["dataset"])]:
        of_dataset = errors[errors["dataset"] == dataset]
        start = of_dataset[of_dataset["learner"] == UNADAPTED]["mean_deg"].iloc[0]
        metrics[f"error/{dataset}_deg"] = start
        for name, rows in of_dataset[of_dataset["learner"] != UNADAPTED].groupby("learner", sort=False):
            curve = [[0, start], *([int(k), deg] for k, deg in zip(rows["k"], rows["mean_deg"], strict=True))]
            curves[f"{dataset}_{name}"] = curve
            if name == learner:
                metrics[f"error/{dataset}_k{largest_k}_deg"] = curve[-1][1]
    metrics |= {
        "speed/images_per_s": performance["images_per_s"],
        "speed/step_ms": performance["step_ms"],
        "memory/peak_gib": performance["peak_gib"],
    }
    metrics |= {name: value for name, of in TOLD.items() if math.isfinite(value := performance[of])}
    times = tables["convergence"]
    reached = times[(times["tier"] == tier) & (times["seed"] == seed) & times["reached"].astype(bool)]
    if len(reached):
        metrics["speed/time_to_baseline_error_s"] = reached["seconds"].iloc[0]
    return {"tier": tier, "seed": seed, "metrics": metrics, "curves": curves}


def left_out(ablation: Ablation, persons: pd.DataFrame) -> dict[str, list[str]]:
    """Test people without an error: they have too few entries for a query and the largest k."""
    tier, seed = next(ablation.runs())
    people = {}
    for dataset in DATASETS:
        stored = CodeStore(ablation.paths.codes(tier, seed, dataset), default_split="test").persons("test")
        tested = set(persons[persons["dataset"] == dataset]["person"])
        people[dataset] = [person for person in stored if person not in tested]
    return people


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON; numbers that it lacks (nan) become null."""
    path.write_text(json.dumps(_plain(content), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
