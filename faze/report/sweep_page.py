"""The page of a sweep: a folder with index.html, points.csv, runs.csv and figures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from faze.evaluation.validation import ERROR, NUMBERS
from faze.report.formats import load_template
from faze.report.media import Embedder, save_figures
from faze.report.style import INK, MUTED, REFERENCE, RULE, WIDTH, drawing, panels

PAGE = ("index.html", "points.csv")  # files that identify the folder of such a page
COLORS = "viridis_r"  # darker colours for larger errors
LOG_FROM = 5.0  # ratio of largest to smallest value from which an axis is logarithmic
TICK_DISTANCE, SMALL_TICK_DISTANCE = 0.15, 0.25  # minimum, as a share of the axis
PANELS_PER_ROW = 4


def write_sweep(
    name: str, runs: pd.DataFrame, points: pd.DataFrame, keys: Sequence[str], level: str, folder: Path
) -> None:
    """Write the page of a sweep into an existing folder.

    Args:
        name: name of the sweep.
        runs: from `swept_runs`.
        points: from `swept_points`, sorted by error.
        keys: keys of the varied values.
        level: level of the intervals, for example "95 %".
        folder: output folder.
    """
    named = [key for key in keys if points[key].map(lambda value: isinstance(value, list)).any() or points[key].hasnans]
    points = points.assign(**{key: points[key].map(format_value) for key in named})  # categories in figures
    for table, rows in (("runs", runs), ("points", points)):
        rows.to_csv(folder / f"{table}.csv", index=False, float_format="%.6g")
    rows = [
        {key: row[key] for key in ("point", *NUMBERS, "seeds", "low", "high")}
        | {"shown": {key: format_value(row[key]) for key in keys}}
        for row in points.to_dict("records")
    ]
    best = rows[0] if points[ERROR].notna().any() else None
    pictures = {}
    if best:
        best["description"] = ", ".join(f"{key} {value}" for key, value in best["shown"].items())
        with drawing():
            figures = {"parallel": draw_parallel(points, keys), "against": draw_against(points, runs, keys)}
        pictures = save_figures(figures, folder / "figures", Embedder())
    low_ends = points["low"].fillna(points[ERROR])  # a point with one seed has no interval
    unfinished = runs[runs["state"] != "trained"]
    page = load_template("sweep.html.j2").render(
        name=name,
        rows=rows,
        best=best,
        keys=list(keys),
        figures=pictures,
        interval=bool(points["high"].notna().any()),
        level=level,
        unfinished=[f"{row.point}, seed {row.seed}, {row.state}" for row in unfinished.itertuples()],
        overlapping=int((low_ends[1:] <= points["high"][0]).sum()),
        seeds=sorted(runs["seed"].unique()),
    )
    (folder / "index.html").write_text(page, encoding="utf-8")


def format_value(value: object) -> str:
    """Format a swept value, or each item of a list, as YAML; pandas stores null as None or nan."""
    if value is None or value != value:
        return "null"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


class Scale:
    """An axis that maps values to positions from 0 to 1 and has ticks; categorical unless the values are numbers."""

    def __init__(self, values: pd.Series, tick_distance: float = TICK_DISTANCE) -> None:
        known = list(dict.fromkeys(values))
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
        if not numbers or len(known) == 1:
            self.positions = {value: (index + 0.5) / len(known) for index, value in enumerate(known)}
            self.ticks = {position: format_value(value) for value, position in self.positions.items()}
            return
        logarithmic = min(known) > 0 and max(known) / min(known) >= LOG_FROM
        form = np.log if logarithmic else np.asarray
        low, high = float(form(min(known))), float(form(max(known)))
        self.positions = {value: (float(form(value)) - low) / (high - low) for value in known}
        self.ticks = {}
        for value in [min(known), max(known), *sorted(known)]:
            position = self.positions[value]
            if all(abs(position - other) >= tick_distance for other in self.ticks):
                self.ticks[position] = f"{value:.3g}"

    def at(self, values: pd.Series) -> NDArray[np.float64]:
        """Return the positions of values on this axis."""
        return np.array([self.positions[value] for value in values])


def draw_parallel(points: pd.DataFrame, keys: Sequence[str]) -> Figure:
    """Plot each point as a line that crosses one axis per key and ends at its error; the best line is bold."""
    points = points.dropna(subset=[ERROR]).iloc[::-1]  # the best is drawn last, on top
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
    error_ticks = {0.0: f"{low:.2f}"} | ({1.0: f"{high:.2f}"} if high > low else {})
    for index, ticks in enumerate([*(scales[key].ticks for key in keys), error_ticks]):
        axes.axvline(index, color=RULE, lw=1, zorder=0)
        for height, label in ticks.items():
            axes.annotate(label, (index, height), (5, 4), textcoords="offset points", fontsize=8.5, color=MUTED)
    return figure


def draw_against(points: pd.DataFrame, runs: pd.DataFrame, keys: Sequence[str]) -> Figure:
    """Plot the error of each point, and of each of its training runs, against the value of each key."""
    rows, columns = -(-len(keys) // PANELS_PER_ROW), min(len(keys), PANELS_PER_ROW)
    figure, grid = panels(WIDTH * min(1.0, 0.12 + 0.3 * columns), 2.7 * rows, rows, columns, sharey=True)
    for number, axes in enumerate(axes for row in grid for axes in row):
        if number < len(keys):
            _draw_errors(axes, points.dropna(subset=[ERROR]), runs, keys[number])
        else:
            axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel("error, degrees")
    return figure


def _draw_errors(axes: Axes, points: pd.DataFrame, runs: pd.DataFrame, key: str) -> None:
    scale, best = Scale(points[key], SMALL_TICK_DISTANCE), points["point"].iloc[0]
    at = dict(zip(points["point"], scale.at(points[key]), strict=True))
    runs = runs[runs["point"].isin(list(at))]
    axes.plot(runs["point"].map(at), runs[ERROR], "o", ms=4, color=MUTED, alpha=0.45, mew=0)
    axes.plot(list(at.values()), points[ERROR], "_", ms=16, mew=2, color=INK)
    axes.plot(at[best], points[ERROR].iloc[0], "_", ms=16, mew=3, color=REFERENCE)
    axes.set(title=key, xlim=(-0.1, 1.1))
    axes.set_xticks(list(scale.ticks), list(scale.ticks.values()))
    axes.grid(axis="y")
