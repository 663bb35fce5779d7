"""Rule `report_workload`: proofs, benchmark and run logs of a workload -> its page, and the metrics for MLflow."""

import inspect
import json
from pathlib import Path

from faze.base.files import whole_folder
from faze.base.result_paths import ResultPaths
from faze.config.stage_config import Resolved
from faze.evaluation.workload_results import read_results, run_metrics
from faze.report.workload_page import write_page
from faze.training.check import load_class


def main(*, config: Resolved, results: Path, evaluation: Path, out: Path) -> None:
    """Write the summary and the page."""
    workload, run, confidence = load_class(config.workload), config.run, config.evaluate.confidence
    found = read_results(ResultPaths(results), run.tiers, run.seeds, run.controls, confidence)
    shown = ("score", "higher_is_better", "published", "published_speed", "published_memory")
    about = {name: getattr(workload, name) for name in shown} | {
        "path": config.workload,
        "summary": (inspect.getdoc(type(workload)) or "").split("\n")[0].partition(". ")[0].rstrip(".") + ".",
    }
    summary = {"runs": run_metrics(found), "pixel_sources": {}, "about": about}
    with whole_folder(evaluation) as folder:
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    with whole_folder(out) as folder:
        write_page(config.name, about, found, f"{100 * confidence:g} %", folder)
    print(f"report: open {out / 'index.html'}")
