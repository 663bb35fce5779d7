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
LOG_FROM = 20.0  # largest of a key's values by the smallest, where an axis of logarithms tells more
ABREAST = 4


class Scale:
    """Where values of a key lie on an axis from 0 to 1, and its ticks: numbers evenly or by logarithm, else words."""

    def __init__(self, values: pd.Series) -> None:
        known = list(dict.fromkeys(values))
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
        if not numbers or len(known) == 1:
            self.places = {value: (at + 0.5) / len(known) for at, value in enumerate(known)}
            self.ticks = {place: _word(value) for value, place in self.places.items()}
            return
        by_log = min(known) > 0 and max(known) / min(known) >= LOG_FROM
        form = np.log if by_log else np.asarray
        low, high = float(form(min(known))), float(form(max(known)))
        self.places = {value: (float(form(value)) - low) / (high - low) for value in known}
        shown = sorted(known) if len(known) <= 6 else [min(known), max(known)]
        self.ticks = {self.places[value]: f"{value:.4g}" for value in shown}

    def at(self, values: pd.Series) -> NDArray[np.float64]:
        """Place values."""
        return np.array([self.places[value] for value in values])


def _word(value: object) -> str:
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


def draw_against(points: pd.DataFrame, keys: Sequence[str]) -> Figure:
    """Draw the error of each point, with its interval over seeds, against each key's value."""
    points = points.dropna(subset=[ERROR])
    rows = -(-len(keys) // ABREAST)
    across = min(len(keys), ABREAST)
    figure, grid = panels(WIDTH * min(1.0, 0.12 + 0.3 * across), 2.7 * rows, rows, across, sharey=True)
    for number, axes in enumerate(axes for row in grid for axes in row):
        if number < len(keys):
            _against(axes, points, keys[number])
        else:
            axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel("error, degrees")
    return figure


def _against(axes: Axes, points: pd.DataFrame, key: str) -> None:
    scale, errors = Scale(points[key]), points[ERROR].to_numpy()
    at, half = scale.at(points[key]), np.nan_to_num((points["high"] - points["low"]).to_numpy() / 2)
    axes.errorbar(at, errors, half, fmt="o", ms=5, color=INK, ecolor=MUTED, elinewidth=1, alpha=0.8)
    axes.plot(at[0], errors[0], "o", ms=7, color=REFERENCE)
    axes.set(title=key, xlim=(-0.08, 1.08))
    axes.set_xticks(list(scale.ticks), list(scale.ticks.values()))
    axes.grid(axis="y")
