"""Rule `report`: the tables of the evaluation, walks and data pages -> one self-contained page, table and figures."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from faze.base.command_line import CONFIG, command, needed
from faze.base.errors import UserError
from faze.base.files import read_json, whole_folder
from faze.base.output_lock import sole_writer
from faze.base.result_paths import DATASETS, ResultPaths
from faze.config.stage_config import load
from faze.report import formats
from faze.report.data_uris import Embedder
from faze.report.dataset_page import read_page
from faze.report.page import collect_walks, render, tier_table
from faze.report.shot_figures import draw_learners, draw_shots, draw_shots_by_tier
from faze.report.style import drawing
from faze.report.tier_figures import (
    Results,
    draw_changes,
    draw_people,
    draw_talk_charts,
    draw_training,
)

TABLES = ("runs", "tiers", "persons", "changes", "learners", "controls", "performance", "training", "convergence")


@command(
    __doc__,
    CONFIG,
    needed("--results", "results/<name>, evaluated"),
    needed("--out", "folder of the page to write"),
)
def main(args: Namespace) -> None:
    """Read the evaluation, draw it, and write the page."""
    config = load(args.config, "report")
    paths = ResultPaths(args.results)
    with sole_writer(args.out):
        summary, results = read_evaluation(paths)
        figures = draw(results)
        embedder = Embedder()
        with whole_folder(args.out) as folder:
            pictures = save_figures(figures, folder / "figures", embedder)
            tier_table(summary, results).to_csv(folder / "table.csv", index=False, float_format="%.6g")
            page = render(
                title=config.report.title,
                summary=summary,
                results=results,
                figures=pictures,
                walks=collect_walks(paths, results.tiers, summary["seeds"][0], embedder),
                data=[read_page(paths.inspection(d), paths.root, embedder) for d in DATASETS],
            )
            (folder / "index.html").write_text(page, encoding="utf-8")
    print(f"report: open {args.out / 'index.html'}")


def read_evaluation(paths: ResultPaths) -> tuple[dict[str, Any], Results]:
    """Read what evaluate wrote.

    Raises:
        UserError: a table is missing or torn.
    """
    missing = [
        name for name in [*(f"{t}.csv" for t in TABLES), "summary.json"] if not (paths.evaluation / name).is_file()
    ]
    if missing:
        raise UserError(f"{paths.evaluation / missing[0]} is missing: run evaluate first")
    summary = read_json(paths.evaluation / "summary.json", ("tiers", "learners", "seeds"), "run evaluate again")
    tables = {table: _read_table(paths.evaluation / f"{table}.csv") for table in TABLES}
    found = set(tables["tiers"]["dataset"])
    results = Results(
        tiers=summary["tiers"],
        learners=summary["learners"],
        datasets=[dataset for dataset in DATASETS if dataset in found],
        largest_k=summary["largest_k"],
        margin_deg=summary["margin_deg"],
        tables=tables,
        machine=formats.machine(summary["machine"] or summary["training_machine"]),
        real=not paths.truth.exists(),
    )
    return summary, results


def _read_table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path, dtype={"person": str, "tier": str})
    except ValueError as error:  # of pandas' parser, and of bytes that are no text
        raise UserError(f"{path}: is no whole table ({error}): run evaluate again") from None


def draw(results: Results) -> dict[str, Figure]:
    """Every figure by name; one without content is left out."""
    with drawing():
        figures = {"talk": draw_talk_charts(results), "shots": draw_shots(results)}
        if len(results.learners) > 1:
            figures["learners"] = draw_learners(results)
        if len(results.tiers) > 1:
            figures |= {"changes": draw_changes(results), "shots_by_tier": draw_shots_by_tier(results)}
        figures["people"] = draw_people(results)
        if not results.tables["training"].empty:
            figures["training"] = draw_training(results)
    return figures


def save_figures(figures: dict[str, Figure], folder: Path, embedder: Embedder) -> dict[str, str | None]:
    """Write each figure as svg and png, and embed the svg."""
    folder.mkdir()
    with drawing():
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            figure.savefig(folder / f"{name}.png", dpi=160)
    return {name: embedder.file(folder / f"{name}.svg", "image/svg+xml") for name in figures}
