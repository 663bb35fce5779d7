"""The figures of the report page."""

import itertools
import math
from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from faze.evaluation import UNADAPTED
from faze.evaluation.tables import SIMPLE
from faze.evaluation.wording import title_of
from faze.report.results import Results

INK, MUTED, RULE, BAND = "#1f2933", "#616e7c", "#d9dfe5", "#e9eef3"
PUBLISHED = "#b42318"  # other authors' results, next to ours
LEARNERS = ("#5b21b6", "#0f766e", "#b45309", "#9f1239", "#1e3a8a")
LEARNERS += ("#3f6212", "#0284c7", "#db2777", "#525252", "#ca8a04")
MARKERS = "osD^vPX<>h"
DASHED = {"color": MUTED, "linewidth": 1, "linestyle": (0, (4, 3))}
THIN = {"linewidth": 0.7, "alpha": 0.45}
MPIIGAZE = ("MPIIGaze", "MPIIFaceGaze")  # pixel sources of MPIIGaze's strips
PAPER_SHOTS, PAPER_MPIIGAZE_K9_DEG = 9, 3.14  # the paper's error on MPIIGaze after 9 samples
STYLE = {"font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, "legend.frameon": False}
STYLE |= {"axes.edgecolor": MUTED, "axes.labelcolor": INK, "axes.spines.right": False, "axes.spines.top": False}
STYLE |= {"axes.titlelocation": "left", "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlepad": 10}
STYLE |= {"axes.axisbelow": True, "grid.color": RULE, "grid.linewidth": 0.8, "hatch.linewidth": 0.6}
STYLE |= {"xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK, "ytick.labelcolor": INK}
STYLE |= {"text.parse_math": False, "svg.hashsalt": "faze"}  # people's names may contain $; files are reproducible


def panels(height: float, rows: int, columns: int, grid: str = "y", **settings: object) -> tuple[Figure, list[Axes]]:
    """Create a figure of a given height in inches with grid lines on one axis; return it and its axes, row by row."""
    figure = Figure(figsize=(12, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08, wspace=0.04, hspace=0.06)
    every = figure.subplots(rows, columns, squeeze=False, sharey=True, **settings).ravel().tolist()
    for axes in every:
        axes.grid(axis=grid)
    return figure, every


def by_dataset(results: Results, height: float, xlabel: str, ylabel: str = "", **settings) -> tuple[Figure, dict]:
    """Create a figure with a titled panel for each data set; return the figure and its axes, keyed by data set."""
    figure, row = panels(height, 1, len(results.datasets), "y" if ylabel else "x", **settings)
    for axes, dataset in zip(row, results.datasets, strict=True):
        axes.set(title=title_of(dataset), xlabel=xlabel)
    row[0].set_ylabel(ylabel)
    return figure, dict(zip(results.datasets, row, strict=True))


def with_legend(figure: Figure, axes: Axes) -> Figure:
    """Add a legend for the axes to the figure, below its panels."""
    handles, _ = axes.get_legend_handles_labels()
    figure.legend(handles=handles, loc="outside lower center", ncols=min(8, len(handles)))
    return figure


def draw_tiers(results: Results) -> Figure:
    """Plot every tier's step time, peak memory, and error or score, next to published ratios."""
    rows, published = pd.DataFrame(results.rows), results.published if len(results.rows) > 1 else {}
    names = [*rows["tier"], *([published["name"]] if published else [])]
    figure, row = panels(1.3 + 0.36 * len(names), 1, 2 + bool(results.tables), "x")
    time, memory = rows[["step_ms", "step_ms_q1", "step_ms_q3"]], rows[["peak_gib", "peak_gib_low", "peak_gib_high"]]
    _draw_bars(row[0], results, time, [f"{ms:.3g}" for ms in rows["step_ms"]], published.get("speed"), "faster")
    _draw_bars(row[1], results, memory, [f"{gib:.2f}" for gib in rows["peak_gib"]], published.get("memory"), "less")
    row[0].set(title="Step time", xlabel="ms (median and quartiles)", ylim=(len(names) - 0.5, -0.6))
    row[1].set(title="Peak memory", xlabel="GiB (median, minimum and maximum)")
    if results.datasets:
        _draw_errors(row[2], results, rows["tier"], published.get("error"))
    elif results.tables:
        _draw_scores(row[2], results, rows["tier"])
    row[0].set_yticks(range(len(names)), names)
    row[0].get_yticklabels()[-1].set_color(PUBLISHED if published else INK)
    for axes in row:
        axes.tick_params(axis="y", length=0)
    return figure


def _draw_bars(axes: Axes, results: Results, table: pd.DataFrame, labels: list, ratio: float | None, word: str) -> None:
    """Draw each tier's value and range, and the published ratio; hatch tiers that are not the same experiment."""
    bars, styles, labels = list(table.to_numpy()), [], list(labels)
    for row in results.rows:
        color = results.colors[row["tier"]]
        styles.append({"color": color} if row["same"] else {"facecolor": "none", "edgecolor": color, "hatch": "xxxx"})
    if ratio:
        bars.append(np.array([bars[0][0] / ratio, np.nan, np.nan]))
        styles.append({"facecolor": "none", "edgecolor": PUBLISHED, "hatch": "////"})
        labels.append("no change" if ratio == 1 else f"{ratio:g}× {word}")
    for y, ((value, low, high), label, style) in enumerate(zip(bars, labels, styles, strict=True)):
        axes.barh(y, value, height=0.62, **style)
        if low < high:
            axes.plot([low, high], [y, y], "|-", color=INK, linewidth=1.4, markersize=5)
        end, color = np.nanmax([0, value, high]), style.get("edgecolor", INK)
        axes.annotate(label, (end, y), (5, 0), textcoords="offset points", va="center", fontsize=9, color=color)
    axes.set_xlim(0, (1.12 + 0.035 * max(map(len, labels))) * np.nanmax(bars))


def _draw_errors(axes: Axes, results: Results, tiers: pd.Series, published: float | None) -> None:
    """Draw solid bars for errors after adaptation, and pale bars for unadapted errors."""
    tested, (learner, k) = results.datasets[0], results.decisive[1]
    before, after = (results.cell("tiers", tested, *cell)["mean_deg"].reindex(tiers) for cell in results.decisive)
    labels = [f"{a:.2f} → {b:.2f}" if a == a else "not trained" for a, b in zip(before, after, strict=True)]
    axes.barh(range(len(tiers)), before, height=0.8, color=tiers.map(results.colors), alpha=0.3)
    _draw_bars(axes, results, pd.DataFrame({0: after, 1: np.nan, 2: before}), labels, published, "less")
    axes.set(title=f"Error on {title_of(tested)}", xlabel=f"degrees (pale: unadapted; solid: {learner}, k = {k})")


def _draw_scores(axes: Axes, results: Results, tiers: pd.Series) -> None:
    """Draw a dot for each seed's score and a line for the mean."""
    scores = results.tables["training"].groupby(["tier", "seed"])["score"].last()
    for y, tier in tiers[tiers.isin(results.tiers)].items():
        dots, color = scores[tier], results.colors[tier]
        axes.plot(dots, [y] * len(dots), "o", markersize=5, alpha=0.6, color=color)
        axes.plot(dots.mean(), y, "|", markersize=16, markeredgewidth=2.5, color=color)
    axes.set(title="Final score", xlabel=fill(results.summary["about"]["score"], 34))


def draw_training(results: Results) -> Figure:
    """Plot every tier's validation results against the samples seen: thin lines for seeds, bold lines for means."""
    curves, seen, value = results.tables["training"], {"samples": "samples seen"}, "score"
    if results.datasets:
        seen, value = {"pairs": "training pairs", "rate_seconds": "seconds at the benchmark's rate"}, "error_deg"
    figure, row = panels(3.6, 1, len(seen))
    row[0].set_ylabel("validation error, degrees" if results.datasets else fill(results.summary["about"]["score"], 34))
    for axes, (column, name) in zip(row, seen.items(), strict=True):
        for marker, tier in zip(itertools.cycle(MARKERS), results.tiers, strict=False):
            of_tier, color = curves[curves["tier"] == tier], results.colors[tier]
            for _, seed in of_tier.groupby("seed"):
                axes.plot(seed[column], seed[value], color=color, **THIN)
            mean = of_tier.groupby(next(iter(seen)))[[column, value]].mean()
            axes.plot(mean[column], mean[value], f"{marker}-", color=color, markersize=4, label=tier)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set(xlabel=name, xlim=(0, None))
        if results.datasets:
            label = f"final error of {results.tiers[0]} + {results.summary['margin_deg']:g}°"
            axes.axhline(results.tables["convergence"]["target_deg"].mean(), **DASHED, label=label)
            axes.set_ylim(0, min(1.08 * curves[value].max(), 3 * curves[value].median()))  # cut off large early errors
    return with_legend(figure, row[0])


def draw_changes(results: Results) -> Figure:
    """Plot each tier's change in error with its interval and the margin, followed by the noise controls."""
    controls, margin = results.summary["controls"], results.summary["margin_deg"]
    names = [*results.tiers[1:], *(f"noise: {control}" for control in controls)]
    figure, shown = by_dataset(results, 1.5 + 0.45 * len(names), "change from the baseline, degrees", sharex=True)
    for dataset, axes in shown.items():
        axes.axvspan(-margin, margin, color=BAND, zorder=0, label=f"margin ±{margin:g}°")
        axes.axvline(0, color=MUTED, linewidth=1)
        for (learner, k), offset in zip(results.decisive, (-0.14, 0.14), strict=True):
            label = f"{learner}, k = {k}" if k else UNADAPTED
            axes.plot([], [], "o", color=MUTED, markerfacecolor=MUTED if k else "white", label=label)
            for y, (tier, change) in enumerate(results.cell("changes", dataset, learner, k).iterrows()):
                mean, color = change["difference_deg"], results.colors[tier]
                reach = [[mean - change["low_deg"]], [change["high_deg"] - mean]]
                style = {"color": color, "markerfacecolor": color if k else "white", "elinewidth": 2}
                axes.errorbar(mean, y + offset, xerr=reach, fmt="o", markersize=7, **style)
        if controls:
            axes.axhline(len(results.tiers) - 1.5, **DASHED)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0)
    reach = max(1.3 * margin, *np.abs(axes.get_xlim()))
    axes.set(xlim=(-reach, reach), ylim=(len(names) - 0.5, -0.6))
    return with_legend(figure, axes)


def draw_people(results: Results) -> Figure:
    """Plot each test person's error before and after adaptation in the first tier, sorted by unadapted error."""
    persons, (learner, k) = results.tables["persons"], results.decisive[1]
    of_first = persons[persons["tier"] == results.tiers[0]].groupby(["dataset", "learner", "k", "person"])
    errors, counts = of_first["error_deg"].mean(), persons.groupby("dataset")["person"].nunique()
    widths = [min(max(counts[dataset], 12), 30) for dataset in results.datasets]
    figure, shown = by_dataset(results, 3.4, "test people", "angular error, degrees", width_ratios=widths)
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


def draw_shots(results: Results, tiers: Sequence[str]) -> Figure:
    """Plot every learner's error against k, in one panel per data set and tier; dashed lines show the baseline."""
    several, wanted = len(tiers) > 1, list(itertools.product(results.datasets, tiers))
    columns = min(4, len(tiers)) if several else len(wanted)
    rows = math.ceil(len(wanted) / columns)
    figure, grid = panels(2.4 * rows + 0.5 if several else 4.2, rows, columns)
    figure.supylabel("angular error, degrees", fontsize=10)
    for axes, (dataset, tier) in zip(grid, wanted, strict=False):
        _draw_learners(axes, results, tier, dataset, 0.6 if several else 1)
        axes.set_title(f"{title_of(dataset)}, {tier}" if several else title_of(dataset))
        axes.set_xlabel("calibration samples k" if grid.index(axes) >= len(wanted) - columns else "")
    for axes in grid[len(wanted) :]:
        axes.axis("off")
    return with_legend(figure, grid[0])


def _draw_learners(axes: Axes, results: Results, tier: str, dataset: str, size: float) -> None:
    """Plot every learner's curve with its interval; the y axis starts at 0."""
    for learner, color, marker in zip(results.summary["learners"], LEARNERS, MARKERS, strict=False):
        curve, baseline = (results.curve(each, dataset, learner) for each in (tier, results.tiers[0]))
        if len(curve) == 1:  # another project's network, whose codes are unknown
            continue
        shots, style = curve["k"], {"linewidth": 1.9 * size, "markersize": 5 * size}
        axes.fill_between(shots, curve["low_deg"], curve["high_deg"], color=color, alpha=0.06, linewidth=0)
        axes.plot(shots, curve[["low_deg", "high_deg"]], color=color, **THIN)
        axes.plot(shots, baseline["mean_deg"], **DASHED | {"color": color})
        axes.plot(shots, curve["mean_deg"], f"{marker}-", color=color, **style, label=learner)
    if results.summary["pixel_sources"][dataset] in MPIIGAZE and shots.max() >= PAPER_SHOTS:
        star = {"color": PUBLISHED, "markersize": 12 * size, "label": f"paper, k = 9: {PAPER_MPIIGAZE_K9_DEG}°"}
        axes.plot(PAPER_SHOTS, PAPER_MPIIGAZE_K9_DEG, "*", **star)
    axes.xaxis.set_major_locator(FixedLocator(shots, nbins=math.ceil(18 * size**2)))
    errors = results.tables["tiers"]
    ends = errors["high_deg"].fillna(errors["mean_deg"])  # a single person has no interval
    axes.set_ylim(0, min(1.06 * ends.max(), 1.6 * ends[errors["k"] == 0].max()))


def draw_learners(results: Results) -> Figure:
    """Plot each learner's paired difference from `offset`, with intervals, in one panel per data set."""
    table, margin = results.tables["learners"], results.summary["learner_margin_deg"]
    table, learners = table[table["tier"] == results.tiers[0]], results.summary["learners"]
    figure, shown = by_dataset(results, 4, "calibration samples k", f"error − error of {SIMPLE}, degrees")
    shots = sorted(table["k"].unique())
    between = min(np.diff(shots), default=1) / (len(learners) + 1)
    for dataset, axes in shown.items():
        axes.axhspan(-margin, margin, color=BAND, zorder=0, label=f"margin ±{margin:g}°")
        axes.axhline(0, color=MUTED, linewidth=1)
        for position, (learner, color, marker) in enumerate(zip(learners, LEARNERS, MARKERS, strict=False)):
            curve = table[(table["dataset"] == dataset) & (table["learner"] == learner)].sort_values("k")
            x, mean = curve["k"] + between * (position - len(learners) / 2), curve["difference_deg"]
            reach = [mean - curve["low_deg"], curve["high_deg"] - mean]
            style = {"color": color, "linewidth": 0.9, "elinewidth": 1.6, "markersize": 5}
            if learner != SIMPLE:
                axes.errorbar(x, mean, reach, fmt=f"{marker}-", **style, label=learner)
        axes.xaxis.set_major_locator(FixedLocator(shots, nbins=18))
    typical = 6 * np.nanmax([table[["low_deg", "high_deg"]].abs().stack().median(), margin])  # clip wide intervals
    axes.set_ylim(np.clip(axes.get_ylim(), -typical, typical))
    return with_legend(figure, axes)


def draw_walks(results: Results, angles: Mapping[str, pd.DataFrame]) -> Figure:
    """Plot estimated against requested angles (`angles.csv`) per tier: thin lines for people, bold lines for means."""
    walks = list(next(iter(angles.values()))["walk"].unique())
    figure, row = panels(3.4, 1, len(walks))
    for axes, walk in zip(row, walks, strict=True):
        for tier, table in angles.items():
            some, color = table[table["walk"] == walk], results.colors[tier]
            for _, person in some.groupby(["dataset", "person"]):
                axes.plot(person["asked_deg"], person["seen_deg"], color=color, **THIN)
            mean = some.groupby("asked_deg")["seen_deg"].mean()
            axes.plot(mean.index, mean, color=color, linewidth=2, label=tier)
        axes.plot(mean.index, mean.index, **DASHED, label="as requested")
        axes.set(title=walk, xlabel="requested, degrees")
    row[0].set_ylabel("estimated, degrees")
    return with_legend(figure, row[0])
