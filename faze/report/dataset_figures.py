"""Figures of a data set: distribution of gaze and head pose, strips per person, and a contact sheet."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from faze.base.geometry import vector_from_pitchyaw
from faze.base.tier_colors import BASELINE
from faze.data.inspection import UNSTATED, Inspection
from faze.data.rejects import by_person
from faze.data.store.strips import StripStore
from faze.report.style import DENSITY_MAP, MUTED, REFERENCE, RULE, WIDTH, panels, split_color

KINDS = {"gaze": (1, 0), "head pose": (3, 2)}  # columns of yaw and pitch
SIDES_DEG = ((2_000, 4), (50_000, 2))  # largest number of strips -> side of a cell; with more strips 1
NAMED_PEOPLE = 40  # more names below bars are not readable
FEWEST_BARS = 12
EDGE_DEG = 5
SHEET_STRIPS, SHEET_COLUMNS = 32, 4
ARROW = "#ffd43b"


def draw_density(inspection: Inspection) -> Figure:
    """Plot the density of gaze and head pose over yaw and pitch for each split; axes, cells and colours are shared."""
    labels = {split: inspection.labels_deg(split) for split in inspection.splits}
    everyone = np.concatenate(list(labels.values()))
    low, high = _limits(everyone)
    side = next((side for most, side in SIDES_DEG if len(everyone) <= most), 1)
    high = low + np.ceil((high - low) / side) * side  # whole cells
    rows, columns = (1, 2) if len(labels) == 1 else (2, len(labels))
    width = min((WIDTH - 2.4) / columns, 4.2)
    height = width * float(np.clip((high - low)[1] / (high - low)[0], 0.45, 1.2))
    figure, grid = panels(WIDTH, rows * (height + 0.42) + 0.35, rows, columns, sharex=True, sharey=True)
    cells = [(kind, split) for kind in KINDS for split in labels]
    shares = [_shares(labels[split][:, KINDS[kind]], low, high, side) for kind, split in cells]
    norm = PowerNorm(0.5, 0, max(float(share.max()) for share in shares) or 1.0)  # rare angles remain visible
    drawn = [axes for line in grid for axes in line]
    for axes, (kind, split), share in zip(drawn, cells, shares, strict=True):
        image = axes.imshow(
            np.ma.masked_equal(share.T, 0),
            cmap=DENSITY_MAP,
            norm=norm,
            origin="lower",
            extent=(low[0], high[0], low[1], high[1]),
            interpolation="nearest",
        )
        name = kind if split == UNSTATED else f"{kind}, {split}"
        axes.set_title(f"{name}: {len(labels[split]):,} strips", fontsize=10)
        for line in (axes.axhline, axes.axvline):
            line(0, color=MUTED, linewidth=0.6, linestyle=(0, (4, 3)), zorder=3)
        axes.grid(color=RULE, linewidth=0.5)
    for axes in grid[-1]:
        axes.set_xlabel("yaw, degrees")
    for line in grid:
        line[0].set_ylabel("pitch, degrees")
    bar = figure.colorbar(image, ax=drawn, shrink=0.85, aspect=32, pad=0.015)
    bar.set_label(f"% of a split's strips per {side}° × {side}° cell", fontsize=9, color=MUTED, labelpad=8)
    bar.outline.set_visible(False)
    return figure


def _limits(labels_deg: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rounded quantiles near the minimum and maximum of (yaw, pitch), for gaze and head together."""
    if not len(labels_deg):
        return np.array([-20.0, -20.0]), np.array([20.0, 20.0])
    both = np.concatenate([labels_deg[:, columns] for columns in KINDS.values()])
    low, high = np.quantile(both, [1e-4, 1 - 1e-4], axis=0).astype(np.float64)
    low, high = np.floor(low / EDGE_DEG) * EDGE_DEG, np.ceil(high / EDGE_DEG) * EDGE_DEG
    return np.minimum(low, -EDGE_DEG), np.maximum(high, EDGE_DEG)


def _shares(angles_deg: NDArray[np.float32], low: NDArray, high: NDArray, side: int) -> NDArray[np.float64]:
    """Return the percentage of (yaw, pitch) rows in each cell, as an array (yaw cells, pitch cells)."""
    edges = [np.arange(a, b + side / 2, side) for a, b in zip(low, high, strict=True)]
    counts, *_ = np.histogram2d(*angles_deg.T.astype(np.float64), bins=edges)
    return 100 * counts / max(len(angles_deg), 1)


def draw_people(inspection: Inspection) -> Figure:
    """Plot the number of strips per person, sorted within each split, with the rejected frames stacked on top."""
    figure, [[axes]] = panels(WIDTH, 2.9, 1, 1)
    rejected = by_person(inspection.rejects)
    names, start = [], 0
    for split in inspection.splits:
        people = sorted((p for p in inspection.people if p.split == split), key=lambda p: (-p.strips, p.person_id))
        strips = np.array([person.strips for person in people])
        edges = start + np.arange(len(people) + 1)
        _draw_bars(axes, strips, np.zeros(len(people)), edges, split_color(split))
        _draw_bars(axes, np.array([rejected[p.person_id] for p in people]), strips, edges, BASELINE)
        names += [person.person_id for person in people]
        start += len(people)
    few = len(names) <= NAMED_PEOPLE
    if few:
        axes.set_xticks(np.arange(len(names)) + 0.5, names, rotation=90 if max(map(len, names)) > 3 else 0, fontsize=8)
        axes.tick_params(axis="x", length=0)
    axes.set(ylabel="strips", xlabel="" if few else "people, sorted by their number of strips in each split")
    axes.set_xlim(0, max(len(names), FEWEST_BARS))  # three people would be very wide bars
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y")
    handles = [
        Patch(color=split_color(split), label="strips" if split == UNSTATED else split) for split in inspection.splits
    ]
    if rejected:
        handles.append(Patch(color=BASELINE, label="rejected frames"))
    figure.legend(handles=handles, loc="outside upper right", ncols=4)
    return figure


def _draw_bars(axes: Axes, counts: NDArray, above: NDArray, edges: NDArray, color: str) -> None:
    """Draw bars: separated by gaps if there are few, as one path if there are many."""
    if len(counts) > NAMED_PEOPLE:
        axes.stairs(above + counts, edges, baseline=above, fill=True, color=color)
    else:
        axes.bar(edges[:-1] + 0.5, counts, 0.8, bottom=above, color=color)


class SheetStrip(NamedTuple):
    """A strip in a contact sheet."""

    pixels: NDArray[np.uint8]  # (H, W, 3) RGB
    label: NDArray[np.float32]  # (4,) rad
    person: str
    frame: int  # index in the person's annotation
    off_screen: bool


def pick_strips(strips: StripStore, most: int = SHEET_STRIPS) -> list[SheetStrip]:
    """Select people evenly spaced in the store and, for each person, strips evenly spaced in the recording."""
    persons = [person for person in strips.persons() if strips.count(person)]
    positions = np.unique(np.linspace(0, len(persons) - 1, min(most, len(persons))).round().astype(int))
    chosen = [persons[i] for i in positions]
    cells = []
    for person in chosen:
        labels, frames, validity = strips.labels(person), strips.frame_index(person), strips.validity(person)
        for entry in _centers(len(labels), most // len(chosen)):
            pixels, off_screen = strips.pixels(person, entry), bool(validity[entry] == "off_screen")
            cells.append(SheetStrip(pixels, labels[entry], person, int(frames[entry]), off_screen))
    return cells


def _centers(count: int, parts: int) -> list[int]:
    """Return the centres of `parts` equal parts of 0 .. count - 1, or all indices if `count` is smaller."""
    return [int((part + 0.5) * count / min(parts, count)) for part in range(min(parts, count))]


def draw_sheet(cells: Sequence[SheetStrip], columns: int = SHEET_COLUMNS) -> Figure:
    """Draw normalised eye strips, each with an arrow that shows its gaze label as seen from the camera."""
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
    text = f"{cell.person}, frame {cell.frame}" + (", off the screen" if cell.off_screen else "")
    axes.set_title(text, fontsize=8, fontweight="normal", color=REFERENCE if cell.off_screen else MUTED, pad=3)
    if np.isfinite(cell.label[:2]).all():
        _draw_arrow(axes, cell.pixels.shape, cell.label)


def _draw_arrow(axes: Axes, shape: tuple[int, ...], label: NDArray) -> None:
    height, width = shape[:2]
    # Labels contain the reversed gaze (from target to eye), so the arrow has the opposite direction in the image.
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
