"""Rule `evaluate`: errors, redirected strips, codes, run logs and benchmark of every run -> tables and the verdict."""

import zlib
from argparse import Namespace
from pathlib import Path

import pandas as pd

from faze.base.command_line import CONFIG, command, needed
from faze.base.files import check_replaceable, whole_folder
from faze.base.locks import output_lock
from faze.base.logged_run import read_ended_run
from faze.base.result_paths import ResultPaths
from faze.config.stage_config import Resolved, load
from faze.evaluation.diagnostics import coverage, person_variance, pixel_checks
from faze.evaluation.redirection_tables import redirected_tables, redirection
from faze.evaluation.runs import Ablation, logged_weights, read_benchmark, read_errors, same_steps
from faze.evaluation.statistics import design_table
from faze.evaluation.summary import summarize, write_json
from faze.evaluation.tables import (
    CELL,
    RUN_CELL,
    TIER_CELL,
    changes,
    learner_differences,
    mean_errors,
    performance,
)
from faze.evaluation.validation import times_to_error, validation_curves


@command(
    __doc__,
    CONFIG,
    needed("--results", "results/<name> with the outputs of all runs"),
    needed("--out", "output folder for the tables"),
)
def main(args: Namespace) -> None:
    """Read every run, compare each tier with the first, and write the tables."""
    config = load(args.config, "evaluate")
    ablation = Ablation(
        paths=ResultPaths(args.results),
        tiers=config.run.tiers,
        seeds=config.run.seeds,
        learners=config.fewshot.learners,
        query_entries=config.fewshot.query_entries,
        datasets=config.datasets,
        controls=config.run.controls,
    )
    check_replaceable(args.out, ["summary.json"])
    with output_lock(args.out):
        ablation.check_complete()
        write_evaluation(ablation, config, args.out)


def write_evaluation(ablation: Ablation, config: Resolved, out: Path) -> None:
    """Write each table as CSV, and write summary.json."""
    persons = read_errors(ablation)
    logs = {run: read_ended_run(ablation.paths.run_log(*run)) for run in ablation.runs()}
    given = logged_weights({tier: logs[tier, ablation.seeds[0]] for tier in ablation.tiers})
    benchmark = read_benchmark(ablation, given)
    given = {tier: weights for tier, weights in given.items() if tier not in benchmark["tiers"]}
    trainings = {(tier, seed): log for (tier, seed), log in logs.items() if tier not in given}
    of_tier = {tier: trainings[tier, ablation.seeds[0]] for tier in ablation.tiers if tier not in given}
    tables: dict[str, pd.DataFrame] = {
        "persons": persons,
        "runs": mean_errors(persons, RUN_CELL, config.evaluate).drop(columns="seeds"),
        "tiers": mean_errors(persons, TIER_CELL, config.evaluate),
        "changes": changes(persons, ablation, config.evaluate, given),
        "learners": learner_differences(
            persons[persons["tier"].isin(ablation.tiers)], ablation.learners, config.evaluate
        ),
        "pixel_checks": pixel_checks(ablation, persons),
        "person_variance": person_variance(ablation, persons),
        "coverage": coverage(ablation),
        "redirection": redirection(ablation),
        **redirected_tables(ablation, config.evaluate, given),
        "performance": performance(ablation, benchmark, of_tier),
    }
    rates = tables["performance"].set_index("tier")["images_per_s"]
    tables["training"] = validation_curves(trainings, rates)
    tables["convergence"] = times_to_error(tables["training"], ablation.tiers[0], config.evaluate.margin_deg)
    noisy = persons[persons["tier"].isin([ablation.tiers[0], *ablation.controls])]
    conditions = tables["changes"].loc[tables["changes"]["decides"], CELL]
    levels = {"margin": config.evaluate.margin_deg, "alpha": 1 - config.evaluate.confidence}
    trained = sum(not same for same in same_steps(of_tier).values()) - 1  # tiers, besides the baseline
    tables["design"] = design_table(noisy, conditions, len(ablation.seeds), tiers=trained, **levels)
    summary = summarize(ablation, tables, trainings, benchmark, config.evaluate) | {"given_weights": given}
    with whole_folder(out) as folder:
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        checksums = {name: zlib.crc32((folder / f"{name}.csv").read_bytes()) for name in tables}
        write_json(folder / "summary.json", summary | {"checksums": checksums})
    print("\n".join(filter(None, summary["verdict"]["sentences"].values())))
