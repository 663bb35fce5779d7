"""Rule `report`: the tables of the evaluation, walks and data pages -> one self-contained page, table and figures."""

from argparse import Namespace
from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from faze.base.command_line import CONFIG, command, needed
from faze.base.files import check_replaceable, whole_folder
from faze.base.locks import output_lock
from faze.base.result_paths import DATASETS, ResultPaths
from faze.config.stage_config import load
from faze.report.data_uris import Embedder
from faze.report.dataset_page import read_page
from faze.report.figure_files import save_figures
from faze.report.page import render
from faze.report.redirection_figures import draw_redirection, draw_walks
from faze.report.results import Results, read_evaluation
from faze.report.shot_figures import draw_learners, draw_shots, draw_shots_by_tier
from faze.report.style import drawing
from faze.report.table_rows import tier_table
from faze.report.tier_figures import (
    draw_changes,
    draw_people,
    draw_talk_charts,
    draw_training,
)
from faze.report.walk_pictures import collect_atlas, collect_walks, walk_angles

PAGE = ("index.html", "table.csv")  # files that identify its folder


@command(
    __doc__,
    CONFIG,
    needed("--results", "results/<name>, after evaluate"),
    needed("--out", "folder of the page to write"),
)
def main(args: Namespace) -> None:
    """Read the evaluation, draw it, and write the page."""
    check_replaceable(args.out, PAGE)
    config = load(args.config, "report")
    paths = ResultPaths(args.results)
    with output_lock(args.out):
        summary, results = read_evaluation(paths)
        figures = draw(results, walk_angles(paths, results.tiers, summary["seeds"][0]))
        embedder = Embedder()
        with whole_folder(args.out) as folder:
            pictures = save_figures(figures, folder / "figures", embedder)
            tier_table(summary, results).to_csv(folder / "table.csv", index=False, float_format="%.6g")
            page = render(
                title=config.report.title,
                note=config.report.note,
                summary=summary,
                results=results,
                figures=pictures,
                walks=collect_walks(paths, results.tiers, summary["seeds"][0], embedder),
                atlas=collect_atlas(paths, results.tiers, summary["seeds"][0]),
                data=[read_page(paths.inspection(d), paths.root, embedder) for d in DATASETS],
            )
            (folder / "index.html").write_text(page, encoding="utf-8")
    print(f"report: open {args.out / 'index.html'}")


def draw(results: Results, angles: Mapping[str, pd.DataFrame]) -> dict[str, Figure]:
    """Draw every figure that has content."""
    with drawing():
        figures = {"talk": draw_talk_charts(results), "shots": draw_shots(results)}
        if len(results.learners) > 1:
            figures["learners"] = draw_learners(results)
        if len(results.tiers) > 1:
            figures |= {"changes": draw_changes(results), "shots_by_tier": draw_shots_by_tier(results)}
        figures["people"] = draw_people(results)
        figures["redirection"] = draw_redirection(results)
        if angles:
            figures["walks"] = draw_walks(results, angles)
        if not results.tables["training"].empty:
            figures["training"] = draw_training(results)
    return figures
