"""Rule `report`: proofs, benchmark and, if anything was trained, its results -> one self-contained page and a table.

For a workload other than DT-ED, it also writes the summary that the rule `track` reads.
"""

import json
from pathlib import Path

from faze.base.files import whole_folder
from faze.base.result_paths import ResultPaths
from faze.config.parameters import DTED
from faze.config.stage_config import Resolved
from faze.report import workload
from faze.report.page import render
from faze.report.results import TALK, Results, read_evaluation, tier_rows
from faze.report.tables import tiers_in_full


def main(*, config: Resolved, results: Path, out: Path, evaluation: Path | None = None) -> None:
    """Draw the figures and write the page.

    Args:
        results: results/NAME, with a benchmark and any proofs, evaluation, walks and run logs
        evaluation: folder to write for MLflow, for a workload other than DT-ED
    """
    paths = ResultPaths(results)
    benchmark = json.loads(paths.benchmark.read_text(encoding="utf-8"))
    proofs = paths.benchmark.with_name("proofs.json")
    rows = tier_rows(benchmark, json.loads(proofs.read_text(encoding="utf-8")) if proofs.exists() else {})
    title, reference = config.report.title, TALK
    if config.workload == DTED:
        summary, tables = read_evaluation(paths, rows)
    else:
        summary, tables = workload.summarize(paths, config, rows)
        title, about = config.name, summary["about"]
        reference = {"name": "published", "speed": about["published_speed"], "memory": about["published_memory"]}
        reference = reference if about["published_speed"] or about["published_memory"] else {}
    if evaluation:
        with whole_folder(evaluation) as folder:
            (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    with whole_folder(out) as folder:
        found = Results(rows, benchmark, summary, tables, reference)
        tiers_in_full(found).to_csv(folder / "tiers.csv", float_format="%.6g")
        page = render(found, paths, title, config.report.note, folder / "figures")
        (folder / "index.html").write_text(page, encoding="utf-8")
    print(f"report: open {out / 'index.html'}")
