"""The times and core counts of the jobs in a workflow run: a table, and a figure of several runs.

    python benchmarks/timeline.py --log .snakemake/log/DATE.snakemake.log --out docs/timeline/before.csv
    python benchmarks/timeline.py --draw docs/timeline/before.csv docs/timeline/after.csv --svg docs/timeline.svg

The times come from Snakemake's log of that one run, to the second. Snakemake's records of output files
(.snakemake/metadata) are unsuitable, since each describes the run that last made the file. A run with `--quiet rules`
leaves no such log.
"""

import argparse
import re
from datetime import datetime
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from faze.report.style import INK, MUTED, WIDTH, drawing, panels

FAMILIES = {
    "data": ("synthesise", "landmarks", "preprocess", "inspect", "oracle"),
    "benchmark": ("benchmark",),
    "train": ("train", "estimator"),
    "encode and decode": ("encode", "walk", "redirect"),
    "few-shot": ("meta_train", "adapt"),
    "evaluate, report, track": ("evaluate", "report", "track", "weights", "compare"),
}
COLORS = dict(zip(FAMILIES, ("#e69f00", "#7b8794", "#0072b2", "#56b4e9", "#009e73", "#cc79a7"), strict=True))
STAMP = re.compile(r"^\[(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\]$")
STARTED = re.compile(r"^(?:local)?rule (\w+):$")
FINISHED = re.compile(r"^Finished jobid: (\d+) \(Rule: \w+\)$")
LETTERS = 170  # of a bar's name that would fill the axis


def main() -> None:
    """Convert a log to a table, or plot tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, help="of a run: .snakemake/log/DATE.snakemake.log")
    parser.add_argument("--out", type=Path, help="table of its jobs, to write")
    parser.add_argument("--draw", type=Path, nargs="+", metavar="TABLE", help="of runs, the first on top")
    parser.add_argument("--svg", type=Path, help="their picture, to write")
    args = parser.parse_args()
    if (args.log is None) != (args.out is None) or (args.draw is None) != (args.svg is None):
        parser.error("--log and --out belong together, and so do --draw and --svg")
    if args.log:
        table = read_log(args.log.read_text(encoding="utf-8"))
        if table.empty:
            parser.error(f"{args.log}: contains no finished job; logs of runs with --quiet rules have none")
        table.to_csv(args.out, index=False, lineterminator="\n")
    if args.draw:
        draw({path.stem: pd.read_csv(path, keep_default_na=False) for path in args.draw}, args.svg)


def read_log(text: str) -> pd.DataFrame:
    """List the finished jobs of one run in the order in which they started: rule, tier, cores, start_s, end_s.

    Seconds are counted from the first job's start. Jobs that write config files are left out, since they take no time.
    """
    jobs: dict[str, dict[str, object]] = {}
    now, job = datetime.min, {}
    for line in text.splitlines():
        if stamp := STAMP.match(line):
            now = datetime.strptime(stamp[1], "%a %b %d %H:%M:%S %Y")
        elif started := STARTED.match(line):
            job = {"rule": started[1], "tier": "", "cores": 1, "start": now}
        elif finished := FINISHED.match(line):
            jobs[finished[1]]["end"] = now
        elif line.startswith("    jobid: "):
            jobs[line.split()[1]] = job
        elif line.startswith("    wildcards: "):
            job["tier"] = (re.findall(r"\btier=([^,]+)", line) or [""])[0]
        elif line.startswith("    threads: "):
            job["cores"] = int(line.split()[1])
    began = min((job["start"] for job in jobs.values()), default=now)
    rules = {rule for family in FAMILIES.values() for rule in family}
    rows = [
        {key: job[key] for key in ("rule", "tier", "cores")}
        | {f"{at}_s": int((job[at] - began).total_seconds()) for at in ("start", "end")}
        for job in jobs.values()
        if "end" in job and job["rule"] in rules
    ]
    return pd.DataFrame(sorted(rows, key=lambda row: row["start_s"]))


def lanes(table: pd.DataFrame) -> list[int]:
    """Assign each job the lowest free adjacent lanes, one for each of its cores; return each job's first lane."""
    free_at_s: list[float] = []
    found = []
    for start_s, end_s, cores in table[["start_s", "end_s", "cores"]].itertuples(index=False):
        first = 0
        while any(at_s > start_s for at_s in free_at_s[first : first + cores]):
            first += 1
        free_at_s += [0.0] * (first + cores - len(free_at_s))
        free_at_s[first : first + cores] = [end_s] * cores
        found.append(first)
    return found


def draw(tables: dict[str, pd.DataFrame], svg: Path) -> None:
    """Plot runs below each other on one axis in minutes; the height of a bar is its job's number of cores."""
    longest_s = max(table["end_s"].max() for table in tables.values())
    heights = [max(lanes_of + table["cores"]) for table in tables.values() for lanes_of in [pd.Series(lanes(table))]]
    with drawing():
        figure, rows = panels(
            WIDTH, 0.9 + 0.55 * sum(heights) + 0.6 * len(tables), len(tables), 1, sharex=True, height_ratios=heights
        )
        for (name, table), height, (axes,) in zip(tables.items(), heights, rows, strict=True):
            draw_run(axes, name, table, height, longest_s)
        rows[-1][0].set_xlabel("minutes since the first job began")
        patches = [Patch(color=color, label=family) for family, color in COLORS.items()]
        figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
        figure.savefig(svg, metadata={"Date": None})


def draw_run(axes: Axes, name: str, table: pd.DataFrame, height: int, longest_s: float) -> None:
    """Plot one run, with the busy share of its cores in the title."""
    family_of = {rule: family for family, rules in FAMILIES.items() for rule in rules}
    took_s = table["end_s"].max()
    busy = (table["cores"] * (table["end_s"] - table["start_s"])).sum() / (took_s * height)
    for lane, job in zip(lanes(table), table.to_dict("records"), strict=True):
        begin, minutes = job["start_s"] / 60, (job["end_s"] - job["start_s"]) / 60
        color = COLORS[family_of[job["rule"]]]
        axes.barh(
            lane, minutes, job["cores"] - 0.12, begin, align="edge", color=color, edgecolor="white", linewidth=0.3
        )
        text = job["tier"] if job["rule"] == "train" else job["rule"]
        if 60 * minutes / longest_s >= (len(text) + 1) / LETTERS:
            middle = (begin + minutes / 2, lane + job["cores"] / 2 - 0.06)
            axes.text(*middle, text, ha="center", va="center", color="white", fontsize=8.5)
    took = f"{took_s // 60} min {took_s % 60:02d} s"
    axes.set_title(f"{name}: {took}; jobs hold {100 * busy:.0f} % of the time of {height} cores", color=INK)
    axes.set_ylim(height, -0.12)
    axes.set_xlim(0, longest_s / 60 * 1.01)
    axes.set_yticks(
        [lane + 0.44 for lane in range(height)], [f"core {lane + 1}" for lane in range(height)], color=MUTED
    )
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


if __name__ == "__main__":
    main()
