"""The page of a data set, as a folder: index.html, table.csv, summary.json and the figures."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from faze.base.files import as_written, read_json
from faze.data.inspection import Inspection, person_rows, summarise
from faze.report.data_uris import Embedder
from faze.report.dataset_figures import draw_density, draw_people
from faze.report.figure_files import embed_figure, save_figures
from faze.report.strip_sheet import SheetStrip, draw_sheet
from faze.report.style import drawing
from faze.report.template import load_template

PAGE = ("index.html", "summary.json")  # by which a folder is known to hold such a page


def write_page(inspection: Inspection, cells: Sequence[SheetStrip], folder: Path, sidecar: str) -> None:
    """Write the page of a data set into a folder, with its table, summary and figures.

    Args:
        inspection: of the store.
        cells: of the contact sheet.
        folder: exists.
        sidecar: address of the list of rejects, as seen from the page.
    """
    summary = summarise(inspection)
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    _write_table(person_rows(inspection), folder / "table.csv")
    with drawing():
        figures = {"people": draw_people(inspection), "density": draw_density(inspection), "sheet": draw_sheet(cells)}
    pictures = save_figures(figures, folder / "figures", Embedder())
    page = load_template("dataset.html.j2").render(set=summary, figures=pictures, sidecar=sidecar)
    (folder / "index.html").write_text(page, encoding="utf-8")


def read_page(folder: Path, root: Path, embedder: Embedder) -> dict[str, Any]:
    """Read what the report shows of a data set: its summary, pictures (data URIs), and where the rest lies.

    Args:
        folder: of the page.
        root: results/<name>, in which a subfolder holds the report.
        embedder: of the report.

    Raises:
        UserError: the page is missing.
    """
    summary = read_json(folder / "summary.json", ("dataset", "rejects"), "run inspect")
    with as_written(folder / "summary.json", "run inspect"):
        rejects = summary["rejects"]
        sidecar = f"../data/{quote(PurePath(rejects['sidecar']).name, errors='surrogateescape')}" if rejects else ""
    return {
        "summary": summary,
        "density": embed_figure(folder / "figures", "density", embedder),
        "sheet": embed_figure(folder / "figures", "sheet", embedder),
        "sidecar": sidecar,
        "page": f"../{folder.relative_to(root)}/index.html",
    }


def _write_table(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]), restval="", lineterminator="\n")
        table.writeheader()
        for row in rows:
            table.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
