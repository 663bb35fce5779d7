"""Figures that compare tiers: the talk's three charts, changes of the error, people, trainings."""

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from faze.base.tier_colors import BASELINE, tier_colors
from faze.evaluation import UNADAPTED
from faze.evaluation.wording import NAMES
from faze.report.results import Results
from faze.report.style import (
    BAND,
    INK,
    MARKERS,
    MUTED,
    ON_LINES,
    REFERENCE,
    WIDTH,
    learner_colors,
    panels,
)

# The talk's headline figures (its bars per tier were not published): value over ours, in words.
TALK = {"speed": (2.07, "2.07× faster"), "memory": (1.6, "1.6× less"), "error": (1.0, "no change")}


def draw_talk_charts(results: Results) -> Figure:
    """Draw time, memory and accuracy per tier as the talk did, and the talk's headline figures below ours."""
    several = len(results.tiers) > 1
    rows = len(results.tiers) + several
    figure, [[time, memory, error]] = panels(WIDTH, 1.9 + 0.36 * rows, 1, 3, sharey=True)
    performance = results.tables["performance"].set_index("tier").loc[list(results.tiers)]
    step, low, high = (performance[f"step_ms{end}"] for end in ("", "_q1", "_q3"))
    _bars(time, results, step, np.maximum(step, high), "speed", [f"{ms:.0f}" for ms in step])
    whiskers = [(step - low).clip(lower=0), (high - step).clip(lower=0)]
    time.errorbar(step, range(len(step)), xerr=whiskers, fmt="none", ecolor=INK, capsize=2)
    time.set(title="Time of a step", xlabel="ms (middle, quartiles)")
    peak = performance["peak_gib"]
    least, most = (performance[f"peak_gib_{end}"].fillna(peak) for end in ("low", "high"))
    _bars(memory, results, peak, most, "memory", [f"{gib:.2f}" for gib in peak])
    memory.errorbar(peak, range(len(peak)), xerr=[peak - least, most - peak], fmt="none", ecolor=INK, capsize=2)
    memory.set(title="Memory", xlabel="peak, GiB (median, least and most)")
    before = results.cell("tiers", "mpiigaze", UNADAPTED, 0)["mean_deg"]
    after = results.cell("tiers", "mpiigaze", results.learners[0], results.largest_k)["mean_deg"]
    pale = [tier_colors(results.tiers)[tier] for tier in before.index]
    error.barh(range(len(before)), before, height=0.8, color=pale, alpha=0.3)
    told = [f"{start:.2f} → {end:.2f}" for start, end in zip(before, after, strict=True)]
    _bars(error, results, after, np.maximum(before, after), "error", told)
    error.set(
        title="Error on MPIIGaze",
        xlabel=f"degrees; pale: unadapted, full: {results.learners[0]}, k = {results.largest_k}",
    )
    time.set_yticks(range(rows), [*results.tiers, "the talk"][:rows])
    about = f"Filled: measured on {results.machine}."
    if several:
        time.get_yticklabels()[-1].set_color(REFERENCE)
        about += f" Hatched: the talk's figures, of its own machine (8 GPUs), applied to our {results.tiers[0]}."
    time.set_ylim(rows - 0.5, -0.6)
    figure.supxlabel(about, x=0.01, ha="left", fontsize=9, color=MUTED)
    return figure


def _bars(axes: Axes, results: Results, values: pd.Series, ends: pd.Series, what: str, told: Sequence[str]) -> None:
    """Draw a bar for each tier with words at its end, and below them the talk's figure applied to our baseline.

    The talk's is hatched, since it is no measurement of ours.
    """
    colors = tier_colors(results.tiers)
    near = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
    axes.barh(range(len(values)), values, height=0.62, color=[colors[tier] for tier in values.index])
    for row, (end, words) in enumerate(zip(ends, told, strict=True)):
        axes.annotate(words, (end, row), **near)
    if len(results.tiers) > 1:
        quotient, words = TALK[what]
        bar = (len(results.tiers), values.iloc[0] / quotient)
        axes.barh(*bar, height=0.62, facecolor="none", edgecolor=REFERENCE, hatch="////", linewidth=1.2)
        axes.annotate(words, bar[::-1], color=REFERENCE, bbox=ON_LINES, **near)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, (1.1 + 0.035 * max(map(len, told))) * ends.max())
    axes.grid(axis="x")


def draw_changes(results: Results) -> Figure:
    """Draw the change of the error against the baseline, its interval, and the margin in which it counts as none.

    Below the tiers stand the noise controls, in the baseline's colour: what chance alone does.
    """
    rungs = results.tiers[1:]
    lines = len(rungs) + len(results.controls)
    figure, [row] = panels(WIDTH, 1.5 + 0.5 * lines, 1, len(results.datasets), sharex=True, sharey=True)
    colors = tier_colors(results.tiers) | dict.fromkeys(results.controls, BASELINE)
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
        axes.set(title=NAMES[dataset], xlabel="change of the error against the baseline, degrees")
        if results.controls:
            axes.axhline(len(rungs) - 0.5, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_yticks(range(lines), [*rungs, *(f"noise: {control}" for control in results.controls)])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
    reach = max(2.2 * results.margin_deg, *(1.15 * abs(x) for x in row[0].get_xlim()))
    row[0].set(xlim=(-reach, reach), ylim=(lines - 0.5, -0.6))
    for face, label in (("white", "unadapted"), (MUTED, f"{results.learners[0]}, k = {results.largest_k}")):
        row[-1].plot([], [], "o", markerfacecolor=face, markeredgecolor=MUTED, label=label)
    row[-1].fill_between([], [], [], color=BAND, label=f"margin ±{results.margin_deg:g}°")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def draw_people(results: Results) -> Figure:
    """Draw the error of every test person in the first tier, unadapted and after adaptation, sorted."""
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
        axes.plot(
            x, after, "o", color=learner_colors(results.learners)[learner], label=f"{learner}, k = {results.largest_k}"
        )
        many = len(before) > 40
        axes.set_xticks([] if many else x, [] if many else before.index, rotation=90, fontsize=8)
        axes.set(title=NAMES[dataset], xlabel=f"{len(before)} test people")
        axes.grid(axis="y")
    row[0].set_ylabel("angular error, degrees")
    row[0].set_ylim(bottom=0)
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def draw_training(results: Results) -> Figure:
    """Draw the validation error of every training, each seed thin, their mean bold.

    Against pairs, and against seconds at the benchmark's rate.
    """
    figure, [row] = panels(WIDTH, 4.0, 1, 2, sharey=True)
    curves = results.tables["training"]
    target = results.tables["convergence"]["target_deg"].mean()
    for axes, against in zip(row, ("pairs", "rate_seconds"), strict=True):
        for marker, (tier, color) in zip(itertools.cycle(MARKERS), tier_colors(results.tiers).items(), strict=False):
            of_tier = curves[curves["tier"] == tier]
            for _, seed in of_tier.groupby("seed") if of_tier["seed"].nunique() > 1 else ():
                axes.plot(seed[against], seed["error_deg"], color=color, linewidth=0.7, alpha=0.45)
            mean = of_tier.groupby("pairs", as_index=False)[["rate_seconds", "error_deg"]].mean()
            line = {"color": color, "markersize": 4, "linewidth": 1.6, "label": tier}
            axes.plot(mean[against], mean["error_deg"], marker + "-", **line)
        axes.axhline(target, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlim(left=0)
        axes.grid(axis="y")
    # On the left, where the curves are still high.
    where = {"textcoords": "offset points", "fontsize": 9, "color": MUTED, "ha": "left", "bbox": ON_LINES}
    told = f"final error of {results.tiers[0]} + {results.margin_deg:g}°"
    row[0].annotate(told, (0, target), (4, -9), xycoords=("axes fraction", "data"), va="center", **where)
    row[0].set(xlabel="training pairs seen", ylabel="validation error, degrees")
    row[1].set(xlabel="seconds at the benchmark's rate")
    errors = curves["error_deg"]  # of the first validations, before anything is learnt, some may leave the picture
    row[0].set_ylim(0, min(1.08 * errors.max(), 3 * errors.median()))
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(8, len(handles)))
    return figure
