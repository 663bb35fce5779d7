"""The figures of few-shot adaptation: error against k of every learner and tier, and how learners differ."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from faze.evaluation.learner_pairs import against
from faze.evaluation.learner_verdict import SIMPLE
from faze.evaluation.wording import NAMES
from faze.report.results import Results
from faze.report.style import BAND, MARKERS, MUTED, ON_LINES, REFERENCE, WIDTH, learner_colors, panels

PAPER_SHOTS, PAPER_MPIIGAZE_K9_DEG = 9, 3.14  # the paper's error on MPIIGaze after 9 samples
ABREAST = 4  # small panels in a row
MOST_TICKS = {"large": 19, "small": 7}
CLIP = 1.6  # times the largest unadapted error: a learner that is far off leaves the picture, not squeezes the others


def draw_shots(results: Results) -> Figure:
    """Draw the baseline's error against k for every learner and data set, with bands over people."""
    figure, [row] = panels(WIDTH, 4.6, 1, len(results.datasets), sharey=True)
    for axes, dataset in zip(row, results.datasets, strict=True):
        shots = _draw_learners(axes, results, results.tiers[0], dataset)
        if dataset == "mpiigaze" and dataset not in results.rendered and shots.max() >= PAPER_SHOTS:
            star = {"color": REFERENCE, "markersize": 12, "label": f"the paper, k = 9: {PAPER_MPIIGAZE_K9_DEG}°"}
            axes.plot(PAPER_SHOTS, PAPER_MPIIGAZE_K9_DEG, "*", **star)
        _label_shots(axes, shots, NAMES[dataset], "large")
    row[0].set_ylabel("angular error, degrees")
    _limit_errors(row[0], results)
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=7)
    return figure


def draw_shots_by_tier(results: Results) -> Figure:
    """Draw error against k, with its band, a small panel for each data set and tier; dashed: the baseline."""
    colors = learner_colors(results.learners)
    deep = math.ceil(len(results.tiers) / ABREAST)
    abreast = math.ceil(len(results.tiers) / deep)
    rows = deep * len(results.datasets)
    figure, grid = panels(WIDTH, 2.15 * rows + 0.6, rows, abreast, sharex=True, sharey=True)
    for block, dataset in enumerate(results.datasets):
        for position in range(deep * abreast):
            axes = grid[block * deep + position // abreast][position % abreast]
            if position >= len(results.tiers):
                axes.axis("off")
                continue
            tier = results.tiers[position]
            for learner, color in colors.items() if position else ():
                curve = results.curve(results.tiers[0], dataset, learner)
                axes.plot(curve["k"], curve["mean_deg"], color=color, linewidth=1, linestyle=(0, (4, 3)))
            shots = _draw_learners(axes, results, tier, dataset, size=0.6)
            _label_shots(axes, shots, f"{NAMES[dataset]}, {tier}", "small")
            axes.title.set_fontsize(9.5)
            axes.tick_params(labelbottom=position + abreast >= len(results.tiers))
            if position + abreast < len(results.tiers):
                axes.set_xlabel("")
    for line in grid:
        line[0].set_ylabel("error, degrees")
    _limit_errors(grid[0][0], results)
    handles, _ = grid[0][0].get_legend_handles_labels()
    handles.append(Line2D([], [], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label=f"{results.tiers[0]}'s means"))
    figure.legend(handles=handles, loc="outside lower center", ncols=8)
    return figure


def _draw_learners(axes: Axes, results: Results, tier: str, dataset: str, size: float = 1.0) -> pd.Series:
    """Draw the curve and band of every learner; return the k."""
    colors = learner_colors(results.learners)
    tint = 0.1 if len(results.learners) <= 3 else 0.06  # many bands one over the other turn to mud
    for marker, learner in zip(MARKERS, results.learners, strict=False):
        curve, color = results.curve(tier, dataset, learner), colors[learner]
        axes.fill_between(curve["k"], curve["low_deg"], curve["high_deg"], color=color, alpha=tint, linewidth=0)
        for edge in ("low_deg", "high_deg"):
            axes.plot(curve["k"], curve[edge], color=color, linewidth=0.7 * size, alpha=0.45)
        line = {"color": color, "linewidth": 1.9 * size, "markersize": _marker_size(len(curve)) * size}
        axes.plot(curve["k"], curve["mean_deg"], marker + "-", label=learner, **line)
    return curve["k"]


def _limit_errors(axes: Axes, results: Results) -> None:
    """Begin the axis at zero and end it where the bands end; a learner that is far off is cut off."""
    errors = results.tables["tiers"]
    unadapted = errors[errors["k"] == 0]["high_deg"].max()
    if pd.isna(unadapted):  # one person has no band
        errors, unadapted = errors.assign(high_deg=errors["mean_deg"]), errors[errors["k"] == 0]["mean_deg"].max()
    axes.set_ylim(0, min(1.06 * errors["high_deg"].max(), CLIP * unadapted))


def draw_learners(results: Results) -> Figure:
    """Draw the paired difference of every learner to `offset`, and to the first learner, against k, with intervals."""
    references = [r for r in dict.fromkeys([SIMPLE, results.learners[0]]) if r in results.learners]
    references = references[: len(results.learners) - 1]  # of two learners the one difference says all
    pairs = results.tables["learners"]
    pairs = pairs[pairs["tier"] == results.tiers[0]]
    height = 0.8 + 3.2 * len(references)
    figure, grid = panels(WIDTH, height, len(references), len(results.datasets), sharex="col", sharey="row")
    for row, reference in zip(grid, references, strict=True):
        _draw_differences(row, results, against(pairs, reference), reference)
    for above, below in itertools.pairwise(grid):
        for upper, lower in zip(above, below, strict=True):
            upper.set_xlabel("")
            lower.set_title("", loc="left")
    colors, markers = learner_colors(results.learners), dict(zip(results.learners, MARKERS, strict=False))
    handles = [
        *(Line2D([], [], color=colors[name], marker=markers[name], label=name) for name in results.learners),
        Patch(color=BAND, label=f"margin ±{results.learner_margin_deg:g}°"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=8)
    return figure


def _draw_differences(row: Sequence[Axes], results: Results, pairs: pd.DataFrame, reference: str) -> None:
    """Draw the differences of every other learner to one, a panel for each data set."""
    others = [learner for learner in results.learners if learner != reference]
    colors, markers = learner_colors(results.learners), dict(zip(results.learners, MARKERS, strict=False))
    for axes, dataset in zip(row, results.datasets, strict=True):
        axes.axhspan(-results.learner_margin_deg, results.learner_margin_deg, color=BAND, zorder=0)
        axes.axhline(0, color=MUTED, linewidth=1)
        of_dataset = pairs[pairs["dataset"] == dataset]
        between = np.diff(np.unique(of_dataset["k"])).min(initial=1) / (len(others) + 2)
        for position, learner in enumerate(others):
            curve = of_dataset[of_dataset["learner"] == learner].sort_values("k")
            x = curve["k"] + between * (position - (len(others) - 1) / 2)
            reach = [curve["difference_deg"] - curve["low_deg"], curve["high_deg"] - curve["difference_deg"]]
            style = {"color": colors[learner], "markersize": _marker_size(len(curve)), "elinewidth": 1.6, "capsize": 0}
            axes.errorbar(x, curve["difference_deg"], reach, fmt=markers[learner], **style)
            axes.plot(x, curve["difference_deg"], color=colors[learner], linewidth=0.9, alpha=0.5)
        _label_shots(axes, of_dataset["k"].drop_duplicates().sort_values(), NAMES[dataset], "large")
        axes.set_xlim(of_dataset["k"].min() - 0.7, of_dataset["k"].max() + 0.7)
    row[0].set_ylabel(f"error minus that of {reference}, degrees")
    near = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 9, "color": MUTED, "bbox": ON_LINES}
    row[0].annotate(f"↑ worse than {reference}", (0, 1), (6, -4), va="top", **near)
    row[0].annotate(f"↓ better than {reference}", (0, 0), (6, 4), va="bottom", **near)
    _limit_differences(row[0], pairs, results.learner_margin_deg)


def _limit_differences(axes: Axes, pairs: pd.DataFrame, margin_deg: float) -> None:
    """Leave room for the margin and both words; a learner that is far off leaves the picture."""
    ends = pairs[["low_deg", "high_deg", "difference_deg"]]
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
    """Thin numbers out to at most so many, evenly spread, the first and the last among them."""
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[i] for i in np.linspace(0, len(numbers) - 1, most).round().astype(int)]


def _marker_size(points: int) -> float:
    return 6.0 if points <= 8 else 4.0
