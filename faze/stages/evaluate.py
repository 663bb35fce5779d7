"""Rule `evaluate`: errors, redirected strips, codes, run logs and benchmark of every run -> tables and the verdict."""

import zlib
from argparse import Namespace
from pathlib import Path

import pandas as pd

from faze.base.command_line import CONFIG, command, needed
from faze.base.files import check_replaceable, whole_folder
from faze.base.logged_run import read_ended_run
from faze.base.output_lock import output_lock
from faze.base.result_paths import ResultPaths
from faze.config.stage_config import Resolved, load
from faze.evaluation.convergence import times_to_error, validation_curves
from faze.evaluation.coverage import coverage
from faze.evaluation.design import designs
from faze.evaluation.learner_pairs import learner_differences
from faze.evaluation.person_variance import person_variance
from faze.evaluation.pixel_checks import pixel_checks
from faze.evaluation.redirection_tables import redirection
from faze.evaluation.redirection_tables import redirected_tables
from faze.evaluation.runs import Ablation, read_benchmark, read_errors
from faze.evaluation.summary import SENTENCES, summarize, write_json
from faze.evaluation.tables import CELL, RUN_CELL, TIER_CELL, changes, mean_errors, performance


@command(
    __doc__,
    CONFIG,
    needed("--results", "results/<name> with all runs in it"),
    needed("--out", "folder of tables to write"),
)
def main(args: Namespace) -> None:
    """Read every run, judge each tier against the first, and write what was found."""
    config = load(args.config, "evaluate")
    ablation = Ablation(
        paths=ResultPaths(args.results),
        tiers=config.run.tiers,
        seeds=config.run.seeds,
        learners=config.fewshot.learners,
        query_entries=config.fewshot.query_entries,
        controls=config.run.controls,
    )
    check_replaceable(args.out, ["summary.json"])
    with output_lock(args.out):
        ablation.check_complete()
        write_evaluation(ablation, config, args.out)


def write_evaluation(ablation: Ablation, config: Resolved, out: Path) -> None:
    """Write the tables as csv, one file each, and summary.json."""
    persons = read_errors(ablation)
    benchmark = read_benchmark(ablation)
    trainings = {run: read_ended_run(ablation.paths.run_log(*run)) for run in ablation.runs()}
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
        "coverage": coverage(ablation),
        "redirection": redirection(ablation),
        **redirected_tables(ablation, config.evaluate),
        "performance": performance(ablation, benchmark, of_tier),
    }
    rates = tables["performance"].set_index("tier")["images_per_s"]
    tables["training"] = validation_curves(trainings, rates)
    tables["convergence"] = times_to_error(tables["training"], ablation.tiers[0], config.evaluate.margin_deg)
    chance = persons[persons["tier"].isin([ablation.tiers[0], *ablation.controls])]
    deciding = tables["changes"].loc[tables["changes"]["decides"], CELL]
    levels = {"margin": config.evaluate.margin_deg, "alpha": 1 - config.evaluate.confidence}
    rungs = int((tables["performance"]["same_as"] == "").sum()) - 1  # that were trained
    tables["design"] = designs(chance, deciding, len(ablation.seeds), rungs=rungs, **levels)
    summary = summarize(ablation, tables, trainings, benchmark, config.evaluate)
    with whole_folder(out) as folder:
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        checksums = {name: zlib.crc32((folder / f"{name}.csv").read_bytes()) for name in tables}
        write_json(folder / "summary.json", summary | {"checksums": checksums})
    for part in SENTENCES:  # for the person who waits
        if summary["verdict"][part]:
            print(summary["verdict"][part])
