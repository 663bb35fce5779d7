"""Rule `report_workload`: proofs, benchmark and run logs of a workload -> its page, and the metrics for MLflow."""

import inspect
from argparse import Namespace

from faze.base.command_line import CONFIG, command, needed
from faze.base.files import check_replaceable, whole_folder, write_json
from faze.base.locks import output_lock
from faze.base.result_paths import ResultPaths
from faze.config.stage_config import load
from faze.config.workloads import class_path
from faze.evaluation.workload_results import read_results, run_metrics
from faze.report.workload_page import PAGE, write_page
from faze.training.workload_training import load_workload


@command(
    __doc__,
    CONFIG,
    needed("--results", "results/<name>, with every tier trained, proved and measured"),
    needed("--evaluation", "folder of summary.json to write"),
    needed("--out", "folder of the page to write"),
)
def main(args: Namespace) -> None:
    """Write the summary and the page."""
    check_replaceable(args.out, PAGE)
    config = load(args.config, "report_workload")
    workload, run, confidence = load_workload(config.workload), config.run, config.evaluate.confidence
    results = read_results(ResultPaths(args.results), run.tiers, run.seeds, run.controls, confidence)
    shown = ("score", "higher_is_better", "published", "published_speed", "published_memory")
    about = {name: getattr(workload, name) for name in shown} | {
        "path": class_path(config.workload),
        "summary": (inspect.getdoc(type(workload)) or "").split("\n")[0].partition(". ")[0].rstrip(".") + ".",
    }
    with output_lock(args.out):
        with whole_folder(args.evaluation) as folder:
            write_json(folder / "summary.json", {"runs": run_metrics(results), "pixel_sources": {}, "about": about})
        with whole_folder(args.out) as folder:
            write_page(config.name, about, results, f"{100 * confidence:g} %", folder)
    print(f"report: open {args.out / 'index.html'}")
