"""Figures, pictures and videos of a page, as files and as data URIs; a budget keeps the page one small file."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from faze.base.errors import UserError
from faze.base.files import as_written, read_json
from faze.base.result_paths import ResultPaths
from faze.evaluation.wording import title_of
from faze.report.style import drawing

BUDGET_BYTES = 14 * 2**20  # of the page, after base64
ATLAS, ATLAS_BYTES = "atlas.json", 3 * 2**20  # budget of the atlas
WALK_VIDEOS = 8  # embedded per page; the others remain in their folder
DOTS_PER_INCH = 160
PHOTOGRAPHS = ("sheet",)  # figures for which svg is neither smaller nor sharper


class Embedder:
    """Converts files to data URIs until the budget is spent."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._left = budget_bytes

    def file(self, path: Path, kind: str) -> str | None:
        """Embed a file unchanged; return None if it exceeds the budget.

        Args:
            path: path of the file.
            kind: MIME type.
        """
        return self._embed(path.read_bytes(), kind)

    def picture(self, path: Path, width_px: int = 2240) -> str | None:
        """Embed the smaller of PNG and JPEG, at most `width_px` wide (twice the page, for high-resolution screens)."""
        with Image.open(path) as image:
            image = image.convert("RGB")
        if image.width > width_px:
            image = image.resize((width_px, round(image.height * width_px / image.width)), Image.Resampling.LANCZOS)
        jpeg, png = _encode(image, "jpeg", quality=88, optimize=True), _encode(image, "png", compress_level=1)
        if len(jpeg) > len(png) / 2:  # otherwise a photograph, for which an optimal PNG takes seconds and is larger
            png = _encode(image, "png", optimize=True)
        kind, content = ("image/png", png) if len(png) < len(jpeg) else ("image/jpeg", jpeg)
        return self._embed(content, kind)

    def _embed(self, content: bytes, kind: str) -> str | None:
        size = 4 * -(-len(content) // 3)
        if size > self._left:
            return None
        self._left -= size
        return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _encode(image: Image.Image, form: str, **settings: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **settings)
    return buffer.getvalue()


def save_figures(figures: Mapping[str, Figure], folder: Path, embedder: Embedder) -> dict[str, str | None]:
    """Save every figure as PNG and, except for photographs, as SVG; return the data URI of each."""
    folder.mkdir()
    with drawing():
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.png", dpi=DOTS_PER_INCH)
            if name not in PHOTOGRAPHS:
                figure.set_layout_engine("none")  # it would arrange all axes again, at the same places
                figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, dpi=DOTS_PER_INCH)
    return {name: embed_figure(folder, name, embedder) for name in figures}


def embed_figure(folder: Path, name: str, embedder: Embedder) -> str | None:
    """Return a saved figure as a data URI, or None if it exceeds the budget."""
    svg = folder / f"{name}.svg"
    return embedder.file(svg, "image/svg+xml") if svg.is_file() else embedder.picture(folder / f"{name}.png")


def collect_walks(paths: ResultPaths, tiers: Sequence[str], seed: int, embedder: Embedder) -> list[dict[str, Any]]:
    """Collect the contact sheet of every tier, and videos of the last tier, whose files are embedded first."""
    walks = []
    for position, tier in enumerate(reversed(tiers)):
        folder = paths.walks(tier, seed)
        sheet = folder / "contact_sheet.png"
        files = sorted(folder.glob("*.mp4"))
        shown = files[:: max(1, -(-len(files) // WALK_VIDEOS))] if position == 0 else []
        videos = [(walk_title(path), embedder.file(path, "video/mp4")) for path in shown]
        walks.append(
            {
                "tier": tier,
                "folder": str(folder.relative_to(paths.root)),
                "sheet": embedder.picture(sheet) if sheet.is_file() else None,
                "videos": [(title, uri) for title, uri in videos if uri],
                "total": len(files),
            }
        )
    return walks


def walk_title(path: Path) -> str:
    """Return the title of a video, such as MPIIGaze p00 for mpiigaze_p00.mp4."""
    dataset, _, person = path.stem.partition("_")
    return f"{title_of(dataset)} {person}".strip()


def collect_atlas(paths: ResultPaths, tiers: Sequence[str], seed: int) -> dict[str, Any]:
    """Collect the atlases of the first and the last tier: steps, range_deg, and each person's embedded sheets.

    Returns:
        {} if a walk has no atlas. People whose sheets exceed the budget are omitted.

    Raises:
        UserError: an index is damaged, or the tiers have different people.
    """
    folders = {tier: paths.walks(tier, seed) for tier in dict.fromkeys([tiers[0], tiers[-1]])}
    if not all((folder / ATLAS).is_file() for folder in folders.values()):
        return {}
    embedder, people = Embedder(ATLAS_BYTES), {}
    for tier, folder in folders.items():
        index = read_json(folder / ATLAS, ("steps", "range_deg", "sheets"), "run walk again")
        with as_written(folder / ATLAS, "run walk again"):
            for row in index["sheets"]:
                uri = _embed_sheet(folder, row["sheet"], embedder)
                sheet = {"tier": tier, "uri": uri, "seen_deg": row["seen_deg"]}
                people.setdefault((row["dataset"], row["person"]), {}).setdefault(row["code"], []).append(sheet)
    complete = [
        {"dataset": dataset, "person": person, "codes": codes}
        for (dataset, person), codes in people.items()
        if all(len(sheets) == len(folders) and all(sheet["uri"] for sheet in sheets) for sheets in codes.values())
    ]
    return {"steps": index["steps"], "range_deg": index["range_deg"], "people": complete} if complete else {}


def _embed_sheet(folder: Path, name: str, embedder: Embedder) -> str | None:
    """Embed a sheet from the folder; any folders in its name are ignored."""
    try:
        return embedder.file(folder / PurePath(name).name, "image/webp")
    except OSError as error:
        raise UserError(
            f"{folder / ATLAS}: its sheet {name!a:.100} cannot be read ({error.strerror}): run walk again"
        ) from None
