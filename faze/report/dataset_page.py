"""The page of a data set (a folder with index.html, table.csv, summary.json and figures) and its terminal version."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from faze.base.files import as_written, read_json, write_json
from faze.data.inspection import Inspection, person_rows, summarise
from faze.evaluation.wording import counted, title_of
from faze.report.dataset_figures import SheetStrip, draw_density, draw_people, draw_sheet
from faze.report.formats import load_template
from faze.report.media import Embedder, embed_figure, save_figures
from faze.report.style import drawing

PAGE = ("index.html", "summary.json")  # files that identify the folder of such a page
LABEL_SOURCES = {
    "annotated": "from the data set's own annotation",
    "supplementary": "from the FAZE supplementary file",
    "estimated": "estimated from detected landmarks",
    "assumed_camera": "with a camera that is only known by its field of view",
    "stored": "from the store, of unknown origin",
}
VALIDITIES = {"valid": "on the screen", "off_screen": "off the screen", "unknown_screen": "with unknown screen size"}
MOST_LISTED = 12  # devices or people in a line


def write_page(inspection: Inspection, cells: Sequence[SheetStrip], folder: Path, sidecar: str) -> None:
    """Write the page of a data set, including table, summary and figures, into an existing folder.

    Args:
        inspection: content of the store.
        cells: cells of the contact sheet.
        folder: output folder.
        sidecar: relative URL of the list of rejects.
    """
    summary = summarise(inspection)
    write_json(folder / "summary.json", summary)
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        rows = person_rows(inspection)
        table = csv.DictWriter(file, list(rows[0]), restval="", lineterminator="\n")
        table.writeheader()
        for row in rows:
            table.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
    with drawing():
        figures = {"people": draw_people(inspection), "density": draw_density(inspection), "sheet": draw_sheet(cells)}
    pictures = save_figures(figures, folder / "figures", Embedder())
    page = load_template("dataset.html.j2").render(set=summary | _texts(summary), figures=pictures, sidecar=sidecar)
    (folder / "index.html").write_text(page, encoding="utf-8")


def read_page(folder: Path, root: Path, embedder: Embedder) -> dict[str, Any]:
    """Read the page of a data set for the report: summary, pictures as data URIs, and links.

    Args:
        folder: folder of the page.
        root: results/<name>; the report is in a subfolder of it.
        embedder: the report's embedder.

    Raises:
        UserError: the page is missing.
    """
    summary = read_json(folder / "summary.json", ("dataset", "rejects"), "run inspect")
    with as_written(folder / "summary.json", "run inspect"):
        rejects = summary["rejects"]
        sidecar = f"../data/{quote(PurePath(rejects['sidecar']).name, errors='surrogateescape')}" if rejects else ""
        summary |= _texts(summary)
    return {
        "summary": summary,
        "density": embed_figure(folder / "figures", "density", embedder),
        "sheet": embed_figure(folder / "figures", "sheet", embedder),
        "sidecar": sidecar,
        "page": f"../{folder.relative_to(root)}/index.html",
    }


def _texts(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts of a page: title of the data set, facts as (title, text), and the number of rejects."""
    return {"title": title_of(summary["dataset"]), "facts": facts(summary), "rejected": rejected(summary["rejects"])}


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List facts about a data set as (title, text)."""
    rows = [
        ("Strips", "{:,} of {} × {} px".format(summary["strips"], *summary["strip_px"])),
        ("Labels", _shares(summary["label_sources"], LABEL_SOURCES, summary["strips"])),
        ("Gaze targets", _shares(summary["validities"], VALIDITIES, summary["strips"])),
    ]
    if summary["unusable_labels"]:
        rows.append(("Unusable labels", f"{summary['unusable_labels']:,}, not finite or not angles"))
    if devices := summary["devices"]:
        listed = [f"{device} ({counted(number, 'person', 'people')})" for device, number in devices.items()]
        rows.append(("Devices", _listed(listed, f" and {len(listed) - MOST_LISTED} more")))
    return [*rows, ("Checksums", checksums(summary["checksums"])), ("Digest", summary["digest"])]


def _listed(items: Sequence[str], more: str) -> str:
    return ", ".join(items[:MOST_LISTED]) + (more if len(items) > MOST_LISTED else "")


def _shares(counts: Mapping[str, int], texts: Mapping[str, str], total: int) -> str:
    """Format counts by kind, such as "12 off the screen (2.0 %), 588 on the screen (98.0 %)" or "all on the screen"."""
    kinds = [(number, texts.get(key, key)) for key, number in counts.items() if number]
    if len(kinds) == 1:
        return f"all {kinds[0][1]}"
    return ", ".join(f"{number:,} {text} ({percent(number / total)})" for number, text in kinds) or "none"


def checksums(found: Mapping[str, Any] | None) -> str:
    """Format the result of verifying the checksums."""
    if found is None:
        return "not verified"
    texts = [f"{counted(found['intact'], 'person', 'people')} intact"] if found["intact"] else []
    if found["damaged"]:
        texts.append(f"DAMAGED: {_listed(found['damaged'], ' ...')}")
    if found["without"]:
        texts.append(f"{counted(found['without'], 'person', 'people')} without any")
    return ", ".join(texts)


def rejected(rejects: Mapping[str, Any] | None) -> str:
    """Return a sentence that states how many frames and people were rejected."""
    if rejects is None:
        return "The store has no list of rejected frames."
    text = "No frame is rejected"
    if rejects["frames"]:
        frames = counted(rejects["frames"], "frame is rejected", "frames are rejected")
        text = f"{frames}, {percent(rejects['share'])} of all annotated frames"
    if people := len(rejects["left_out"]):
        text += f"; {counted(people, 'person is', 'people are')} left out entirely"
    return f"{text}."


def kind_counts(kind: Mapping[str, Any]) -> str:
    """Format the counts of rejects for one reason, such as "12 frames of 3 people; 2 entire people"."""
    counts = []
    if kind["frames"]:
        counts.append(f"{counted(kind['frames'], 'frame')} of {counted(kind['people'], 'person', 'people')}")
    if kind["left_out"]:
        counts.append(counted(kind["left_out"], "entire person", "entire people"))
    return "; ".join(counts)


def percent(share: float) -> str:
    """Format a share, such as 0.4 %, or as < 0.1 % for very small shares above 0."""
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def describe(summary: Mapping[str, Any]) -> str:
    """Describe an inspection for a terminal."""
    splits = [
        (s["split"], *(f"{s[key]:,}" for key in ("people", "strips", "least")), f"{s['median']:,.6g}", f"{s['most']:,}")
        for s in summary["splits"]
    ]
    ranges = [(r["label"], *(f"{v:.1f}" for k, v in r.items() if k.endswith("_deg"))) for r in summary["ranges"]]
    blocks = [
        [f"{title_of(summary['dataset'])}, {summary['store']}: {counted(summary['people'], 'person', 'people')}"],
        text_table(("split", "people", "strips", "per person: minimum", "median", "maximum"), splits),
        text_table(("degrees", "minimum", "1 %", "median", "99 %", "maximum"), ranges),
        [f"{name + ':':<17}{text}" for name, text in facts(summary)],
        [f"Warning: {words}." for words in summary["unusual"]],
        _describe_rejects(summary["rejects"]),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _describe_rejects(rejects: Mapping[str, Any] | None) -> list[str]:
    lines = [rejected(rejects)]
    if rejects:
        kinds = [(kind_counts(kind), kind["reason"]) for kind in rejects["kinds"]]
        width = max((len(counts) for counts, _ in kinds), default=0)
        lines += [f"  {counts:<{width}}  {reason}" for counts, reason in kinds]
        if rejects["frames"] or rejects["left_out"]:
            lines.append(f"All of them are listed in {rejects['sidecar']}.")
    return lines


def text_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Format a table; the first column is left-aligned and the other columns are right-aligned."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            f"{cell:<{w}}" if i == 0 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    ]
