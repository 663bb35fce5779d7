"""Rule `compare`: the run logs of a sweep -> a page that compares its points.

It uses the validation errors on val people. Test people are reserved for a later ablation with the values of the best
point.
"""

from argparse import Namespace

from faze.base.command_line import CONFIG, command, needed
from faze.base.errors import UserError
from faze.base.files import check_replaceable, whole_folder
from faze.base.locks import output_lock
from faze.base.result_paths import ResultPaths
from faze.config.stage_config import load
from faze.config.yaml_files import flatten
from faze.evaluation.validation import ERROR, swept_points, swept_runs
from faze.report.sweep_page import PAGE, write_sweep


@command(
    __doc__,
    CONFIG,
    needed("--results", "results/<name>; the page lists missing and unfinished runs"),
    needed("--out", "output folder of the page"),
)
def main(args: Namespace) -> None:
    """Read the run logs, average over seeds and write the page."""
    check_replaceable(args.out, PAGE)
    config = load(args.config, "compare")
    points = {point: flatten(values) for point, values in config.points.items()}
    if not points:
        raise UserError(f"{args.config}: has no points, because sweep.grid and sweep.sobol are empty")
    runs = swept_runs(ResultPaths(args.results), list(points), config.run.seeds)
    table = swept_points(runs, points, config.evaluate.confidence)
    with output_lock(args.out), whole_folder(args.out) as folder:
        level = f"{100 * config.evaluate.confidence:g} %"
        write_sweep(config.name, runs, table, list(next(iter(points.values()))), level, folder)
    best = table.dropna(subset=[ERROR]).head(1)
    for row in best.to_dict("records"):
        print(f"compare: {row['point']} has the smallest error on val people, {row[ERROR]:.2f}°")
    if best.empty:
        print("compare: no training run has finished")
    print(f"compare: open {args.out / 'index.html'}")
