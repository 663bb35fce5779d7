"""Rule `evaluate`: errors, redirected strips, codes, run logs and benchmark of every run -> tables and the verdict."""

import json
from pathlib import Path

import pandas as pd

from faze.base.files import whole_folder
from faze.base.result_paths import ResultPaths
from faze.base.run_log import read_run
from faze.config.stage_config import Resolved
from faze.evaluation.diagnostics import person_variance, pixel_checks
from faze.evaluation.redirection_tables import redirected_tables
from faze.evaluation.runs import Ablation, read_errors
from faze.evaluation.summary import summarize, write_json
from faze.evaluation.tables import (
    RUN_CELL,
    TIER_CELL,
    changes,
    learner_differences,
    mean_errors,
    performance,
)
from faze.evaluation.validation import times_to_error, validation_curves


def main(*, config: Resolved, results: Path, out: Path) -> None:
    """Read every run, compare each tier with the first, and write the tables."""
    ablation = Ablation(
        paths=ResultPaths(results),
        tiers=config.run.tiers,
        seeds=config.run.seeds,
        learners=config.fewshot.learners,
        query_entries=config.fewshot.query_entries,
        datasets=config.datasets,
        controls=config.run.controls,
    )
    write_evaluation(ablation, config, out)


def write_evaluation(ablation: Ablation, config: Resolved, out: Path) -> None:
    """Write each table as CSV, and write summary.json."""
    persons = read_errors(ablation)
    trainings = {run: read_run(ablation.paths.run_log(*run)) for run in ablation.runs()}
    benchmark = json.loads(ablation.paths.benchmark.read_text(encoding="utf-8"))
    of_tier = {tier: trainings[tier, ablation.seeds[0]] for tier in ablation.tiers}
    tables: dict[str, pd.DataFrame] = {
        "persons": persons,
        "runs": mean_errors(persons, RUN_CELL, config.evaluate).drop(columns="seeds"),
        "tiers": mean_errors(persons, TIER_CELL, config.evaluate),
        "changes": changes(persons, ablation, config.evaluate),
        "learners": learner_differences(
            persons[persons["tier"].isin(ablation.tiers)], ablation.learners, config.evaluate
        ),
        "pixel_checks": pixel_checks(ablation, persons),
        "person_variance": person_variance(ablation, persons),
        **redirected_tables(ablation, config.evaluate),
        "performance": performance(ablation, benchmark, of_tier),
    }
    rates = tables["performance"].set_index("tier")["images_per_s"]
    tables["training"] = validation_curves(trainings, rates)
    tables["convergence"] = times_to_error(tables["training"], ablation.tiers[0], config.evaluate.margin_deg)
    summary = summarize(ablation, tables, trainings, benchmark, config.evaluate)
    with whole_folder(out) as folder:
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        write_json(folder / "summary.json", summary)
    print("\n".join(filter(None, summary["verdict"]["sentences"].values())))
