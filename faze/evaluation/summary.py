"""The summary of an evaluation: cards and verdicts for the page, and each run's metrics for MLflow."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from faze.base.result_paths import ResultPaths
from faze.base.run_log import LoggedRun
from faze.config.parameters import Evaluate
from faze.config.stage_config import Resolved
from faze.data.codes import CodeStore
from faze.evaluation import UNADAPTED
from faze.evaluation.diagnostics import ERRORS, GAINS, NUMBERS, REDIRECTED, SIMILARITIES
from faze.evaluation.runs import PERSON_KEYS, given_runs, list_runs, read_about_learners
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.wording import counted, signed, title_of

Tables = Mapping[str, pd.DataFrame]
Card = tuple[str, str, str]  # title, value, note
# Metrics named after their columns in the table `performance`; metrics that the device does not report are omitted.
MEASURED = ("speed/images_per_s", "speed/step_ms", "memory/peak_gib", "memory/reserved_gib", "speed/joules_per_step")
MEASURED += ("speed/share_of_matmul_roof", "speed/share_of_copy_roof")


def summarize(paths: ResultPaths, config: Resolved, tables: Tables, trainings: Sequence[LoggedRun]) -> dict[str, Any]:
    """Return the settings, cards, verdicts, facts and metrics that the page and MLflow show."""
    run, learners = config.run, read_about_learners(paths, config)
    changes, errors, measured = tables["changes"], tables["tiers"], tables["performance"]
    deciding = changes[changes["decides"] & changes["tier"].isin(run.tiers)]
    proofs = json.loads(paths.proofs.read_text(encoding="utf-8"))
    other = [tier for tier, proof in proofs.items() if "failed" in proof]  # their speed is not compared
    shown = speed_and_memory(measured[~measured["tier"].isin(other)])
    shown.append(error(deciding, run.tiers[0], config.evaluate))
    shown.append(best_learner(errors[errors["tier"] == run.tiers[0]], learners["recommended_learners"]))
    codes = {name: paths.codes(run.tiers[0], run.seeds[0], name) for name in config.datasets}
    return {
        "cards": [{"title": title, "value": value, "note": note} for title, value, note in shown],
        "tier_verdicts": deciding.groupby("tier", sort=False)["verdict"].min().to_dict(),
        **run.model_dump(),
        "networks": config.networks,
        **config.evaluate.model_dump(),
        "learners": config.fewshot.learners,
        "largest_k": max(config.fewshot.shots),
        "query_entries": config.fewshot.query_entries,
        **learners,
        "pixel_sources": {name: CodeStore(path).pixel_source for name, path in codes.items()},
        "folds": trainings[0].start["config"].get("fold.folds", 0),
        "began": min(training.start["time"] for training in trainings),
        "notes": sorted({note for training in trainings for note in training.notes}),
        "estimator": json.loads(paths.estimator_errors.read_text(encoding="utf-8"))["errors"],
        "runs": run_metrics(config, tables),
    }


def speed_and_memory(performance: pd.DataFrame) -> list[Card]:
    """Return cards for the fastest tier and the smallest peak memory; "none shown" if no improvement is shown."""
    first, acting = performance.iloc[0], performance[performance["same_step"] == ""]
    over = f"over {counted(first['rounds'], 'round')}"
    speed = ("Fastest tier", "none shown", f"{over}, no tier is shown to be faster than {first['tier']}")
    faster = acting[(acting["speed_low_of_all"] > 1) & (acting["speed_over"] == "rounds")]
    for tier in faster.nlargest(1, "speed_ratio").itertuples():
        interval = f"interval {tier.speed_low_of_all:.2f} to {tier.speed_high_of_all:.2f} {over}"
        note = f"{100 * tier.speed_confidence:g} % {interval}, adjusted for picking the best tier of {tier.comparisons}"
        speed = (f"Fastest tier: {tier.tier}", f"{tier.speed_ratio:.2f}×", note)
    memory = ("Smallest peak memory", "none shown", f"{over}, no tier is shown to use less memory than {first['tier']}")
    leaner = acting[acting["memory_differs"] & (acting["memory_ratio"] > 1)]
    for tier in leaner.nlargest(1, "memory_ratio").itertuples():
        note = f"{first['peak_gib']:.3f} → {tier.peak_gib:.3f} GiB, medians {over}"
        memory = (f"Smallest peak memory: {tier.tier}", tier.memory_change, note)
    return [speed, memory]


def error(deciding: pd.DataFrame, baseline: str, evaluate: Evaluate) -> Card:
    """Return a card with the worst verdict and the largest change with this verdict."""
    if deciding.empty:
        return f"Error compared with {baseline}", "not compared", "no other tier was trained (run.tiers)"
    worst = deciding[deciding["verdict"] == deciding["verdict"].min()]
    row = worst.loc[worst["difference_deg"].abs().idxmax()]
    where = f"{row['tier']}, {title_of(row['dataset'])}, k = {row['k']}"
    if pd.notna(row["low_deg"]):  # a single person has no interval
        level, ends = 100 * (2 * evaluate.confidence - 1), f"{signed(row['low_deg'])} to {signed(row['high_deg'])}"
        where += f", {level:.3g} % interval {ends}"
    over = f"and {row['seeds']} seeds" if row["seeds"] >= SEEDS_FOR_A_TIER else "only, valid for these checkpoints"
    note = f"largest change with this verdict: {signed(row['difference_deg'])}° ({where}) over people {over}"
    return f"Error compared with {baseline}", row["verdict"], f"{note}; margin ±{evaluate.margin_deg:g}°"


def best_learner(errors: pd.DataFrame, recommended: Sequence[Mapping[str, Any]]) -> Card:
    """Return a card with the learner that is best on val people at the largest k, and its errors on test people."""
    if not recommended or recommended[-1]["learner"] == UNADAPTED:
        return "Best learner", "none shown", "no learner reduces the error on val people"
    k, learner = recommended[-1]["k"], recommended[-1]["learner"]
    means, changes = errors.set_index(["dataset", "learner", "k"])["mean_deg"], []
    for dataset in errors["dataset"].unique():
        ends = f"{means[dataset, UNADAPTED, 0]:.2f}° → {means[dataset, learner, k]:.2f}°"
        changes.append(f"{ends} on {title_of(dataset)}")
    value, _, note = "; ".join(changes).partition(" on ")
    return f"Best learner: {learner}", value, f"on {note}; k = {k}, chosen on val people"


def run_metrics(config: Resolved, tables: Tables) -> list[dict[str, Any]]:
    """Return each run's tier, seed, metrics and curves; metrics and curves are named as in MLflow."""
    speed, times = tables["performance"].set_index("tier"), tables["convergence"].set_index(["tier", "seed"])
    errors = tables["persons"].groupby([key for key in PERSON_KEYS if key != "person"])["error_deg"].mean()
    redirected = tables["redirected_people"].groupby(["tier", "seed", "dataset", "variant"])[[*NUMBERS]].mean()
    runs = []
    for run in [*list_runs(config.run), *given_runs(config)]:
        metrics, curves = {}, {}
        for dataset in config.datasets:
            means = errors[(*run, dataset)]
            usable = [name for name in config.fewshot.learners if name in means]
            for learner in usable:
                curves[f"{dataset}_{learner}"] = [(0, means[UNADAPTED, 0]), *means[learner].items()]
            k, adapted = curves[f"{dataset}_{usable[0]}"][-1]
            metrics |= {f"error/{dataset}_deg": means[UNADAPTED, 0], f"error/{dataset}_k{k}_deg": adapted}
        if run[0] in speed.index:  # noise controls and given networks have no benchmark
            metrics |= {name: speed.loc[run[0], name.split("/")[1]] for name in MEASURED}
        for (dataset, variant), numbers in redirected.loc[run].iterrows() if run in redirected.index else ():
            names, section, of = ERRORS, "redirection_control", f"_{variant}"
            if variant == REDIRECTED:
                names, section, of = [*ERRORS, *SIMILARITIES], "redirection", ""
            metrics |= {f"{section}/{dataset}_{variant}_{name}": numbers[name] for name in names}
            metrics |= {f"{section}/{dataset}_{name}{of}": numbers[name] for name in GAINS}
        if run in times.index:
            metrics["speed/time_to_baseline_error_s"] = times.loc[run, "rate_seconds"]
        known = {name: value for name, value in metrics.items() if pd.notna(value)}
        runs.append({"tier": run[0], "seed": run[1], "metrics": known, "curves": curves})
    return runs
