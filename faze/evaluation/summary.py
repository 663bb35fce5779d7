"""One JSON file that says it all: each run's metrics for MLflow, each tier's verdict, and what the report prints."""

import json
import math
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from faze.base import files
from faze.base.files import read_json
from faze.base.logged_run import LoggedRun
from faze.base.result_paths import DATASETS
from faze.base.run_log import finite
from faze.config.parameters import Evaluate
from faze.data.store.codes import CodeStore
from faze.evaluation import UNADAPTED, verdict
from faze.evaluation.learner_verdict import describe_advice, describe_headline, describe_learners, describe_other_tiers
from faze.evaluation.redirected_angles import CONTROLS, ERRORS, GAINS, LIKENESS
from faze.evaluation.runs import Ablation, read_learner_times, read_left_out, read_val_errors
from faze.evaluation.tables import measured_besides

Tables = Mapping[str, pd.DataFrame]

SENTENCES = (
    "speed",
    "memory",
    "error",
    "design",
    "redirection",
    "learners",
    "scope",
    "switches",
)  # of the verdict, as one reads them
TOLD = {  # MLflow's name -> column of the performance table; what the device does not tell is left out
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
    """Gather what a reader asks first.

    Args:
        ablation: the runs.
        tables: runs, tiers, persons, changes, design, learners, redirection, performance, convergence, by name.
        trainings: the run log of every run.
        benchmark: its measurements (`runs.read_benchmark`).
        evaluate: margin and confidence.
    """
    largest_k = int(tables["runs"]["k"].max())
    learner, seed, baseline = ablation.learners[0], ablation.seeds[0], ablation.tiers[0]
    switches = {tier: trainings[tier, seed].switches for tier in ablation.tiers}
    decisive = {tier: verdict.decisive(tables["changes"], tier) for tier in (*ablation.tiers[1:], *ablation.controls)}
    noise = pd.concat([decisive.pop(control) for control in ablation.controls] or [tables["changes"].iloc[:0]])
    pairs, errors = (tables[name][tables[name]["tier"] == baseline] for name in ("learners", "tiers"))
    return {
        "tiers": list(ablation.tiers),
        "seeds": list(ablation.seeds),
        "learners": list(ablation.learners),
        "largest_k": largest_k,
        "query_entries": ablation.query_entries,
        "margin_deg": evaluate.margin_deg,
        "learner_margin_deg": evaluate.learner_margin_deg,
        "confidence": evaluate.confidence,
        "verdict": describe_ladder(tables["performance"], switches, decisive, noise, len(ablation.seeds), evaluate)
        | {"design": verdict.describe_design(tables["design"], evaluate.margin_deg)}
        | {
            "redirection": verdict.describe_redirection(
                tables["redirected"], tables["redirection_changes"], ablation.tiers[-1]
            )
        }
        | {"learners": describe_headline(tables["learners"], baseline, largest_k, evaluate.confidence)},
        "tier_verdicts": {tier: verdict.judge(changes) for tier, changes in decisive.items()},
        "runs": [_run_metrics(tables, *run, learner, largest_k) for run in ablation.all_runs()],
        "controls": list(ablation.controls),
        "switches": switches,
        "same_steps": dict(tables["performance"][["tier", "same_as"]].itertuples(index=False)),
        "learner_words": {
            dataset: describe_learners(pairs[pairs["dataset"] == dataset], rows, largest_k, evaluate.learner_margin_deg)
            for dataset, rows in errors.groupby("dataset", sort=False)
        },
        "advice": describe_advice(read_val_errors(ablation)),
        "learner_times": read_learner_times(ablation),
        "other_tiers": describe_other_tiers(tables["learners"], ablation.tiers, largest_k),
        "pixel_sources": {dataset: store.pixel_source for dataset, store in _code_stores(ablation).items()},
        "left_out": left_out(ablation, tables["persons"]),
        "left_out_words": read_left_out(ablation),
        "estimator": read_json(ablation.paths.estimator_errors, ("errors",), "run estimator again")["errors"],
        "began": min(training.start["time"] for training in trainings.values()),
        "machine": benchmark.get("machine", {}),
        "roof": benchmark.get("roof", {}),
        **measured_besides(ablation, benchmark),
        "training_machine": trainings[baseline, seed].start.get("machine", {}),
        "notes": sorted({note for training in trainings.values() for note in training.notes}),
    }


def describe_ladder(
    performance: pd.DataFrame,
    switches: Mapping[str, Sequence[Mapping[str, str]]],
    decisive: Mapping[str, pd.DataFrame],
    noise: pd.DataFrame,
    seeds: int,
    evaluate: Evaluate,
) -> dict[str, str]:
    """Describe the last tier, the whole ladder, in one word and in the sentences of SENTENCES (empty: nothing to say).

    Args:
        performance: speed and memory by tier, the baseline first.
        switches: of each tier.
        decisive: of each tier but the baseline, the changes that its verdict rests on.
        noise: the same changes of the controls.
        seeds: how many.
        evaluate: confidence.
    """
    first, last = performance["tier"].iloc[0], performance["tier"].iloc[-1]
    found = dict.fromkeys(SENTENCES, "") | {"tier": last, "error_word": ""}
    if first == last:
        return found | {"error": f"Only {first} was run: with no second tier there is nothing to compare (run.tiers)."}
    measured = performance.set_index("tier")
    same = measured[measured["same_step"].astype(bool) & (measured.index != last)]
    before = {switch["switch"]: switch["wanted"] for switch in switches[first]}
    return found | {
        "error_word": verdict.judge(decisive[last]),
        "speed": verdict.describe_speed(measured.loc[last], same),
        "memory": verdict.describe_memory(measured.loc[last], measured.loc[first], same),
        "error": verdict.describe_error(decisive[last], noise, evaluate.confidence),
        "scope": verdict.describe_scope(seeds),
        "switches": verdict.describe_switches([s for s in switches[last] if before.get(s["switch"]) != s["wanted"]]),
    }


def _run_metrics(tables: Tables, tier: str, seed: int, learner: str, largest_k: int) -> dict[str, Any]:
    """Name metrics and curves of one run as MLflow shows them."""
    performance = tables["performance"].set_index("tier")
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
    if tier in performance.index:  # a noise control has the baseline's
        metrics |= {name: value for name, of in TOLD.items() if math.isfinite(value := performance.loc[tier, of])}
    pictures = tables["redirection"]
    for row in pictures[(pictures["tier"] == tier) & (pictures["seed"] == seed)].to_dict("records"):
        metrics |= {f"redirection/{row['dataset']}_{name}": row[name] for name in ("l1", "spread", "right_person")}
    metrics |= _redirection_metrics(tables, tier, seed)
    times = tables["convergence"]
    reached = times[(times["tier"] == tier) & (times["seed"] == seed) & times["reached"].astype(bool)]
    if len(reached):
        metrics["speed/time_to_baseline_error_s"] = reached["rate_seconds"].iloc[0]
    return {"tier": tier, "seed": seed, "metrics": metrics, "curves": curves}


def _redirection_metrics(tables: Tables, tier: str, seed: int) -> dict[str, float]:
    """Name what redirected strips and their controls show, means over people: errors, likeness, gains, what moved."""
    people, turned = (
        table[(table["tier"] == tier) & (table["seed"] == seed)]
        for table in (tables["redirected_people"], tables["turned_people"])
    )
    found = {}
    told = {"both": ("redirection", (*ERRORS, *LIKENESS[1:]))}  # its L1 is told of whom the strips show
    told |= dict.fromkeys(CONTROLS, ("redirection_control", ERRORS))
    for (dataset, variant), rows in people.groupby(["dataset", "variant"]):
        section, numbers = told.get(variant, ("", ()))
        means = rows[list(numbers)].mean().dropna()
        found |= {f"{section}/{dataset}_{variant}_{name}": float(value) for name, value in means.items()}
    for dataset, rows in turned.groupby("dataset"):
        for name, value in rows[[*GAINS, "head_by_gaze_deg", "gaze_by_head_deg"]].mean().dropna().items():
            section = "redirection_control" if name.endswith("_real") else "redirection"
            found[f"{section}/{dataset}_{name}"] = float(value)
    return found


def left_out(ablation: Ablation, persons: pd.DataFrame) -> dict[str, list[str]]:
    """List the test people without an error: they have too few entries for a query and the largest k."""
    tested = set(zip(persons["dataset"], persons["person"], strict=True))
    return {
        dataset: [person for person in store.persons("test") if (dataset, person) not in tested]
        for dataset, store in _code_stores(ablation).items()
    }


def _code_stores(ablation: Ablation) -> dict[str, CodeStore]:
    """Open the first run's codes of each data set."""
    run = next(ablation.runs())
    return {dataset: CodeStore(ablation.paths.codes(*run, dataset), default_split="test") for dataset in DATASETS}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON; numbers that it lacks (nan) become null, numpy's integers plain ones."""
    plain = json.dumps(finite(content), allow_nan=False, default=operator.methodcaller("item"))
    files.write_json(path, json.loads(plain))
