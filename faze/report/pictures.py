"""Figures of the trainings and of the data: validation curves, and strips with their gaze drawn on them."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from faze.evaluation.verdict import NAMES
from faze.geometry import vector_from_pitchyaw
from faze.report.figures import WIDTH, Results
from faze.report.style import panels, tier_colors
from faze.store import Strips


def draw_training(results: Results) -> Figure:
    """Validation error of every training against the pairs it has seen."""
    figure, [[axes]] = panels(WIDTH, 3.6, 1, 1)
    colors = tier_colors(results.tiers)
    for tier in results.tiers:
        curves = results.tables["training"]
        for number, (_, curve) in enumerate(curves[curves["tier"] == tier].groupby("seed")):
            label = tier if number == 0 else None
            axes.plot(
                curve["pairs"], curve["error_deg"], "o-", color=colors[tier], label=label, markersize=3.5, linewidth=1.3
            )
    axes.set(xlabel="training pairs seen", ylabel="validation error, degrees")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    axes.legend(loc="best", ncols=min(3, len(results.tiers)))
    return figure


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
