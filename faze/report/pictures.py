"""Validation curves of the trainings, and contact sheets of strips with their gaze drawn on them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from faze.base.geometry import vector_from_pitchyaw
from faze.data.store.strips import StripStore
from faze.report.figures import WIDTH, Results
from faze.report.style import MARKERS, MUTED, ON_LINES, REFERENCE, panels, tier_colors

SHEET_STRIPS, SHEET_COLUMNS = 32, 4
ARROW = "#ffd43b"


class Cell(NamedTuple):
    """A strip of a contact sheet."""

    pixels: NDArray[np.uint8]  # (H, W, 3) RGB
    label: NDArray[np.float32]  # (4,) rad
    person: str
    frame: int  # position in the person's annotation
    off_screen: bool


def draw_training(results: Results) -> Figure:
    """Validation error of every training against pairs and against seconds: each seed thin, their mean bold."""
    figure, [row] = panels(WIDTH, 4.0, 1, 2, sharey=True)
    curves = results.tables["training"]
    for axes, against in zip(row, ("pairs", "seconds"), strict=True):
        for number, (tier, color) in enumerate(tier_colors(results.tiers).items()):
            of_tier = curves[curves["tier"] == tier]
            _draw_curves(axes, of_tier, against, color, MARKERS[number % len(MARKERS)])
        target = results.tables["convergence"]["target_deg"].mean()
        axes.axhline(target, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlim(left=0)
        axes.grid(axis="y")
    # On the left, where the curves are still high.
    where = {"textcoords": "offset points", "fontsize": 9, "color": MUTED, "ha": "left", "bbox": ON_LINES}
    told = f"final error of {results.tiers[0]} + {results.margin_deg:g}°"
    row[0].annotate(told, (0, target), (4, -9), xycoords=("axes fraction", "data"), va="center", **where)
    row[0].set(xlabel="training pairs seen", ylabel="validation error, degrees")
    row[1].set(xlabel="seconds of training")
    errors = curves["error_deg"]  # of the first validations, before anything is learnt, some may leave the picture
    row[0].set_ylim(0, min(1.08 * errors.max(), 3 * errors.median()))
    handles = [
        Line2D([], [], color=color, marker=MARKERS[i % len(MARKERS)], markersize=4, label=tier)
        for i, (tier, color) in enumerate(tier_colors(results.tiers).items())
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(8, len(handles)))
    return figure


def _draw_curves(axes: Axes, curves: pd.DataFrame, against: str, color: str, marker: str) -> None:
    """One tier's curves: every seed, thin where there are several, and then their mean."""
    seeds = [curve for _, curve in curves.groupby("seed")]
    for curve in seeds if len(seeds) > 1 else []:
        axes.plot(curve[against], curve["error_deg"], color=color, linewidth=0.7, alpha=0.45)
    mean = curves.groupby("pairs", as_index=False)[["seconds", "error_deg"]].mean()
    axes.plot(mean[against], mean["error_deg"], marker + "-", color=color, markersize=4, linewidth=1.6)


def pick_strips(strips: StripStore, most: int = SHEET_STRIPS) -> list[Cell]:
    """At most so many strips, of people spread over the store, each from the midst of an equal part of the person's."""
    persons = [person for person in strips.persons() if strips.count(person)]
    if not persons:
        return []
    chosen = [
        persons[i] for i in np.unique(np.linspace(0, len(persons) - 1, min(most, len(persons))).round().astype(int))
    ]
    cells = []
    for person in chosen:
        labels, frames, validity = strips.labels(person), strips.frame_index(person), strips.validity(person)
        for entry in _midst(len(labels), most // len(chosen)):
            off_screen = validity[entry] == "off_screen"
            cells.append(
                Cell(strips.pixels(person, entry), labels[entry], person, int(frames[entry]), bool(off_screen))
            )
    return cells


def _midst(count: int, parts: int) -> list[int]:
    """The middle position of each of so many equal parts of 0 .. count - 1; all of them where they are fewer."""
    return [int((part + 0.5) * count / min(parts, count)) for part in range(min(parts, count))]


def draw_sheet(cells: Sequence[Cell], columns: int = SHEET_COLUMNS) -> Figure:
    """Normalised eye strips, each with an arrow where its label says that the eyes look, seen from the camera."""
    rows = max(1, -(-len(cells) // columns))
    figure, grid = panels(WIDTH, 0.99 * rows, rows, columns)
    figure.get_layout_engine().set(h_pad=0.03, w_pad=0.03, hspace=0.02, wspace=0.02)
    for position in range(rows * columns):
        axes = grid[position // columns][position % columns]
        axes.axis("off")
        if position < len(cells):
            _draw_cell(axes, cells[position])
    return figure


def _draw_cell(axes: Axes, cell: Cell) -> None:
    axes.imshow(cell.pixels, interpolation="lanczos")
    told, color = f"{cell.person}, frame {cell.frame}", MUTED
    if cell.off_screen:
        told, color = f"{told}, off the screen", REFERENCE
    axes.set_title(told, fontsize=8, fontweight="normal", color=color, pad=3)
    if np.isfinite(cell.label[:2]).all():
        _draw_arrow(axes, cell.pixels.shape, cell.label)


def _draw_arrow(axes: Axes, shape: tuple[int, ...], label: NDArray) -> None:
    height, width = shape[:2]
    # Labels hold the reversed gaze (from target to eye), so the eyes look along its negative in the image plane.
    x, y, _ = -vector_from_pitchyaw(label[:2].astype(np.float64)) * 1.6 * height
    start = (width / 2, height / 2)
    outline = [withStroke(linewidth=3.4, foreground="black")]
    style = {"arrowstyle": "-|>,head_length=0.35,head_width=0.18", "color": ARROW, "linewidth": 1.6}
    arrow = style | {"shrinkA": 0, "shrinkB": 0, "path_effects": outline}
    axes.annotate("", (start[0] + x, start[1] + y), start, arrowprops=arrow, annotation_clip=False)
    axes.plot(*start, "o", color=ARROW, markersize=3.2, path_effects=outline)
