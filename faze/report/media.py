"""Figures, pictures and videos of a page, as data URIs."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from faze.base.result_paths import ResultPaths
from faze.evaluation.wording import title_of
from faze.report.style import drawing

WALK_VIDEOS = 8  # embedded per page; the others remain in their folder
PICTURE_PX = 2240  # largest width of a picture: twice the page, for high-resolution screens
DOTS_PER_INCH = 160


def embed_file(path: Path, kind: str) -> str:
    """Return a file of the given MIME type as a data URI."""
    return _data_uri(path.read_bytes(), kind)


def embed_picture(path: Path) -> str:
    """Return a picture as a JPEG in a data URI."""
    with Image.open(path) as image:
        image = image.convert("RGB")
    if image.width > PICTURE_PX:
        image = image.resize((PICTURE_PX, round(image.height * PICTURE_PX / image.width)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "jpeg", quality=88, optimize=True)
    return _data_uri(buffer.getvalue(), "image/jpeg")


def _data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def save_figures(figures: Mapping[str, Figure], folder: Path) -> dict[str, str]:
    """Save every figure as PNG and SVG; return the data URI of each."""
    folder.mkdir()
    with drawing():
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.png", dpi=DOTS_PER_INCH)
            figure.set_layout_engine("none")  # it would arrange all axes again, at the same places
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, dpi=DOTS_PER_INCH)
    return {name: embed_file(folder / f"{name}.svg", "image/svg+xml") for name in figures}


def collect_walks(paths: ResultPaths, tiers: Sequence[str], seed: int) -> list[dict[str, Any]]:
    """Collect the contact sheet of every tier, and videos of the last tier, which comes first."""
    walks = []
    for tier in reversed(tiers):
        folder = paths.walks(tier, seed)
        files = sorted(folder.glob("*.mp4"))
        shown = [] if walks else files[:: max(1, -(-len(files) // WALK_VIDEOS))]
        walks.append(
            {
                "tier": tier,
                "folder": str(folder.relative_to(paths.root)),
                "sheet": embed_picture(folder / "contact_sheet.png"),
                "videos": [(walk_title(path), embed_file(path, "video/mp4")) for path in shown],
                "total": len(files),
            }
        )
    return walks


def walk_title(path: Path) -> str:
    """Return the title of a video, such as MPIIGaze p00 for mpiigaze_p00.mp4."""
    dataset, _, person = path.stem.partition("_")
    return f"{title_of(dataset)} {person}".strip()
