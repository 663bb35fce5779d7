"""The page of a workload's ablation: a folder with index.html, tiers.csv and figures."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from faze.base.tier_colors import tier_colors
from faze.evaluation.wording import counted, join
from faze.evaluation.workload_results import WorkloadResults
from faze.report.formats import load_template
from faze.report.media import save_figures
from faze.report.style import INK, WIDTH, drawing, panels


def write_page(name: str, about: Mapping[str, Any], results: WorkloadResults, level: str, folder: Path) -> None:
    """Write the page into an existing folder.

    Args:
        name: name of the ablation.
        about: the workload: `path`, `summary`, `score`, `higher_is_better`, and `published` with its speed and memory.
        results: its results.
        level: level of the intervals, for example "95 %".
        folder: output folder.
    """
    with drawing():
        figures = {"tiers": draw_tiers(results, about)}
        if results.curves:
            figures["training"] = draw_training(results, about["score"])
    pictures = save_figures(figures, folder / "figures")
    rows = [row | {"proof_lines": proof_lines(row["proof"])} for row in results.rows]
    columns = ("tier", "before", "same", "idle", "step_ms", "peak_gib", "memory_ratio", "memory_differs")
    table = pd.DataFrame([{key: row[key] for key in columns} | _flat(row) for row in results.rows])
    table.to_csv(folder / "tiers.csv", index=False, float_format="%.6g")
    acting = [row for row in rows[1:] if row["same"] and not row["idle"]]
    leaner = [row for row in acting if row["memory_differs"] and row["memory_ratio"] > 1]
    page = load_template("workload.html.j2").render(
        name=name,
        about=about,
        rows=rows,
        fastest=max(acting, key=lambda row: row["speed"]["ratio"], default=None),
        leanest=max(leaner, key=lambda row: row["memory_ratio"], default=None),
        others=[row["tier"] for row in rows if not row["same"]],
        noise=results.noise,
        machine=results.machine,
        seeds=len(next(iter(results.curves.values()))),
        level=level,
        figures=pictures,
        colors=tier_colors([row["tier"] for row in rows]),
        join=join,
    )
    (folder / "index.html").write_text(page, encoding="utf-8")


def proof_lines(proof: Mapping[str, Any]) -> list[str]:
    """Describe how far a tier moves the weights from where the baseline moves them, for each number format."""
    compared = proof.get("formats", [])
    lines = [
        f"{each['format']}, {counted(each['steps'], 'step')}: {each['distance']:.1g} of {each['tolerance']:.1g}"
        for each in compared
    ]
    return [*lines, *([proof["not_compared"]] if "not_compared" in proof else [])] or [proof.get("failed", "")]


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat = {"not_compared": row["proof"].get("not_compared", "")}
    flat |= {"changed": "; ".join(f"{s['switch']} {s['wanted']}" for s in row["changed"])}
    flat |= {f"speedup_{key}": value for key, value in row["speed"].items()}
    for name in ("score", "change"):
        flat |= {f"{name}_{key}": value for key, value in (row[name] or {}).items()}
    return flat


def draw_tiers(results: WorkloadResults, about: Mapping[str, Any]) -> Figure:
    """Plot step time, peak memory and score of every tier; tiers that are another experiment are hatched."""
    rows, colors = results.rows, tier_colors([row["tier"] for row in results.rows])
    figure, [[time, memory, scores]] = panels(WIDTH, 1.6 + 0.36 * len(rows), 1, 3, sharey=True)
    for axes, key, title, unit, published in (
        (time, "step_ms", "Step time", "ms", about["published_speed"]),
        (memory, "peak_gib", "Peak memory", "GiB", about["published_memory"]),
    ):
        if published:
            axes.axvline(rows[0][key] / published, color=INK, ls="--", lw=1.2)
            axes.annotate(
                "published", (rows[0][key] / published, -0.5), (4, 0), textcoords="offset points", va="center"
            )
        largest = max(row[key] for row in rows)
        for number, row in enumerate(rows):
            style = {"color": colors[row["tier"]]} if row["same"] else {"fc": "none", "ec": INK, "hatch": "////"}
            axes.barh(number, row[key], height=0.62, **style)
            axes.annotate(f"{row[key]:.3g}", (row[key], number), (5, 0), textcoords="offset points", va="center")
        axes.set(title=title, xlabel=unit, xlim=(0, 1.25 * largest))
    for number, row in enumerate(rows):
        color = colors[row["tier"]]
        scores.plot(row["scores"], [number] * len(row["scores"]), "o", ms=5, alpha=0.6, color=color, mew=0)
        if row["score"]:
            scores.plot(row["score"]["mean"], number, "|", ms=18, mew=2.5, color=color)
    scores.set(title="Score at the end", xlabel=fill(about["score"], 34))
    time.set_yticks(range(len(rows)), [row["tier"] for row in rows])
    time.set_ylim(len(rows) - 0.5, -0.6)
    for axes in (time, memory, scores):
        axes.locator_params(axis="x", nbins=4)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
    return figure


def draw_training(results: WorkloadResults, score: str) -> Figure:
    """Plot the score of every training against the samples seen."""
    colors = tier_colors([row["tier"] for row in results.rows])
    figure, [[axes]] = panels(WIDTH, 3.4, 1, 1)
    for tier, curves in results.curves.items():
        for number, curve in enumerate(curves):
            axes.plot(*zip(*curve, strict=True), color=colors[tier], lw=1.4, label=tier if number == 0 else None)
    axes.set(xlabel="samples seen", ylabel=fill(score, 34))
    axes.grid()
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
