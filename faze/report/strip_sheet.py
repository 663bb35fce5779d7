"""Contact sheets of eye strips, each with an arrow along its gaze label."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from faze.base.geometry import vector_from_pitchyaw
from faze.data.store.strips import StripStore
from faze.report.style import MUTED, REFERENCE, WIDTH, panels

SHEET_STRIPS, SHEET_COLUMNS = 32, 4
ARROW = "#ffd43b"


class SheetStrip(NamedTuple):
    """A strip of a contact sheet."""

    pixels: NDArray[np.uint8]  # (H, W, 3) RGB
    label: NDArray[np.float32]  # (4,) rad
    person: str
    frame: int  # position in the person's annotation
    off_screen: bool


def pick_strips(strips: StripStore, most: int = SHEET_STRIPS) -> list[SheetStrip]:
    """Pick at most so many strips, of people spread over the store and, of each person, spread over the recording."""
    persons = [person for person in strips.persons() if strips.count(person)]
    chosen = [
        persons[i] for i in np.unique(np.linspace(0, len(persons) - 1, min(most, len(persons))).round().astype(int))
    ]
    cells = []
    for person in chosen:
        labels, frames, validity = strips.labels(person), strips.frame_index(person), strips.validity(person)
        for entry in _midst(len(labels), most // len(chosen)):
            cells.append(
                SheetStrip(
                    strips.pixels(person, entry),
                    labels[entry],
                    person,
                    frame=int(frames[entry]),
                    off_screen=bool(validity[entry] == "off_screen"),
                )
            )
    return cells


def _midst(count: int, parts: int) -> list[int]:
    """Find the middle of each of so many equal parts of 0 .. count - 1; all positions where they are fewer."""
    return [int((part + 0.5) * count / min(parts, count)) for part in range(min(parts, count))]


def draw_sheet(cells: Sequence[SheetStrip], columns: int = SHEET_COLUMNS) -> Figure:
    """Draw normalised eye strips, each with an arrow where its label says that the eyes look, seen from the camera."""
    rows = max(1, -(-len(cells) // columns))
    figure, grid = panels(WIDTH, 0.99 * rows, rows, columns)
    figure.get_layout_engine().set(h_pad=0.03, w_pad=0.03, hspace=0.02, wspace=0.02)
    for axes, cell in itertools.zip_longest(itertools.chain(*grid), cells):
        axes.axis("off")
        if cell is not None:
            _draw_cell(axes, cell)
    return figure


def _draw_cell(axes: Axes, cell: SheetStrip) -> None:
    axes.imshow(cell.pixels, interpolation="lanczos")
    told = f"{cell.person}, frame {cell.frame}" + (", off the screen" if cell.off_screen else "")
    axes.set_title(told, fontsize=8, fontweight="normal", color=REFERENCE if cell.off_screen else MUTED, pad=3)
    if np.isfinite(cell.label[:2]).all():
        _draw_arrow(axes, cell.pixels.shape, cell.label)


def _draw_arrow(axes: Axes, shape: tuple[int, ...], label: NDArray) -> None:
    height, width = shape[:2]
    # Labels hold the reversed gaze (from target to eye), so the eyes look along its negative in the image plane.
    x, y, _ = -vector_from_pitchyaw(label[:2].astype(np.float64)) * 1.6 * height
    start = (width / 2, height / 2)
    outline = [withStroke(linewidth=3.4, foreground="black")]
    arrow = {
        "arrowstyle": "-|>,head_length=0.35,head_width=0.18",
        "color": ARROW,
        "linewidth": 1.6,
        "shrinkA": 0,
        "shrinkB": 0,
        "path_effects": outline,
    }
    axes.annotate("", (start[0] + x, start[1] + y), start, arrowprops=arrow, annotation_clip=False)
    axes.plot(*start, "o", color=ARROW, markersize=3.2, path_effects=outline)
