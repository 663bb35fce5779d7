"""Figures as files, and embedded in a page."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from faze.report.data_uris import Embedder
from faze.report.style import drawing

DOTS_PER_INCH = 160
PHOTOGRAPHS = ("sheet",)  # figures of which an svg would be no smaller or sharper


def save_figures(figures: Mapping[str, Figure], folder: Path, embedder: Embedder) -> dict[str, str | None]:
    """Write every figure as png, and but for photographs as svg; give the data URI of each."""
    folder.mkdir()
    with drawing():
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.png", dpi=DOTS_PER_INCH)
            if name not in PHOTOGRAPHS:
                figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, dpi=DOTS_PER_INCH)
    return {name: embed_figure(folder, name, embedder) for name in figures}


def embed_figure(folder: Path, name: str, embedder: Embedder) -> str | None:
    """Turn a figure that was saved into a data URI."""
    svg = folder / f"{name}.svg"
    return embedder.file(svg, "image/svg+xml") if svg.is_file() else embedder.picture(folder / f"{name}.png")
