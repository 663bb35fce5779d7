"""Figures of the report: tiers, training, few-shot adaptation, redirection and walks."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from faze.evaluation import UNADAPTED
from faze.evaluation.tables import SIMPLE
from faze.evaluation.wording import title_of
from faze.report.results import Results
from faze.report.style import BAND, INK, MARKERS, MUTED, ON_LINES, REFERENCE, WIDTH, learner_colors, panels

# The talk's headline figures: the baseline's value divided by the last tier's, and a label. It has no values per tier.
TALK = {"speed": (2.07, "2.07× faster"), "memory": (1.6, "1.6× less"), "error": (1.0, "no change")}
MPIIGAZE = ("MPIIGaze", "MPIIFaceGaze")  # sources of the pixels of its strips
PAPER_SHOTS, PAPER_MPIIGAZE_K9_DEG = 9, 3.14  # the paper's error on MPIIGaze after 9 samples
PANELS_PER_ROW = 4
MOST_TICKS = {"large": 19, "small": 7}
CLIP = 1.6  # upper end of the error axis, in multiples of the largest unadapted error
DASHED = {"color": MUTED, "linewidth": 1, "linestyle": (0, (4, 3))}


def _with_legend(figure: Figure, axes: Axes) -> Figure:
    """Add the axes' legend below the figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(8, len(handles)))
    return figure


def draw_talk_charts(results: Results) -> Figure:
    """Plot time, memory and error per tier as in the talk's charts; the last bars use the talk's ratios."""
    several = len(results.measured) > 1
    rows = len(results.measured) + several
    figure, [[time, memory, error]] = panels(WIDTH, 1.9 + 0.36 * rows, 1, 3, sharey=True)
    performance = results.tables["performance"].set_index("tier")
    step, low, high = (performance[f"step_ms{end}"] for end in ("", "_q1", "_q3"))
    _bars(time, results, step, np.maximum(step, high), "speed", [f"{ms:.0f}" for ms in step])
    whiskers = [(step - low).clip(lower=0), (high - step).clip(lower=0)]
    time.errorbar(step, range(len(step)), xerr=whiskers, fmt="none", ecolor=INK, capsize=2)
    time.set(title="Step time", xlabel="ms (median and quartiles)")
    peak = performance["peak_gib"]
    minimum, maximum = (performance[f"peak_gib_{end}"].fillna(peak) for end in ("low", "high"))
    _bars(memory, results, peak, maximum, "memory", [f"{gib:.2f}" for gib in peak])
    memory.errorbar(peak, range(len(peak)), xerr=[peak - minimum, maximum - peak], fmt="none", ecolor=INK, capsize=2)
    memory.set(title="Peak memory", xlabel="GiB (median, minimum and maximum)")
    tested = results.datasets[0]
    before, after = (
        results.cell("tiers", tested, learner, k)["mean_deg"].reindex(results.measured)
        for learner, k in ((UNADAPTED, 0), (results.learners[0], results.largest_k))
    )
    pale = [results.colors[tier] for tier in before.index]
    error.barh(range(len(before)), before, height=0.8, color=pale, alpha=0.3)
    labels = [
        f"{start:.2f} → {end:.2f}" if tier in results.tiers else "not trained"
        for tier, start, end in zip(results.measured, before, after, strict=True)
    ]
    _bars(error, results, after, np.maximum(before, after), "error", labels)
    adapted = f"{results.learners[0]}, k = {results.largest_k}"
    error.set(title=f"Error on {title_of(tested)}", xlabel=f"degrees (pale: unadapted; solid: {adapted})")
    time.set_yticks(range(rows), [*results.measured, "talk"][:rows])
    if several:
        time.get_yticklabels()[-1].set_color(REFERENCE)
    time.set_ylim(rows - 0.5, -0.6)
    return figure


def _bars(axes: Axes, results: Results, values: pd.Series, ends: pd.Series, what: str, labels: Sequence[str]) -> None:
    """Draw a labelled bar for each tier, and a hatched bar for our baseline divided by the talk's ratio."""
    colors = results.colors
    near = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
    axes.barh(range(len(values)), values, height=0.62, color=[colors[tier] for tier in values.index])
    for row, (end, label) in enumerate(zip(ends.fillna(0.0), labels, strict=True)):
        axes.annotate(label, (end, row), **near)
    if len(values) > 1:
        quotient, label = TALK[what]
        bar = (len(values), values.iloc[0] / quotient)
        axes.barh(*bar, height=0.62, facecolor="none", edgecolor=REFERENCE, hatch="////", linewidth=1.2)
        axes.annotate(label, bar[::-1], color=REFERENCE, bbox=ON_LINES, **near)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, (1.1 + 0.035 * max(map(len, labels))) * ends.max())
    axes.grid(axis="x")


def draw_changes(results: Results) -> Figure:
    """Plot the change in each tier's error, its interval and the margin, followed by the noise controls."""
    changed = results.tiers[1:]
    lines = len(changed) + len(results.controls)
    figure, [row] = panels(WIDTH, 1.5 + 0.5 * lines, 1, len(results.datasets), sharex=True, sharey=True)
    colors = results.colors
    cells = [(UNADAPTED, 0, "white", -0.14), (results.learners[0], results.largest_k, None, 0.14)]
    for axes, dataset in zip(row, results.datasets, strict=True):
        axes.axvspan(-results.margin_deg, results.margin_deg, color=BAND, zorder=0)
        axes.axvline(0, color=MUTED, linewidth=1)
        for learner, k, face, offset in cells:
            changes = results.cell("changes", dataset, learner, k, controls=True)
            for position, (tier, change) in enumerate(changes.iterrows()):
                y = position + offset
                axes.plot([change["low_deg"], change["high_deg"]], [y, y], color=colors[tier], linewidth=2)
                marker = {"markerfacecolor": face or colors[tier], "markeredgecolor": colors[tier], "markersize": 7}
                axes.plot(change["difference_deg"], y, "o", **marker)
        axes.set(title=title_of(dataset), xlabel="change in error from the baseline, degrees")
        if results.controls:
            axes.axhline(len(changed) - 0.5, **DASHED)
        axes.set_yticks(range(lines), [*changed, *(f"noise: {control}" for control in results.controls)])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
    reach = max(2.2 * results.margin_deg, *(1.15 * abs(x) for x in row[0].get_xlim()))
    row[0].set(xlim=(-reach, reach), ylim=(lines - 0.5, -0.6))
    for face, label in (("white", "unadapted"), (MUTED, f"{results.learners[0]}, k = {results.largest_k}")):
        row[-1].plot([], [], "o", markerfacecolor=face, markeredgecolor=MUTED, label=label)
    row[-1].fill_between([], [], [], color=BAND, label=f"margin ±{results.margin_deg:g}°")
    return _with_legend(figure, row[-1])


def draw_people(results: Results) -> Figure:
    """Plot each test person's error in the first tier before and after adaptation, sorted by the error before."""
    tier, learner = results.tiers[0], results.learners[0]
    persons = results.tables["persons"]
    persons = persons[persons["tier"] == tier].groupby(["dataset", "person", "learner", "k"])["error_deg"].mean()
    counts = [persons[d].index.get_level_values("person").nunique() for d in results.datasets]
    figure, [row] = panels(
        WIDTH, 3.4, 1, len(results.datasets), sharey=True, width_ratios=[min(max(c, 12), 30) for c in counts]
    )
    for axes, dataset in zip(row, results.datasets, strict=True):
        before = persons[dataset].xs((UNADAPTED, 0), level=("learner", "k")).sort_values(ascending=False)
        after = persons[dataset].xs((learner, results.largest_k), level=("learner", "k")).reindex(before.index)
        x = np.arange(len(before))
        axes.vlines(x, after, before, color=BAND, linewidth=5, zorder=0)
        axes.plot(x, before, "o", color=MUTED, markerfacecolor="white", label="unadapted")
        color = learner_colors(results.learners)[learner]
        axes.plot(x, after, "o", color=color, label=f"{learner}, k = {results.largest_k}")
        many = len(before) > 40
        axes.set_xticks([] if many else x, [] if many else before.index, rotation=90, fontsize=8)
        axes.set(title=title_of(dataset), xlabel=f"{len(before)} test people")
        axes.grid(axis="y")
    row[0].set_ylabel("angular error, degrees")
    row[0].set_ylim(bottom=0)
    return _with_legend(figure, row[0])


def draw_training(results: Results) -> Figure:
    """Plot every tier's validation error against pairs and seconds: thin lines for seeds, bold lines for means."""
    figure, [row] = panels(WIDTH, 4.0, 1, 2, sharey=True)
    curves = results.tables["training"]
    target = results.tables["convergence"]["target_deg"].mean()
    for axes, column in zip(row, ("pairs", "rate_seconds"), strict=True):
        for marker, tier in zip(itertools.cycle(MARKERS), results.tiers, strict=False):
            color = results.colors[tier]
            of_tier = curves[curves["tier"] == tier]
            for _, seed in of_tier.groupby("seed") if of_tier["seed"].nunique() > 1 else ():
                axes.plot(seed[column], seed["error_deg"], color=color, linewidth=0.7, alpha=0.45)
            mean = of_tier.groupby("pairs", as_index=False)[["rate_seconds", "error_deg"]].mean()
            line = {"color": color, "markersize": 4, "linewidth": 1.6, "label": tier}
            axes.plot(mean[column], mean["error_deg"], marker + "-", **line)
        axes.axhline(target, **DASHED)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlim(left=0)
        axes.grid(axis="y")
    # On the left, where all curves are above the target.
    where = {"textcoords": "offset points", "fontsize": 9, "color": MUTED, "ha": "left", "bbox": ON_LINES}
    target_label = f"final error of {results.tiers[0]} + {results.margin_deg:g}°"
    row[0].annotate(target_label, (0, target), (4, -9), xycoords=("axes fraction", "data"), va="center", **where)
    row[0].set(xlabel="training pairs", ylabel="validation error, degrees")
    row[1].set(xlabel="seconds at the benchmark's rate")
    errors = curves["error_deg"]  # the first validations may be outside
    row[0].set_ylim(0, min(1.08 * errors.max(), 3 * errors.median()))
    return _with_legend(figure, row[0])


def draw_shots(results: Results) -> Figure:
    """Plot the baseline's error against k for every learner and data set, with intervals as bands."""
    figure, [row] = panels(WIDTH, 4.6, 1, len(results.datasets), sharey=True)
    for axes, dataset in zip(row, results.datasets, strict=True):
        shots = _draw_learners(axes, results, results.tiers[0], dataset)
        if results.pixel_sources.get(dataset) in MPIIGAZE and shots.max() >= PAPER_SHOTS:
            star = {"color": REFERENCE, "markersize": 12, "label": f"paper, k = 9: {PAPER_MPIIGAZE_K9_DEG}°"}
            axes.plot(PAPER_SHOTS, PAPER_MPIIGAZE_K9_DEG, "*", **star)
        _label_shots(axes, shots, title_of(dataset), "large")
    row[0].set_ylabel("angular error, degrees")
    _limit_errors(row[0], results)
    return _with_legend(figure, row[0])


def draw_shots_by_tier(results: Results) -> Figure:
    """Plot error against k in one small panel per data set and tier; the baseline is dashed."""
    colors = learner_colors(results.learners)
    depth = math.ceil(len(results.tiers) / PANELS_PER_ROW)
    columns = math.ceil(len(results.tiers) / depth)
    rows = depth * len(results.datasets)
    figure, grid = panels(WIDTH, 2.15 * rows + 0.6, rows, columns, sharex=True, sharey=True)
    for number, dataset in enumerate(results.datasets):
        for position in range(depth * columns):
            axes = grid[number * depth + position // columns][position % columns]
            if position >= len(results.tiers):
                axes.axis("off")
                continue
            tier = results.tiers[position]
            for learner, color in colors.items() if position else ():
                curve = results.curve(results.tiers[0], dataset, learner)
                axes.plot(curve["k"], curve["mean_deg"], **DASHED | {"color": color})
            shots = _draw_learners(axes, results, tier, dataset, size=0.6)
            _label_shots(axes, shots, f"{title_of(dataset)}, {tier}", "small")
            axes.title.set_fontsize(9.5)
            axes.tick_params(labelbottom=position + columns >= len(results.tiers))
            if position + columns < len(results.tiers):
                axes.set_xlabel("")
    for line in grid:
        line[0].set_ylabel("error, degrees")
    _limit_errors(grid[0][0], results)
    handles, _ = grid[0][0].get_legend_handles_labels()
    handles.append(Line2D([], [], **DASHED, label=f"mean of {results.tiers[0]}"))
    figure.legend(handles=handles, loc="outside lower center", ncols=8)
    return figure


def _draw_learners(axes: Axes, results: Results, tier: str, dataset: str, size: float = 1.0) -> pd.Series:
    """Plot the curve and interval of every learner; return the values of k."""
    colors = learner_colors(results.learners)
    tint = 0.1 if len(results.learners) <= 3 else 0.06  # many overlapping bands need a weaker tint
    for marker, learner in zip(MARKERS, results.learners, strict=False):
        curve, color = results.curve(tier, dataset, learner), colors[learner]
        axes.fill_between(curve["k"], curve["low_deg"], curve["high_deg"], color=color, alpha=tint, linewidth=0)
        for edge in ("low_deg", "high_deg"):
            axes.plot(curve["k"], curve[edge], color=color, linewidth=0.7 * size, alpha=0.45)
        line = {"color": color, "linewidth": 1.9 * size, "markersize": _marker_size(len(curve)) * size}
        axes.plot(curve["k"], curve["mean_deg"], marker + "-", label=learner, **line)
    return curve["k"]


def _limit_errors(axes: Axes, results: Results) -> None:
    """Limit the error axis to the range from 0 to the end of the bands, or to CLIP if some errors are far larger."""
    errors = results.tables["tiers"]
    unadapted = errors[errors["k"] == 0]["high_deg"].max()
    if pd.isna(unadapted):  # a single person has no interval
        errors, unadapted = errors.assign(high_deg=errors["mean_deg"]), errors[errors["k"] == 0]["mean_deg"].max()
    axes.set_ylim(0, min(1.06 * errors["high_deg"].max(), CLIP * unadapted))


def draw_learners(results: Results) -> Figure:
    """Plot each learner's paired difference from `offset`, with intervals, in one panel per data set."""
    table = results.tables["learners"]
    table = table[table["tier"] == results.tiers[0]]
    others = [learner for learner in results.learners if learner != SIMPLE]
    colors, markers = learner_colors(results.learners), dict(zip(results.learners, MARKERS, strict=False))
    figure, [row] = panels(WIDTH, 4.0, 1, len(results.datasets), sharex="col", sharey="row")
    for axes, dataset in zip(row, results.datasets, strict=True):
        axes.axhspan(-results.learner_margin_deg, results.learner_margin_deg, color=BAND, zorder=0)
        axes.axhline(0, color=MUTED, linewidth=1)
        of_dataset = table[table["dataset"] == dataset]
        between = np.diff(np.unique(of_dataset["k"])).min(initial=1) / (len(others) + 2)
        for position, learner in enumerate(others):
            curve = of_dataset[of_dataset["learner"] == learner].sort_values("k")
            x = curve["k"] + between * (position - (len(others) - 1) / 2)
            reach = [curve["difference_deg"] - curve["low_deg"], curve["high_deg"] - curve["difference_deg"]]
            style = {"color": colors[learner], "markersize": _marker_size(len(curve)), "elinewidth": 1.6, "capsize": 0}
            axes.errorbar(x, curve["difference_deg"], reach, fmt=markers[learner], **style)
            axes.plot(x, curve["difference_deg"], color=colors[learner], linewidth=0.9, alpha=0.5)
        _label_shots(axes, of_dataset["k"].drop_duplicates().sort_values(), title_of(dataset), "large")
        axes.set_xlim(of_dataset["k"].min() - 0.7, of_dataset["k"].max() + 0.7)
    row[0].set_ylabel(f"error − error of {SIMPLE}, degrees")
    near = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 9, "color": MUTED, "bbox": ON_LINES}
    row[0].annotate(f"↑ worse than {SIMPLE}", (0, 1), (6, -4), va="top", **near)
    row[0].annotate(f"↓ better than {SIMPLE}", (0, 0), (6, 4), va="bottom", **near)
    _limit_differences(row[0], table, results.learner_margin_deg)
    handles = [Line2D([], [], color=colors[name], marker=markers[name], label=name) for name in others]
    handles.append(Patch(color=BAND, label=f"margin ±{results.learner_margin_deg:g}°"))
    figure.legend(handles=handles, loc="outside lower center", ncols=8)
    return figure


def _limit_differences(axes: Axes, table: pd.DataFrame, margin_deg: float) -> None:
    """Set the axis limits so that margin and annotations fit; far larger differences are cut off."""
    ends = table[["low_deg", "high_deg", "difference_deg"]]
    low, high = min(ends.min().min(), -margin_deg), max(ends.max().max(), margin_deg)
    typical = 6 * max(np.nanmedian(ends.abs()), margin_deg, 1e-3)
    low, high = max(low, -typical), min(high, typical)
    axes.set_ylim(low - 0.18 * (high - low), high + 0.18 * (high - low))


def _label_shots(axes: Axes, shots: pd.Series, title: str, size: str) -> None:
    ticks = thinned(sorted(shots), MOST_TICKS[size])
    axes.set(title=title, xlabel="calibration samples k", xticks=ticks)
    axes.set_xlim(-0.03 * shots.max(), 1.03 * shots.max())
    axes.grid(axis="y")


def thinned(numbers: Sequence[int], most: int) -> list[int]:
    """Select at most `most` evenly spaced numbers, including the first and the last."""
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[i] for i in np.linspace(0, len(numbers) - 1, most).round().astype(int)]


def _marker_size(points: int) -> float:
    return 6.0 if points <= 8 else 4.0


def draw_walks(results: Results, angles: Mapping[str, pd.DataFrame]) -> Figure:
    """Plot estimated against requested angles of the walks: thin lines for people, bold lines for means.

    Args:
        results: results of the evaluation.
        angles: tier -> `angles.csv` of its walks.
    """
    walks = list(next(iter(angles.values()))["walk"].unique())
    figure, [row] = panels(WIDTH, 3.4, 1, len(walks), sharey=True)
    colors = results.colors
    for axes, walk in zip(row, walks, strict=True):
        for tier, table in angles.items():
            some = table[table["walk"] == walk]
            for _, person in some.groupby(["dataset", "person"]):
                axes.plot(person["asked_deg"], person["seen_deg"], color=colors[tier], linewidth=0.7, alpha=0.45)
            mean = some.groupby("asked_deg")["seen_deg"].mean()
            axes.plot(mean.index, mean, color=colors[tier], linewidth=2, label=tier)
        most = float(some["asked_deg"].max())
        axes.plot([-most, most], [-most, most], **DASHED, label="as requested")
        axes.set(title=walk, xlabel="requested, degrees")
        axes.grid(axis="y")
    row[0].set_ylabel("estimated, degrees")
    return _with_legend(figure, row[0])
