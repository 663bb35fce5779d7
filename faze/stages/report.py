"""Rule `report`: the tables of the evaluation, walks and data pages -> one self-contained page, table and figures."""

from argparse import Namespace
from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from faze.base.command_line import CONFIG, command, needed
from faze.base.files import check_replaceable, whole_folder
from faze.base.locks import output_lock
from faze.base.result_paths import ResultPaths
from faze.config.stage_config import load
from faze.report import figures
from faze.report.dataset_page import read_page
from faze.report.media import Embedder, collect_atlas, collect_walks, save_figures
from faze.report.page import render, tier_table
from faze.report.results import Results, read_evaluation, walk_angles
from faze.report.style import drawing

PAGE = ("index.html", "table.csv")  # files that identify the folder of such a page


@command(
    __doc__,
    CONFIG,
    needed("--results", "results/<name> with an evaluation"),
    needed("--out", "output folder of the page"),
)
def main(args: Namespace) -> None:
    """Read the evaluation, draw the figures and write the page."""
    check_replaceable(args.out, PAGE)
    config = load(args.config, "report")
    paths = ResultPaths(args.results)
    with output_lock(args.out):
        summary, results = read_evaluation(paths)
        drawn = draw(results, walk_angles(paths, results.tiers, summary["seeds"][0]))
        embedder = Embedder()
        with whole_folder(args.out) as folder:
            pictures = save_figures(drawn, folder / "figures", embedder)
            tier_table(summary, results).to_csv(folder / "table.csv", index=False, float_format="%.6g")
            page = render(
                title=config.report.title,
                note=config.report.note,
                summary=summary,
                results=results,
                figures=pictures,
                walks=collect_walks(paths, results.tiers, summary["seeds"][0], embedder),
                atlas=collect_atlas(paths, results.tiers, summary["seeds"][0]),
                data=[read_page(paths.inspection(d), paths.root, embedder) for d in results.pixel_sources],
            )
            (folder / "index.html").write_text(page, encoding="utf-8")
    print(f"report: open {args.out / 'index.html'}")


def draw(results: Results, angles: Mapping[str, pd.DataFrame]) -> dict[str, Figure]:
    """Draw all figures that have content."""
    with drawing():
        drawn = {"talk": figures.draw_talk_charts(results), "shots": figures.draw_shots(results)}
        if len(results.learners) > 1:
            drawn["learners"] = figures.draw_learners(results)
        if len(results.tiers) > 1:
            drawn |= {"changes": figures.draw_changes(results), "shots_by_tier": figures.draw_shots_by_tier(results)}
        drawn |= {"people": figures.draw_people(results), "redirection": figures.draw_redirection(results)}
        if angles:
            drawn["walks"] = figures.draw_walks(results, angles)
        if not results.tables["training"].empty:
            drawn["training"] = figures.draw_training(results)
    return drawn
