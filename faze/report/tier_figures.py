"""Figures that compare tiers: the talk's three charts, changes of the error, people, trainings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from faze.evaluation import UNADAPTED
from faze.evaluation.verdict import NAMES
from faze.report.style import (
    BAND,
    INK,
    MARKERS,
    MUTED,
    ON_LINES,
    REFERENCE,
    learner_colors,
    panels,
    text_on,
    tier_colors,
)

TALK_SPEED, TALK_MEMORY = 2.07, 1.6  # the talk's headline figures; its bars per tier were not published
WIDTH = 11.2  # inches


@dataclass(frozen=True)
class Results:
    """What the figures draw: the tables of the evaluation and their order."""

    tiers: Sequence[str]
    learners: Sequence[str]
    datasets: Sequence[str]
    largest_k: int
    margin_deg: float
    tables: Mapping[str, pd.DataFrame]
    machine: str  # that the benchmark ran on
    real: bool  # real photographs; the paper's figures are comparable with nothing else

    def cell(self, table: str, dataset: str, learner: str, k: int) -> pd.DataFrame:
        """Rows of one data set, learner and k, one per tier, in the ladder's order."""
        rows = self.tables[table]
        rows = rows[(rows["dataset"] == dataset) & (rows["learner"] == learner) & (rows["k"] == k)]
        return rows.set_index("tier").reindex([tier for tier in self.tiers if tier in set(rows["tier"])])

    def curve(self, tier: str, dataset: str, learner: str) -> pd.DataFrame:
        """Error of one tier and learner against k, from k = 0."""
        rows = self.tables["tiers"]
        rows = rows[(rows["tier"] == tier) & (rows["dataset"] == dataset)]
        return rows[rows["learner"].isin([UNADAPTED, learner])].sort_values("k")


def draw_talk_charts(results: Results) -> Figure:
    """Training time, memory and accuracy on MPIIGaze per tier, as in the talk, and its headline figures below ours."""
    rows = len(results.tiers) + (len(results.tiers) > 1)
    figure, [[time, memory, error]] = panels(WIDTH, 1.9 + 0.36 * rows, 1, 3, sharey=True)
    speed = results.tables["performance"].set_index("tier").loc[list(results.tiers)]
    whiskers = (speed["step_ms"] - speed["step_ms_q1"], speed["step_ms_q3"] - speed["step_ms"])
    _bars(time, results, speed["step_ms"], whiskers, "{:.0f}")
    time.set(title="Training time", xlabel="ms per step (median, quartiles)")
    _bars(memory, results, speed["peak_gib"], None, "{:.2f}")
    memory.set(title="Memory", xlabel="peak, GiB")
    before, after = _accuracy_bars(error, results)
    told = f"Filled: measured on {results.machine}."
    if len(results.tiers) > 1:
        row = len(results.tiers)
        _talk_bar(time, speed["step_ms"].iloc[0] / TALK_SPEED, row, f"{TALK_SPEED}× faster")
        _talk_bar(memory, speed["peak_gib"].iloc[0] / TALK_MEMORY, row, f"{TALK_MEMORY}× less")
        _talk_bar(error, after, row, "")
        _talk_bar(error, before, row, "no change")
        time.set_yticks(range(rows), [*results.tiers, "the talk"])
        time.get_yticklabels()[-1].set_color(REFERENCE)
        told += f" Hatched: the talk's figures, of its own machine (8 GPUs), applied to our {results.tiers[0]}."
    time.set_ylim(rows - 0.5, -0.6)
    figure.supxlabel(told, x=0.01, ha="left", fontsize=9, color=MUTED)
    return figure


def _bars(axes: Axes, results: Results, values: pd.Series, whiskers: tuple | None, form: str) -> None:
    colors = tier_colors(results.tiers)
    rows = np.arange(len(values))
    errors = None if whiskers is None else np.array([w.clip(lower=0).to_numpy() for w in whiskers])
    axes.barh(rows, values, height=0.62, color=[colors[t] for t in values.index], xerr=errors, ecolor=INK, capsize=2)
    ends = values.to_numpy() + (0 if errors is None else errors[1])
    for row, value, end in zip(rows, values, ends, strict=True):
        axes.annotate(form.format(value), (end, row), (5, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(rows, [str(tier) for tier in values.index])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.18 * ends.max())
    axes.grid(axis="x")


def _accuracy_bars(axes: Axes, results: Results) -> tuple[float, float]:
    """Unadapted error (pale) behind the error after adaptation; returns the baseline's."""
    colors = tier_colors(results.tiers)
    before = results.cell("tiers", "mpiigaze", UNADAPTED, 0)["mean_deg"]
    after = results.cell("tiers", "mpiigaze", results.learners[0], results.largest_k)["mean_deg"]
    rows = np.arange(len(before))
    axes.barh(rows, before, height=0.62, color=[colors[t] for t in before.index], alpha=0.35)
    axes.barh(rows, after, height=0.62, color=[colors[t] for t in before.index])
    near = {"textcoords": "offset points", "va": "center", "fontsize": 9}
    for row, (tier, start, end) in enumerate(zip(before.index, before, after, strict=True)):
        axes.annotate(f"{start:.2f}", (start, row), (5, 0), **near)
        axes.annotate(f"{end:.2f}", (end, row), (-5, 0), ha="right", color=text_on(colors[tier]), **near)
    axes.set(
        title="Error on MPIIGaze",
        xlabel=f"degrees; pale: unadapted, full: {results.learners[0]}, k = {results.largest_k}",
    )
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.18 * before.max())
    axes.grid(axis="x")
    return before.iloc[0], after.iloc[0]


def _talk_bar(axes: Axes, value: float, row: int, text: str) -> None:
    """A headline figure of the talk, applied to our baseline: hatched, since it is no measurement of ours."""
    axes.barh(row, value, height=0.62, facecolor="none", edgecolor=REFERENCE, hatch="////", linewidth=1.2)
    near = {"textcoords": "offset points", "va": "center", "fontsize": 9}
    axes.annotate(text, (value, row), (5, 0), color=REFERENCE, bbox=ON_LINES, **near)


def draw_changes(results: Results) -> Figure:
    """Change of the error against the baseline, its interval, and the margin within which it counts as none."""
    rungs = results.tiers[1:]
    figure, [row] = panels(WIDTH, 1.5 + 0.5 * len(rungs), 1, len(results.datasets), sharex=True, sharey=True)
    colors = tier_colors(results.tiers)
    cells = [(UNADAPTED, 0, "unadapted", "white", -0.14), (results.learners[0], results.largest_k, "", None, 0.14)]
    for axes, dataset in zip(row, results.datasets, strict=True):
        axes.axvspan(-results.margin_deg, results.margin_deg, color=BAND, zorder=0)
        axes.axvline(0, color=MUTED, linewidth=1)
        for learner, k, _, face, offset in cells:
            for position, (tier, change) in enumerate(results.cell("changes", dataset, learner, k).iterrows()):
                y = position + offset
                axes.plot([change["low_deg"], change["high_deg"]], [y, y], color=colors[tier], linewidth=2)
                marker = {"markerfacecolor": face or colors[tier], "markeredgecolor": colors[tier], "markersize": 7}
                axes.plot(change["difference_deg"], y, "o", **marker)
        axes.set(title=NAMES[dataset], xlabel="change of the error against the baseline, degrees")
        axes.set_yticks(range(len(rungs)), rungs)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
    reach = max(2.2 * results.margin_deg, *(1.15 * abs(x) for x in row[0].get_xlim()))
    row[0].set(xlim=(-reach, reach), ylim=(len(rungs) - 0.5, -0.6))
    for face, label in (("white", "unadapted"), (MUTED, f"{results.learners[0]}, k = {results.largest_k}")):
        row[-1].plot([], [], "o", markerfacecolor=face, markeredgecolor=MUTED, label=label)
    row[-1].fill_between([], [], [], color=BAND, label=f"margin ±{results.margin_deg:g}°")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def draw_people(results: Results) -> Figure:
    """Error of every test person in the first tier, unadapted and after adaptation, sorted."""
    tier, learner = results.tiers[0], results.learners[0]
    persons = results.tables["persons"]
    persons = persons[persons["tier"] == tier].groupby(["dataset", "person", "learner", "k"])["error_deg"].mean()
    counts = [persons[d].index.get_level_values("person").nunique() for d in results.datasets]
    figure, [row] = panels(
        WIDTH, 3.4, 1, len(results.datasets), sharey=True, width_ratios=[min(max(c, 12), 30) for c in counts]
    )
    color = learner_colors(results.learners)[learner]
    for axes, dataset in zip(row, results.datasets, strict=True):
        before = persons[dataset].xs((UNADAPTED, 0), level=("learner", "k")).sort_values(ascending=False)
        after = persons[dataset].xs((learner, results.largest_k), level=("learner", "k")).reindex(before.index)
        x = np.arange(len(before))
        axes.vlines(x, after, before, color=BAND, linewidth=5, zorder=0)
        axes.plot(x, before, "o", color=MUTED, markerfacecolor="white", label="unadapted")
        axes.plot(x, after, "o", color=color, label=f"{learner}, k = {results.largest_k}")
        many = len(before) > 40
        axes.set_xticks([] if many else x, [] if many else before.index, rotation=90, fontsize=8)
        axes.set(title=NAMES[dataset], xlabel=f"{len(before)} test people")
        axes.grid(axis="y")
    row[0].set_ylabel("angular error, degrees")
    row[0].set_ylim(bottom=0)
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


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
