"""The page of a sweep, as a folder: index.html, points.csv, runs.csv and the figures."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from faze.evaluation.swept import ERROR, NUMBERS
from faze.report.data_uris import Embedder
from faze.report.figure_files import save_figures
from faze.report.style import drawing
from faze.report.sweep_figures import draw_against, draw_parallel, in_words
from faze.report.template import load_template

PAGE = ("index.html", "points.csv")  # by which its folder is known


def write_sweep(
    name: str, runs: pd.DataFrame, points: pd.DataFrame, keys: Sequence[str], level: str, folder: Path
) -> None:
    """Write the page of a sweep into a folder.

    Args:
        name: of the ablation whose baseline varies.
        runs: as of `swept_runs`.
        points: as of `swept_points`, the best first.
        keys: that vary.
        level: of the intervals, in words.
        folder: exists.
    """
    lists = [key for key in keys if points[key].map(lambda value: isinstance(value, list)).any()]
    points = points.assign(**{key: points[key].map(in_words) for key in lists})  # figures place no lists
    for table, rows in (("runs", runs), ("points", points)):
        rows.to_csv(folder / f"{table}.csv", index=False, float_format="%.6g")
    rows = [
        {key: row[key] for key in ("point", *NUMBERS, "seeds", "low", "high")}
        | {"shown": {key: in_words(row[key]) for key in keys}}
        for row in points.to_dict("records")
    ]
    best = rows[0] if points[ERROR].notna().any() else None
    pictures = {}
    if best:
        best["told"] = ", ".join(f"{key} {value}" for key, value in best["shown"].items())
        with drawing():
            figures = {"parallel": draw_parallel(points, keys), "against": draw_against(points, runs, keys)}
        pictures = save_figures(figures, folder / "figures", Embedder())
    interval = bool(points["high"].notna().any())
    reaches = points["low"].fillna(points[ERROR])  # of a point with one ended seed, the error itself
    lost = runs[runs["state"] != "trained"]
    content = {
        "unfinished": [f"{row.point}, seed {row.seed}, {row.state}" for row in lost.itertuples()],
        "beside": int((reaches[1:] <= points["high"][0]).sum()),
        "seeds": sorted(runs["seed"].unique()),
    }
    page = load_template("sweep.html.j2").render(
        name=name, rows=rows, best=best, keys=list(keys), figures=pictures, interval=interval, level=level, **content
    )
    (folder / "index.html").write_text(page, encoding="utf-8")
