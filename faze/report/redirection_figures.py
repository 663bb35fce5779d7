"""Figures of redirected strips and of walks: error and turn against the angle that was asked."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from faze.base.tier_colors import tier_colors
from faze.evaluation.redirected_angles import BINS_DEG
from faze.evaluation.wording import NAMES
from faze.report.results import Results
from faze.report.style import INK, MUTED, WIDTH, panels

# Control -> words of the legend, dashes; drawn for the first tier, though some depend on no tier.
CONTROLS = {
    "still": ("not turned", (0, (1, 1.5))),
    "other": ("another real strip", (0, (5, 3))),
    "oracle": ("rendered anew", (0, (3, 1.5, 1, 1.5))),
    "real": ("the real strip", "-"),
}
_TICKS = [*BINS_DEG[:-1]]


def draw_redirection(results: Results) -> Figure:
    """Draw errors of gaze and head by the angle asked, and below how far along it they turned, per data set."""
    table = results.tables["redirected_by_angle"]
    columns = [(dataset, factor) for dataset in results.datasets for factor in ("gaze", "head")]
    figure, [errors, turns] = panels(WIDTH, 6.4, 2, len(columns), sharex="col", sharey="row")
    ends = dict.fromkeys([results.tiers[0], results.tiers[-1]])  # once where there is one tier
    colors = tier_colors(results.tiers)
    for (dataset, factor), error, turn in zip(columns, errors, turns, strict=True):
        some = table[(table["dataset"] == dataset) & (table["factor"] == factor)]
        first = some[some["tier"] == results.tiers[0]]
        for variant, (words, dashes) in CONTROLS.items():
            _line(error, first[first["variant"] == variant], "error_deg", MUTED, dashes, words)
        for tier in ends:
            of_tier = some[some["tier"] == tier]
            _line(error, of_tier[of_tier["variant"] == "both"], "error_deg", colors[tier], "-", tier, "o")
            _line(turn, of_tier[of_tier["variant"] == factor], "turned_deg", colors[tier], "-", tier, "o")
        most = float(some["asked_deg"].max())
        turn.plot([0, most], [0, most], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        error.set_title(f"{NAMES[dataset]}: {factor}")
        for axes in (error, turn):
            axes.grid(axis="y")
        turn.set(xlabel="asked, degrees", xlim=(0, None))
    errors[0].set(ylabel="error, degrees", ylim=(0, None))
    turns[0].set(ylabel="turned along it, degrees")
    turns[0].annotate("dashed: as asked", (0.04, 0.92), xycoords="axes fraction", fontsize=9, color=INK)
    handles, labels = errors[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(handles)))
    return figure


def _line(
    axes: Axes, rows: pd.DataFrame, what: str, color: str, dashes: object, label: str, marker: str | None = None
) -> None:
    if len(rows):
        rows = rows.sort_values("from_deg")
        axes.plot(
            rows["asked_deg"], rows[what], marker=marker, color=color, linestyle=dashes, linewidth=1.6, label=label
        )


def draw_walks(results: Results, angles: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw how far the walks turned, as the estimator sees them: each person thin, the mean bold.

    Args:
        results: the evaluation.
        angles: tier -> `angles.csv` of its walks.
    """
    walks = list(next(iter(angles.values()))["walk"].unique())
    figure, [row] = panels(WIDTH, 3.4, 1, len(walks), sharey=True)
    colors = tier_colors(results.tiers)
    for axes, walk in zip(row, walks, strict=True):
        for tier, table in angles.items():
            some = table[table["walk"] == walk]
            for _, person in some.groupby(["dataset", "person"]):
                axes.plot(person["asked_deg"], person["seen_deg"], color=colors[tier], linewidth=0.7, alpha=0.45)
            mean = some.groupby("asked_deg")["seen_deg"].mean()
            axes.plot(mean.index, mean, color=colors[tier], linewidth=2, label=tier)
        most = float(some["asked_deg"].max())
        axes.plot([-most, most], [-most, most], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="as asked")
        axes.set(title=walk, xlabel="asked, degrees")
        axes.grid(axis="y")
    row[0].set_ylabel("seen, degrees")
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
