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
from faze.report.results import Results, read_csv

WALK_VIDEOS = 8  # embedded per page; the others remain in their folder
PICTURE_PX = 2400  # largest width of a picture: twice the page, for high-resolution screens
FILTERS = ("degrees", "ratio", "digits", "count", "change", "signed_interval", "share", "p_value", "milliseconds")
FILTERS += ("elapsed", "marked")
WORDS = ("identical", "equivalent", "different", "not shown", "not judged", "another experiment")  # set in colour


def render(results: Results, paths: ResultPaths, title: str, note: str, folder: Path) -> str:
    """Return the page as HTML, and save its figures in a new folder."""
    loader = jinja2.PackageLoader("faze.report", ".")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {name: getattr(formats, name) for name in FILTERS}
    environment.filters |= {"counted": counted, "join_words": join, "title_of": title_of, "device": formats.machine}
    summary, walks = results.summary, []
    if results.datasets:
        walks = collect_walks(paths, results.tiers, summary["seeds"][0])
    return environment.get_template("page.html.j2").render(
        title=title,
        note=note,
        results=results,
        summary=summary,
        benchmark=results.benchmark,
        tables=tables.tabulate(results, paths),
        figures=save(draw(results, paths), folder),
        walks=walks,
        rendered=[name for name in results.datasets if summary["pixel_sources"][name] == RENDERED],
        began=datetime.date.fromtimestamp(summary["began"]).isoformat() if "began" in summary else "",
        enough_seeds=SEEDS_FOR_A_TIER,
        words=WORDS,
        one_in=lambda rounds: math.comb(2 * rounds, rounds) // 2,  # comparisons of equal tiers whose ranges are apart
    )


def draw(results: Results, paths: ResultPaths) -> dict[str, Figure]:
    """Draw all figures that have content."""
    with figures.drawing():
        drawn = {"tiers": figures.draw_tiers(results)}
        if len(results.tables.get("training", ())):
            drawn["training"] = figures.draw_training(results)
        if not results.datasets:
            return drawn
        if len(results.tiers) > 1:
            drawn["changes"] = figures.draw_changes(results)
            drawn["shots_by_tier"] = figures.draw_shots_by_tier(results)
        if len(results.tables["learners"]):
            drawn["learners"] = figures.draw_learners(results)
        ends, seed = dict.fromkeys([results.tiers[0], results.tiers[-1]]), results.summary["seeds"][0]
        angles = {tier: read_csv(paths.walks(tier, seed) / "angles.csv") for tier in ends}
        drawn |= {"shots": figures.draw_shots(results), "people": figures.draw_people(results)}
        return drawn | {"walks": figures.draw_walks(results, angles)}


def save(drawn: Mapping[str, Figure], folder: Path) -> dict[str, str]:
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
        folder = paths.walks(tier, seed)
        files = sorted(folder.glob("*.mp4"))
        videos = []
        for path in files[:: math.ceil(len(files) / WALK_VIDEOS) or 1] if not walks else ():
            dataset, _, person = path.stem.partition("_")
            videos.append((f"{title_of(dataset)} {person}", embed(path.read_bytes(), "video/mp4")))
        about = {"tier": tier, "folder": folder.relative_to(paths.root), "total": len(files), "videos": videos}
        walks.append(about | {"sheet": embed_picture(folder / "contact_sheet.png")})
    return walks
