"""Rule `report`: proofs, benchmark and training results, if any -> one self-contained page and a table.

For workloads other than DT-ED, it also writes a summary for the rule `track` to the folder `evaluation`.
"""

import json
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from faze.base.files import whole_folder
from faze.base.result_paths import ResultPaths
from faze.config.parameters import DTED
from faze.config.stage_config import Resolved
from faze.report import figures, page
from faze.report.results import TALK, Results, read_csv, read_evaluation, read_trainings, tier_rows


def main(*, config: Resolved, results: Path, out: Path, evaluation: Path | None = None) -> None:
    """Draw the figures and write the page."""
    paths = ResultPaths(results)
    benchmark = json.loads(paths.benchmark.read_text(encoding="utf-8"))
    proofs = json.loads(paths.proofs.read_text(encoding="utf-8")) if paths.proofs.exists() else {}
    rows = tier_rows(benchmark, proofs)
    title, published = config.report.title, TALK
    if config.workload == DTED:
        summary, tables = read_evaluation(paths, rows)
    else:
        summary, tables = read_trainings(paths, config, rows)
        ratios = {name: summary["about"][f"published_{name}"] for name in ("speed", "memory")}
        title, published = config.name, {"name": "published"} | ratios if any(ratios.values()) else {}
    if evaluation:
        with whole_folder(evaluation) as folder:
            (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    with whole_folder(out) as folder:
        found = Results(rows, benchmark, summary, tables, published, summary["tiers"], list(summary["pixel_sources"]))
        page.tiers_in_full(found).to_csv(folder / "tiers.csv", float_format="%.6g")
        with matplotlib.rc_context(figures.STYLE):
            drawn = page.save_figures(draw(found, paths), folder / "figures")
        text = page.render(found, paths, title, config.report.note, drawn)
        (folder / "index.html").write_text(text, encoding="utf-8")
    print(f"report: open {out / 'index.html'}")


def draw(results: Results, paths: ResultPaths) -> dict[str, Figure]:
    """Draw every figure for which there are results."""
    drawn = {"tiers": figures.draw_tiers(results)}
    if len(results.tables.get("training", ())):
        drawn["training"] = figures.draw_training(results)
    if not results.datasets:
        return drawn
    if len(results.tiers) > 1:
        drawn["changes"] = figures.draw_changes(results)
    if len(every := [*results.tiers, *results.summary["networks"]]) > 1:
        drawn["shots_by_tier"] = figures.draw_shots(results, every)
    if len(results.tables["learners"]):
        drawn["learners"] = figures.draw_learners(results)
    ends, seed = dict.fromkeys([results.tiers[0], results.tiers[-1]]), results.summary["seeds"][0]
    angles = {tier: read_csv(paths.walks(tier, seed) / "angles.csv") for tier in ends}
    drawn |= {"shots": figures.draw_shots(results, results.tiers[:1]), "people": figures.draw_people(results)}
    return drawn | {"walks": figures.draw_walks(results, angles)}
