"""Rule `report`: tables of the evaluation, walks, stores and rejects -> one self-contained page, table and figures."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from faze.base.files import whole_folder
from faze.base.result_paths import ResultPaths
from faze.config.stage_config import Resolved
from faze.report import figures
from faze.report.data_counts import describe_data
from faze.report.media import collect_walks, save_figures
from faze.report.page import render, tier_table
from faze.report.results import Results, read_evaluation, walk_angles
from faze.report.style import drawing


def main(*, config: Resolved, results: Path, out: Path) -> None:
    """Read the evaluation, draw the figures and write the page."""
    paths = ResultPaths(results)
    summary, evaluated = read_evaluation(paths)
    drawn = draw(evaluated, walk_angles(paths, evaluated.tiers, summary["seeds"][0]))
    with whole_folder(out) as folder:
        pictures = save_figures(drawn, folder / "figures")
        tier_table(summary, evaluated).to_csv(folder / "table.csv", index=False, float_format="%.6g")
        page = render(
            title=config.report.title,
            note=config.report.note,
            summary=summary,
            results=evaluated,
            figures=pictures,
            walks=collect_walks(paths, evaluated.tiers, summary["seeds"][0]),
            data=[describe_data(paths, dataset) for dataset in evaluated.pixel_sources],
        )
        (folder / "index.html").write_text(page, encoding="utf-8")
    print(f"report: open {out / 'index.html'}")


def draw(results: Results, angles: Mapping[str, pd.DataFrame]) -> dict[str, Figure]:
    """Draw all figures that have content."""
    with drawing():
        drawn = {"talk": figures.draw_talk_charts(results), "shots": figures.draw_shots(results)}
        if len(results.tables["learners"]):
            drawn["learners"] = figures.draw_learners(results)
        if len(results.tiers) > 1:
            drawn |= {"changes": figures.draw_changes(results), "shots_by_tier": figures.draw_shots_by_tier(results)}
        drawn |= {"people": figures.draw_people(results)}
        drawn["walks"] = figures.draw_walks(results, angles)
        if not results.tables["training"].empty:
            drawn["training"] = figures.draw_training(results)
    return drawn
