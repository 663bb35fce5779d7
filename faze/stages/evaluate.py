"""Rule `evaluate`: the benchmark, and every run's errors, redirected strips, codes and log -> tables and verdicts."""

import itertools
import json
from pathlib import Path

import pandas as pd

from faze.base.files import whole_folder
from faze.base.result_paths import ResultPaths
from faze.base.run_log import read_run, to_json
from faze.config.parameters import WITHOUT_CODES
from faze.config.stage_config import Resolved
from faze.evaluation import UNADAPTED, tables
from faze.evaluation.diagnostics import by_variant, pixel_checks
from faze.evaluation.performance import performance, times_to_error, validation_curves
from faze.evaluation.runs import given_runs, list_runs, read_errors
from faze.evaluation.summary import summarize


def main(*, config: Resolved, results: Path, out: Path) -> None:
    """Read every run, compare each tier with the first tier, and write the tables as CSV files and summary.json."""
    paths, run, learners, settings = ResultPaths(results), config.run, config.fewshot.learners, config.evaluate
    persons = read_errors(paths, list_runs(run), learners)
    if config.networks:
        usable = [name for name in learners if name in WITHOUT_CODES]
        persons = pd.concat([persons, read_errors(paths, given_runs(config), usable)])
    pairs = {of: pd.read_parquet(paths.run(*of, "redirected_pairs.parquet")) for of in list_runs(run)}
    people = pd.concat([by_variant(rows).assign(tier=tier, seed=seed) for (tier, seed), rows in pairs.items()])
    trainings = {of: read_run(paths.run_log(*of)) for of in itertools.product(run.tiers, run.seeds)}
    benchmark = json.loads(paths.benchmark.read_text(encoding="utf-8"))
    matrices, speed = tables.error_matrices(persons), performance(benchmark)
    own = {cell: errors for cell, errors in matrices.items() if cell[0] not in config.networks}
    curves = validation_curves(trainings, speed.set_index("tier")["images_per_s"])
    decide = [(UNADAPTED, 0), (learners[0], max(config.fewshot.shots))]
    found = {
        "persons": persons,
        "tiers": tables.mean_errors(matrices, settings),
        "changes": tables.changes(own, run.tiers, decide, settings),
        "learners": tables.learner_differences(matrices, run.tiers, settings),
        "pixel_checks": pixel_checks(paths, config, persons),
        "redirected_people": people,
        "redirected": tables.redirected(people, settings),
        "redirection_changes": tables.redirection_changes(people, run.tiers, settings),
        "performance": speed,
        "training": curves,
        "convergence": times_to_error(curves, run.tiers[0], settings.margin_deg),
    }
    summary = summarize(paths, config, found, list(trainings.values()))
    with whole_folder(out) as folder:
        for name, table in found.items():
            table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        (folder / "summary.json").write_text(to_json(summary), encoding="utf-8")
