"""Figures of the trainings and of the data: validation curves, and strips with their gaze drawn on them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from faze.evaluation.verdict import NAMES
from faze.geometry import vector_from_pitchyaw
from faze.report.figures import WIDTH, Results
from faze.report.style import MARKERS, MUTED, ON_LINES, panels, tier_colors
from faze.store import Strips


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


def pick_strips(stores: Mapping[str, Strips], people: int, each: int) -> dict[str, list[tuple[NDArray, NDArray]]]:
    """A few strips (H, W, 3) uint8 with their labels (4,), from people spread over each store."""
    picked: dict[str, list[tuple[NDArray, NDArray]]] = {}
    for dataset, strips in stores.items():
        persons = strips.persons("test") or strips.persons()
        chosen = [persons[i] for i in np.unique(np.linspace(0, len(persons) - 1, people).round().astype(int))]
        picked[dataset] = []
        for person in chosen:
            labels = strips.labels(person)
            for entry in np.linspace(0, len(labels) - 1, each).round().astype(int):
                picked[dataset].append((strips.pixels(person, int(entry)), labels[entry]))
    return picked


def draw_strips(picked: Mapping[str, Sequence[tuple[NDArray, NDArray]]], columns: int = 4) -> Figure:
    """Normalised eye strips, each with an arrow where its label says that the eyes look, seen from the camera."""
    rows = sum(-(-len(strips) // columns) for strips in picked.values())
    figure, grid = panels(WIDTH, 0.78 * rows + 0.25 * len(picked), rows, columns)
    figure.get_layout_engine().set(h_pad=0.03, w_pad=0.03)
    row = 0
    for dataset, strips in picked.items():
        grid[row][0].set_title(NAMES.get(dataset, dataset))
        for i in range(-(-len(strips) // columns) * columns):
            axes = grid[row + i // columns][i % columns]
            axes.axis("off")
            if i < len(strips):
                pixels, label = strips[i]
                axes.imshow(pixels, interpolation="lanczos")
                _draw_arrow(axes, pixels.shape, label)
        row += -(-len(strips) // columns)
    return figure


def _draw_arrow(axes: Axes, shape: tuple[int, ...], label: NDArray) -> None:
    height, width = shape[:2]
    # Labels hold the reversed gaze (from target to eye), so the eyes look along its negative in the image plane.
    x, y, _ = -vector_from_pitchyaw(label[:2].astype(np.float64)) * 1.6 * height
    start = (width / 2, height / 2)
    outline = [withStroke(linewidth=3.4, foreground="black")]
    style = {"arrowstyle": "-|>,head_length=0.35,head_width=0.18", "color": "#ffd43b", "linewidth": 1.6}
    arrow = style | {"shrinkA": 0, "shrinkB": 0, "path_effects": outline}
    axes.annotate("", (start[0] + x, start[1] + y), start, arrowprops=arrow, annotation_clip=False)
    axes.plot(*start, "o", color="#ffd43b", markersize=3.2, path_effects=outline)
