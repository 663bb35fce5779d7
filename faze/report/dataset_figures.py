"""Figures of a data set: how gaze and head pose are spread, and how much each person has."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from faze.base.tier_colors import BASELINE
from faze.data.inspection import UNSTATED, Inspection
from faze.data.rejects import by_person
from faze.report.style import DENSITY_MAP, MUTED, RULE, WIDTH, panels, split_color

KINDS = {"gaze": (1, 0), "head pose": (3, 2)}  # columns of yaw and pitch
SIDES_DEG = ((2_000, 4), (50_000, 2))  # of the cells: with so many strips at most, this; beyond, 1
NAMED_PEOPLE = 40  # more names are not readable below bars
FEWEST_BARS = 12
EDGE_DEG = 5


def draw_density(inspection: Inspection) -> Figure:
    """Draw the density of gaze and head pose over yaw and pitch in each split; panels share axes, cells and colours."""
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
    norm = PowerNorm(0.5, 0, max(float(share.max()) for share in shares) or 1.0)  # the rare stays visible
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
        _label_density(
            axes,
            f"{kind}, {split}: {len(labels[split]):,} strips"
            if split != UNSTATED
            else f"{kind}: {len(labels[split]):,} strips",
        )
    for axes in grid[-1]:
        axes.set_xlabel("yaw, degrees")
    for line in grid:
        line[0].set_ylabel("pitch, degrees")
    bar = figure.colorbar(image, ax=drawn, shrink=0.85, aspect=32, pad=0.015)
    bar.set_label(f"% of a split's strips in a cell of {side}° × {side}°", fontsize=9, color=MUTED, labelpad=8)
    bar.outline.set_visible(False)
    return figure


def _limits(labels_deg: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find the least and largest (yaw, pitch) of gaze and head together, rounded; a few labels may lie outside."""
    if not len(labels_deg):
        return np.array([-20.0, -20.0]), np.array([20.0, 20.0])
    both = np.concatenate([labels_deg[:, columns] for columns in KINDS.values()])
    low, high = np.quantile(both, [1e-4, 1 - 1e-4], axis=0).astype(np.float64)
    low, high = np.floor(low / EDGE_DEG) * EDGE_DEG, np.ceil(high / EDGE_DEG) * EDGE_DEG
    return np.minimum(low, -EDGE_DEG), np.maximum(high, EDGE_DEG)


def _shares(angles_deg: NDArray[np.float32], low: NDArray, high: NDArray, side: int) -> NDArray[np.float64]:
    """Count the (yaw, pitch) rows in each cell, in percent, (yaw cells, pitch cells)."""
    edges = [np.arange(a, b + side / 2, side) for a, b in zip(low, high, strict=True)]
    counts, *_ = np.histogram2d(*angles_deg.T.astype(np.float64), bins=edges)
    return 100 * counts / max(len(angles_deg), 1)


def _label_density(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10)
    for line in (axes.axhline, axes.axvline):
        line(0, color=MUTED, linewidth=0.6, linestyle=(0, (4, 3)), zorder=3)
    axes.grid(color=RULE, linewidth=0.5)


def draw_people(inspection: Inspection) -> Figure:
    """Draw the strips of every person, most first within its split, and the person's rejected frames above them."""
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
    axes.set(ylabel="strips", xlabel="" if few else "people, those with most strips first in each split")
    axes.set_xlim(0, max(len(names), FEWEST_BARS))  # three people are not drawn as three walls
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
    """Draw bars, as one path where they are many; thin gaps part them where they are few."""
    if len(counts) > NAMED_PEOPLE:
        axes.stairs(above + counts, edges, baseline=above, fill=True, color=color)
    else:
        axes.bar(edges[:-1] + 0.5, counts, 0.8, bottom=above, color=color)
