"""Figures of a sweep: every point as a line through its values, and the error against each value."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from faze.evaluation.swept import ERROR
from faze.report.style import INK, MUTED, REFERENCE, RULE, WIDTH, panels

COLORS = "viridis_r"  # the darker, the larger the error
LOG_FROM = 5.0  # largest of a key's values by the smallest, where an axis of logarithms tells more
APART, APART_SMALL = 0.15, 0.25  # of an axis, between two ticks
ABREAST = 4


class Scale:
    """Where values of a key lie on an axis from 0 to 1, and its ticks: numbers evenly or by logarithm, else words."""

    def __init__(self, values: pd.Series, apart: float = APART) -> None:
        known = list(dict.fromkeys(values))
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
        if not numbers or len(known) == 1:
            self.places = {value: (at + 0.5) / len(known) for at, value in enumerate(known)}
            self.ticks = {place: in_words(value) for value, place in self.places.items()}
            return
        by_log = min(known) > 0 and max(known) / min(known) >= LOG_FROM
        form = np.log if by_log else np.asarray
        low, high = float(form(min(known))), float(form(max(known)))
        self.places = {value: (float(form(value)) - low) / (high - low) for value in known}
        self.ticks = {}
        for value in [min(known), max(known), *sorted(known)]:
            place = self.places[value]
            if all(abs(place - other) >= apart for other in self.ticks):
                self.ticks[place] = f"{value:.3g}"

    def at(self, values: pd.Series) -> NDArray[np.float64]:
        """Place values."""
        return np.array([self.places[value] for value in values])


def in_words(value: object) -> str:
    """Write a swept value as YAML has it; a list by its items."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def draw_parallel(points: pd.DataFrame, keys: Sequence[str]) -> Figure:
    """Draw a line per point through an axis per key to its error; the best is bold."""
    points = points.dropna(subset=[ERROR]).iloc[::-1]  # the best last, on top
    scales, errors = {key: Scale(points[key]) for key in keys}, points[ERROR].to_numpy()
    low, high = errors.min(), errors.max()
    norm = Normalize(low, high if high > low else low + 1)
    columns = [scales[key].at(points[key]) for key in keys] + [norm(errors)]
    figure, [[axes]] = panels(WIDTH, 3.8, 1, 1)
    colors = ScalarMappable(norm, COLORS)
    for number, (heights, error) in enumerate(zip(np.array(columns).T, errors, strict=True)):
        best = number == len(errors) - 1
        color = REFERENCE if best else colors.to_rgba(error)
        axes.plot(heights, color=color, lw=2.8 if best else 1.3, alpha=1 if best else 0.75, marker="o", ms=4)
    axes.set(xlim=(-0.1, len(keys) + 0.1), ylim=(-0.06, 1.06), yticks=[])
    axes.set_xticks(range(len(keys) + 1), [*keys, "error, degrees"])
    axes.tick_params(axis="x", length=0)
    axes.spines[:].set_visible(False)
    ticks = [
        *(scales[key].ticks for key in keys),
        {0.0: f"{low:.2f}", 1.0: f"{high:.2f}"} if high > low else {0.0: f"{low:.2f}"},
    ]
    for at, of_axis in enumerate(ticks):
        axes.axvline(at, color=RULE, lw=1, zorder=0)
        for height, words in of_axis.items():
            axes.annotate(words, (at, height), (5, 4), textcoords="offset points", fontsize=8.5, color=MUTED)
    return figure


def draw_against(points: pd.DataFrame, runs: pd.DataFrame, keys: Sequence[str]) -> Figure:
    """Draw the error of each point, and of each of its trainings, against each key's value."""
    rows = -(-len(keys) // ABREAST)
    across = min(len(keys), ABREAST)
    figure, grid = panels(WIDTH * min(1.0, 0.12 + 0.3 * across), 2.7 * rows, rows, across, sharey=True)
    for number, axes in enumerate(axes for row in grid for axes in row):
        if number < len(keys):
            _against(axes, points.dropna(subset=[ERROR]), runs, keys[number])
        else:
            axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel("error, degrees")
    return figure


def _against(axes: Axes, points: pd.DataFrame, runs: pd.DataFrame, key: str) -> None:
    scale, best = Scale(points[key], APART_SMALL), points["point"].iloc[0]
    at = dict(zip(points["point"], scale.at(points[key]), strict=True))
    runs = runs[runs["point"].isin(list(at))]
    axes.plot(runs["point"].map(at), runs[ERROR], "o", ms=4, color=MUTED, alpha=0.45, mew=0)
    axes.plot(list(at.values()), points[ERROR], "_", ms=16, mew=2, color=INK)
    axes.plot(at[best], points[ERROR].iloc[0], "_", ms=16, mew=3, color=REFERENCE)
    axes.set(title=key, xlim=(-0.1, 1.1))
    axes.set_xticks(list(scale.ticks), list(scale.ticks.values()))
    axes.grid(axis="y")
