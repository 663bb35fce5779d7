"""The page: a template, filled with tables, figures, pictures and videos."""

import base64
import datetime
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure
from PIL import Image

from faze.base.result_paths import ResultPaths
from faze.data.strips import RENDERED
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.wording import counted, join, title_of
from faze.report import figures, formats, tables
from faze.report.results import Results

WALK_VIDEOS = 8  # embedded per page; the others remain in their folder
PICTURE_PX = 2400  # largest width of a picture: twice the page, for high-resolution screens
FILTERS = ("degrees", "ratio", "digits", "count", "change", "interval", "signed_interval", "percent", "share")
FILTERS += ("p_value", "milliseconds", "elapsed", "marked")
WORDS = ("identical", "equivalent", "different", "not shown", "not judged", "another experiment")  # set in colour


def render(results: Results, paths: ResultPaths, title: str, note: str, drawn: Mapping[str, str]) -> str:
    """Return the page as HTML; `drawn` contains the data URI of each figure."""
    loader, summary = jinja2.PackageLoader("faze.report", "."), results.summary
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {name: getattr(formats, name) for name in FILTERS}
    environment.filters |= {"counted": counted, "join_words": join, "title_of": title_of, "device": formats.machine}
    shown = {"results": results, "summary": summary, "benchmark": results.benchmark, "figures": drawn}
    found = {"tiers": tables.tier_table(results)}
    if results.datasets:
        found |= {"times": tables.time_table(results), "redirection": tables.redirection_table(results)}
        found |= {"data": tables.data_table(results, paths)}
        shown["shots"] = [f"k = {k}" for k in sorted(results.tables["tiers"]["k"].unique())]
        shown["walks"] = collect_walks(paths, results.tiers, summary["seeds"][0])
    return environment.get_template("page.html.j2").render(
        **shown,
        title=title,
        note=note,
        tables=found,
        rendered=[name for name in results.datasets if summary["pixel_sources"][name] == RENDERED],
        began=datetime.date.fromtimestamp(summary["began"]).isoformat() if "began" in summary else "",
        enough_seeds=SEEDS_FOR_A_TIER,
        words=WORDS,
        one_in=lambda rounds: math.comb(2 * rounds, rounds) // 2,  # comparisons of equal tiers whose ranges are apart
    )


def save_figures(drawn: Mapping[str, Figure], folder: Path) -> dict[str, str]:
    """Save every figure as SVG; return the data URI of each."""
    folder.mkdir()
    with figures.drawing():
        for name, figure in drawn.items():
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return {name: embed((folder / f"{name}.svg").read_bytes(), "image/svg+xml") for name in drawn}


def embed(content: bytes, kind: str) -> str:
    """Return the content of a file of the given MIME type as a data URI."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def embed_picture(path: Path) -> str:
    """Return a picture as a JPEG in a data URI."""
    buffer = io.BytesIO()
    with Image.open(path) as image:
        image.thumbnail((PICTURE_PX, image.height), Image.Resampling.LANCZOS)
        image.convert("RGB").save(buffer, "jpeg", quality=88, optimize=True)
    return embed(buffer.getvalue(), "image/jpeg")


def collect_walks(paths: ResultPaths, tiers: Sequence[str], seed: int) -> list[dict[str, Any]]:
    """Collect the contact sheet of every tier, and videos of the last tier, which comes first."""
    walks = []
    for tier in reversed(tiers):
        folder, videos = paths.walks(tier, seed), []
        files = sorted(folder.glob("*.mp4"))
        for path in files[:: math.ceil(len(files) / WALK_VIDEOS) or 1] if not walks else ():
            dataset, _, person = path.stem.partition("_")
            videos.append((f"{title_of(dataset)} {person}", embed(path.read_bytes(), "video/mp4")))
        about = {"tier": tier, "folder": folder.relative_to(paths.root), "total": len(files), "videos": videos}
        walks.append(about | {"sheet": embed_picture(folder / "contact_sheet.png")})
    return walks
