"""Figures of a page."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from textwrap import fill

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from faze.evaluation import UNADAPTED
from faze.evaluation.tables import SIMPLE
from faze.evaluation.wording import title_of
from faze.report.results import Results

WIDTH = 12  # inches
INK, MUTED, RULE, BAND = "#1f2933", "#616e7c", "#d9dfe5", "#e9eef3"
PUBLISHED = "#b42318"  # results of others next to ours
LEARNERS = (
    "#5b21b6",
    "#0f766e",
    "#b45309",
    "#9f1239",
    "#1e3a8a",
    "#3f6212",
    "#0284c7",
    "#db2777",
    "#525252",
    "#ca8a04",
)
MARKERS = "osD^vPX<>h"
DASHED = {"color": MUTED, "linewidth": 1, "linestyle": (0, (4, 3))}
NEAR = {"textcoords": "offset points", "fontsize": 9}  # an annotation next to its point
MPIIGAZE = ("MPIIGaze", "MPIIFaceGaze")  # sources of the pixels of its strips
PAPER_SHOTS, PAPER_MPIIGAZE_K9_DEG = 9, 3.14  # the paper's error on MPIIGaze after 9 samples
CLIP = 1.6  # upper end of an axis of errors, in multiples of the largest unadapted error
STYLE = {"font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, "legend.frameon": False}
STYLE |= {"axes.edgecolor": MUTED, "axes.labelcolor": INK, "axes.spines.right": False, "axes.spines.top": False}
STYLE |= {"axes.titlelocation": "left", "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlepad": 10}
STYLE |= {"axes.axisbelow": True, "grid.color": RULE, "grid.linewidth": 0.8, "hatch.linewidth": 0.6}
STYLE |= {"xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK, "ytick.labelcolor": INK}
STYLE |= {"text.parse_math": False, "svg.hashsalt": "faze"}  # people's names may contain $; files are reproducible
drawing = functools.partial(matplotlib.rc_context, STYLE)  # context manager that applies this style


def panels(height: float, rows: int, columns: int, **settings: object) -> tuple[Figure, list[list[Axes]]]:
    """Create a figure with a height in inches, and its grid of axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08, wspace=0.04, hspace=0.06)
    return figure, figure.subplots(rows, columns, squeeze=False, sharey=True, **settings).tolist()


def panels_by_dataset(
    results: Results, height: float, xlabel: str, ylabel: str = "", **settings: object
) -> tuple[Figure, dict[str, Axes]]:
    """Create a figure with a titled panel for each data set."""
    figure, [row] = panels(height, 1, len(results.datasets), **settings)
    for axes, dataset in zip(row, results.datasets, strict=True):
        axes.set(title=title_of(dataset), xlabel=xlabel)
        axes.grid(axis="y" if ylabel else "x")
    row[0].set_ylabel(ylabel)
    return figure, dict(zip(results.datasets, row, strict=True))


def with_legend(figure: Figure, axes: Axes, *others: Line2D) -> Figure:
    """Add the axes' legend, and other entries, below the figure."""
    handles = [*axes.get_legend_handles_labels()[0], *others]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(8, len(handles)))
    return figure


def draw_tiers(results: Results) -> Figure:
    """Plot time, memory and error or score of every tier, next to the ratios that others published."""
    rows = pd.DataFrame(results.rows)
    reference = results.reference if len(rows) > 1 else {}
    names = [*rows["tier"], *([reference["name"]] if reference else [])]
    figure, [axes] = panels(1.3 + 0.36 * len(names), 1, 2 + bool(results.tables))
    axes[0].set(title="Step time", xlabel="ms (median and quartiles)", ylim=(len(names) - 0.5, -0.6))
    axes[0].set_yticks(range(len(names)), names)
    axes[0].get_yticklabels()[-1].set_color(PUBLISHED if reference else INK)
    axes[1].set(title="Peak memory", xlabel="GiB (median, minimum and maximum)")
    steps, peaks = rows[["step_ms", "step_ms_q1", "step_ms_q3"]], rows[["peak_gib", "peak_gib_low", "peak_gib_high"]]
    _draw_bars(axes[0], results, steps.to_numpy().T, [f"{ms:.3g}" for ms in rows["step_ms"]])
    _draw_bars(axes[1], results, peaks.to_numpy().T, [f"{gib:.2f}" for gib in rows["peak_gib"]])
    _draw_published(axes[0], rows["step_ms"], reference.get("speed"), "faster")
    _draw_published(axes[1], rows["peak_gib"], reference.get("memory"), "less")
    if "tiers" in results.tables:
        _draw_errors(axes[2], results, list(rows["tier"]), reference.get("error"))
    elif results.tables:
        _draw_scores(axes[2], results, list(rows["tier"]))
    for each in axes:
        each.tick_params(axis="y", length=0)
        each.grid(axis="x")
    return figure


def _draw_bars(axes: Axes, results: Results, numbers: np.ndarray, labels: Sequence[str]) -> None:
    """Draw a labelled bar for each tier from its value, low and high; other experiments are hatched."""
    values, low, high = numbers
    ends = np.nan_to_num(np.fmax(values, high))
    for y, row in enumerate(results.rows):
        color = results.colors[row["tier"]]
        style = {"color": color} if row["same"] else {"facecolor": "none", "edgecolor": color, "hatch": "xxxx"}
        axes.barh(y, values[y], height=0.62, **style)
        if low[y] < high[y]:
            axes.plot([low[y], high[y]], [y, y], "|-", color=INK, linewidth=1.4, markersize=5)
        axes.annotate(labels[y], (ends[y], y), (5, 0), va="center", **NEAR)
    axes.set_xlim(0, (1.12 + 0.035 * max(map(len, labels))) * ends.max())


def _draw_published(axes: Axes, values: pd.Series, quotient: float | None, word: str) -> None:
    """Draw our baseline divided by a published ratio, below the tiers."""
    if quotient:
        y, width = len(values), values.iloc[0] / quotient
        axes.barh(y, width, height=0.62, facecolor="none", edgecolor=PUBLISHED, hatch="////", linewidth=1.2)
        text = "no change" if quotient == 1 else f"{quotient:g}× {word}"
        axes.annotate(text, (width, y), (5, 0), va="center", color=PUBLISHED, backgroundcolor="white", **NEAR)


def _draw_errors(axes: Axes, results: Results, tiers: Sequence[str], published: float | None) -> None:
    tested = results.datasets[0]
    before, after = (results.cell("tiers", tested, *cell)["mean_deg"].reindex(tiers) for cell in results.decisive)
    labels = [f"{a:.2f} → {b:.2f}" if a == a else "not trained" for a, b in zip(before, after, strict=True)]
    axes.barh(range(len(tiers)), before, height=0.8, color=[results.colors[tier] for tier in tiers], alpha=0.3)
    _draw_bars(axes, results, np.stack([after, np.full(len(after), np.nan), before]), labels)
    _draw_published(axes, after, published, "less")
    learner, k = results.decisive[1]
    axes.set(title=f"Error on {title_of(tested)}", xlabel=f"degrees (pale: unadapted; solid: {learner}, k = {k})")


def _draw_scores(axes: Axes, results: Results, tiers: Sequence[str]) -> None:
    """Draw a dot for each seed's score and a line for the mean."""
    scores = results.tables["training"].groupby(["tier", "seed"])["score"].last()
    for tier, mean in results.tables["scores"]["score_mean"].items():
        y, color = tiers.index(tier), results.colors[tier]
        axes.plot(scores[tier], [y] * len(scores[tier]), "o", markersize=5, alpha=0.6, color=color)
        axes.plot(mean, y, "|", markersize=16, markeredgewidth=2.5, color=color)
    axes.set(title="Score at the end", xlabel=fill(results.summary["about"]["score"], 34))


def draw_training(results: Results) -> Figure:
    """Plot every tier's validation against what it has seen: thin lines for seeds, bold lines for means."""
    curves = results.tables["training"]
    seen, value, label = (
        {"samples": "samples seen"},
        "score",
        fill(results.summary.get("about", {}).get("score", ""), 34),
    )
    if results.datasets:
        seen = {"pairs": "training pairs", "rate_seconds": "seconds at the benchmark's rate"}
        value, label = "error_deg", "validation error, degrees"
    figure, [row] = panels(3.6, 1, len(seen))
    for axes, (column, name) in zip(row, seen.items(), strict=True):
        for marker, tier in zip(itertools.cycle(MARKERS), results.tiers, strict=False):
            of_tier, color = curves[curves["tier"] == tier], results.colors[tier]
            for _, seed in of_tier.groupby("seed"):
                axes.plot(seed[column], seed[value], color=color, linewidth=0.7, alpha=0.45)
            mean = of_tier.groupby(next(iter(seen)))[[column, value]].mean()
            axes.plot(mean[column], mean[value], f"{marker}-", color=color, markersize=4, linewidth=1.6, label=tier)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set(xlabel=name, xlim=(0, None))
        axes.grid(axis="y")
    row[0].set_ylabel(label)
    if results.datasets:
        target, errors = results.tables["convergence"]["target_deg"].mean(), curves["error_deg"]
        for axes in row:
            axes.axhline(
                target, **DASHED, label=f"final error of {results.tiers[0]} + {results.summary['margin_deg']:g}°"
            )
        row[0].set_ylim(0, min(1.08 * errors.max(), 3 * errors.median()))  # the first validations may be outside
    return with_legend(figure, row[0])


def draw_changes(results: Results) -> Figure:
    """Plot the change in each tier's error, its interval and the margin, followed by the noise controls."""
    controls, changed = results.summary["controls"], results.tiers[1:]
    margin, lines = results.summary["margin_deg"], len(changed) + len(controls)
    label = "change in error from the baseline, degrees"
    figure, shown = panels_by_dataset(results, 1.5 + 0.45 * lines, label, sharex=True)
    unadapted, (learner, k) = results.decisive
    for dataset, axes in shown.items():
        axes.axvspan(-margin, margin, color=BAND, zorder=0, label=f"margin ±{margin:g}°")
        axes.axvline(0, color=MUTED, linewidth=1)
        for cell in results.decisive:
            for position, (tier, change) in enumerate(results.cell("changes", dataset, *cell).iterrows()):
                y, color = position + (-0.14 if cell == unadapted else 0.14), results.colors[tier]
                axes.plot([change["low_deg"], change["high_deg"]], [y, y], color=color, linewidth=2)
                face = "white" if cell == unadapted else color
                axes.plot(change["difference_deg"], y, "o", color=color, markerfacecolor=face, markersize=7)
        if controls:
            axes.axhline(len(changed) - 0.5, **DASHED)
        axes.set_yticks(range(lines), [*changed, *(f"noise: {control}" for control in controls)])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(lines - 0.5, -0.6)
    reach = max(1.3 * margin, *np.abs(axes.get_xlim()))
    axes.set_xlim(-reach, reach)
    dot = {"marker": "o", "linestyle": "", "markeredgecolor": MUTED}
    dots = [Line2D([], [], **dot, markerfacecolor="white", label="unadapted")]
    dots += [Line2D([], [], **dot, markerfacecolor=MUTED, label=f"{learner}, k = {k}")]
    return with_legend(figure, axes, *dots)


def draw_people(results: Results) -> Figure:
    """Plot each test person's error in the first tier before and after adaptation, sorted by the error before."""
    persons, (learner, k) = results.tables["persons"], results.decisive[1]
    of_first = persons[persons["tier"] == results.tiers[0]].groupby(["dataset", "learner", "k", "person"])
    errors, counts = of_first["error_deg"].mean(), persons.groupby("dataset")["person"].nunique()
    widths = [min(max(counts[dataset], 12), 30) for dataset in results.datasets]
    figure, shown = panels_by_dataset(results, 3.4, "test people", "angular error, degrees", width_ratios=widths)
    for dataset, axes in shown.items():
        before = errors[dataset, UNADAPTED, 0].sort_values(ascending=False)
        after, x = errors[dataset, learner, k].reindex(before.index), np.arange(len(before))
        axes.vlines(x, after, before, color=BAND, linewidth=5, zorder=0)
        axes.plot(x, before, "o", color=MUTED, markerfacecolor="white", label="unadapted")
        axes.plot(x, after, "o", color=LEARNERS[0], label=f"{learner}, k = {k}")
        names = before.index if len(before) <= 40 else []
        axes.set_xticks(x[: len(names)], names, rotation=90, fontsize=8)
    axes.set_ylim(0)
    return with_legend(figure, axes)


def draw_shots(results: Results) -> Figure:
    """Plot the baseline's error against k for every learner and data set, with intervals as bands."""
    figure, shown = panels_by_dataset(results, 4.2, "calibration samples k", "angular error, degrees")
    for dataset, axes in shown.items():
        shots = _draw_learners(axes, results, results.tiers[0], dataset)
        if results.summary["pixel_sources"][dataset] in MPIIGAZE and shots.max() >= PAPER_SHOTS:
            star = {"color": PUBLISHED, "markersize": 12, "label": f"paper, k = 9: {PAPER_MPIIGAZE_K9_DEG}°"}
            axes.plot(PAPER_SHOTS, PAPER_MPIIGAZE_K9_DEG, "*", **star)
    return with_legend(figure, shown[results.datasets[0]])


def draw_shots_by_tier(results: Results) -> Figure:
    """Plot error against k in one small panel per data set and tier; the baseline is dashed."""
    wanted = list(itertools.product(results.datasets, results.tiers))
    columns = min(4, len(results.tiers))
    rows = math.ceil(len(wanted) / columns)
    figure, grid = panels(2.2 * rows + 0.5, rows, columns)
    every = list(itertools.chain(*grid))
    for axes, (dataset, tier) in zip(every, wanted, strict=False):
        for learner, color in zip(results.learners, LEARNERS, strict=False):
            curve = results.curve(results.tiers[0], dataset, learner)
            axes.plot(curve["k"], curve["mean_deg"], **DASHED | {"color": color})
        _draw_learners(axes, results, tier, dataset, 0.6)
        axes.set_title(f"{title_of(dataset)}, {tier}", fontsize=9.5)
        axes.grid(axis="y")
    for axes in every[len(wanted) :]:
        axes.axis("off")
    for axes in every[len(wanted) - columns : len(wanted)]:
        axes.set_xlabel("calibration samples k")
    figure.supylabel("angular error, degrees", fontsize=10)
    return with_legend(figure, every[0], Line2D([], [], **DASHED, label=f"mean of {results.tiers[0]}"))


def _draw_learners(axes: Axes, results: Results, tier: str, dataset: str, size: float = 1.0) -> pd.Series:
    """Plot the curve and interval of every learner from 0 to the end of the bands; return the values of k."""
    for learner, color, marker in zip(results.learners, LEARNERS, MARKERS, strict=False):
        curve = results.curve(tier, dataset, learner)
        axes.fill_between(curve["k"], curve["low_deg"], curve["high_deg"], color=color, alpha=0.06, linewidth=0)
        axes.plot(curve["k"], curve[["low_deg", "high_deg"]], color=color, linewidth=0.7 * size, alpha=0.45)
        line = {"linewidth": 1.9 * size, "markersize": 5 * size, "label": learner}
        axes.plot(curve["k"], curve["mean_deg"], f"{marker}-", color=color, **line)
    axes.xaxis.set_major_locator(FixedLocator(curve["k"], nbins=18 if size == 1 else 6))
    errors = results.tables["tiers"]
    ends = errors["high_deg"].fillna(errors["mean_deg"])  # a single person has no interval
    axes.set_ylim(0, min(1.06 * ends.max(), CLIP * ends[errors["k"] == 0].max()))
    return curve["k"]


def draw_learners(results: Results) -> Figure:
    """Plot each learner's paired difference from `offset`, with intervals, in one panel per data set."""
    table, margin = results.tables["learners"], results.summary["learner_margin_deg"]
    table = table[table["tier"] == results.tiers[0]]
    ylabel = f"error − error of {SIMPLE}, degrees"
    figure, shown = panels_by_dataset(results, 4.0, "calibration samples k", ylabel, sharex=True)
    shots = sorted(table["k"].unique())
    between = min(np.diff(shots), default=1) / (len(results.learners) + 1)
    for dataset, axes in shown.items():
        axes.axhspan(-margin, margin, color=BAND, zorder=0, label=f"margin ±{margin:g}°")
        axes.axhline(0, color=MUTED, linewidth=1)
        for position, (learner, color, marker) in enumerate(zip(results.learners, LEARNERS, MARKERS, strict=False)):
            curve = table[(table["dataset"] == dataset) & (table["learner"] == learner)].sort_values("k")
            low, mean, high = (curve[name] for name in ("low_deg", "difference_deg", "high_deg"))
            style = {"color": color, "linewidth": 0.9, "elinewidth": 1.6, "markersize": 5}
            if learner != SIMPLE:
                x = curve["k"] + between * (position - len(results.learners) / 2)
                axes.errorbar(x, mean, [mean - low, high - mean], fmt=f"{marker}-", **style, label=learner)
        axes.xaxis.set_major_locator(FixedLocator(shots, nbins=18))
    ends = table[["low_deg", "high_deg", "difference_deg"]]
    typical = 6 * max(np.nanmedian(ends.abs()), margin)  # far larger differences are cut off
    low, high = max(min(ends.min().min(), -margin), -typical), min(max(ends.max().max(), margin), typical)
    axes.set_ylim(low - 0.18 * (high - low), high + 0.18 * (high - low))
    style = NEAR | {"xycoords": "axes fraction", "color": MUTED, "backgroundcolor": "white"}
    shown[results.datasets[0]].annotate(f"↑ worse than {SIMPLE}", (0, 1), (6, -4), va="top", **style)
    shown[results.datasets[0]].annotate(f"↓ better than {SIMPLE}", (0, 0), (6, 4), va="bottom", **style)
    return with_legend(figure, axes)


def draw_walks(results: Results, angles: Mapping[str, pd.DataFrame]) -> Figure:
    """Plot estimated against requested angles of the walks: thin lines for people, bold lines for means.

    Args:
        results: results of the evaluation.
        angles: tier -> `angles.csv` of its walks.
    """
    walks = list(next(iter(angles.values()))["walk"].unique())
    figure, [row] = panels(3.4, 1, len(walks))
    for axes, walk in zip(row, walks, strict=True):
        for tier, table in angles.items():
            some, color = table[table["walk"] == walk], results.colors[tier]
            for _, person in some.groupby(["dataset", "person"]):
                axes.plot(person["asked_deg"], person["seen_deg"], color=color, linewidth=0.7, alpha=0.45)
            mean = some.groupby("asked_deg")["seen_deg"].mean()
            axes.plot(mean.index, mean, color=color, linewidth=2, label=tier)
        axes.plot(mean.index, mean.index, **DASHED, label="as requested")
        axes.set(title=walk, xlabel="requested, degrees")
        axes.grid(axis="y")
    row[0].set_ylabel("estimated, degrees")
    return with_legend(figure, row[0])
