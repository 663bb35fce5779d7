"""The page of a single tier: the tier compared with the baseline and with its own earlier code or values."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
import numpy as np

from faze.evaluation.records import Record, compare_errors
from faze.evaluation.statistics import compare
from faze.evaluation.wording import memory_change, parallelism, signed, title_of
from faze.report import formats as f

NOT_SHOWN = "not shown"


class Row(NamedTuple):
    """A row of a comparison."""

    quantity: str
    before: str
    after: str
    change: str
    verdict: str


class Table(NamedTuple):
    """A comparison of two states; `changes` lists what else differs."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    note: str = ""
    changes: Sequence[str] = ()


def render(record: Record, measured: Mapping[str, Any], tables: Sequence[Table], notes: Sequence[str]) -> str:
    """Return the page as HTML."""
    loader = jinja2.PackageLoader("faze.report", ".")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"machine": f.machine, "marked": f.marked, "parallelism": parallelism}
    values = {"record": record, "measured": measured, "tables": tables, "notes": notes}
    return environment.get_template("answer.html.j2").render(values)


def measured_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Row]:
    """Compare the step time and the memory of two measurements in the same rounds, at least three."""
    times = [f.milliseconds(row["step_ms"]) for row in (before, after)]
    first, second = before["peaks_gib"], after["peaks_gib"]
    peaks = [f"{min(peaks):.3f} to {max(peaks):.3f} GiB" for peaks in (first, second)]
    tested = compare(np.log(np.divide(first, second)), margin=0.0, alpha=0.025)
    saving = {name: math.exp(tested[f"{name}_deg"]) for name in ("difference", "low", "high")}
    memory = ratio_row("Peak memory", *peaks, saving | {"ratio": saving["difference"]}, "less", "more")
    return [ratio_row("Speed", *times, after["speedup"], "faster", "slower"), memory]


def ratio_row(quantity: str, before: str, after: str, change: Mapping[str, float], better: str, worse: str) -> Row:
    """Judge a ratio (`ratio`, `low`, `high`) that is above 1 for an improvement."""
    verdict = NOT_SHOWN if change["low"] <= 1 <= change["high"] else better if change["ratio"] > 1 else worse
    return Row(
        quantity, before, after, f"{f.ratio(change['ratio'])} ({f.interval(change['low'], change['high'])})", verdict
    )


def error_rows(before: Mapping[str, list], after: Mapping[str, list]) -> list[Row]:
    """Compare the errors, or scores, of the same people and seeds."""
    rows = []
    for row in compare_errors(before, after).to_dict("records"):
        low, high = row["low_deg"], row["high_deg"]
        verdict = "identical" if row["identical"] else "higher" if low > 0 else "lower" if high < 0 else NOT_SHOWN
        change = f"{signed(row['difference_deg'], 3)} ({f.signed_interval(low, high)})"
        means = f"{row['before']:.3f}", f"{row['after']:.3f}"
        rows.append(Row(title_of_metric(row["metric"]), *means, change, verdict))
    return rows


def title_of_metric(metric: str) -> str:
    """Return the title of an error or score."""
    if not (found := re.fullmatch(r"error/(.+?)(?:_k(\d+))?_deg", metric)):
        return "Score"
    return f"Error on {title_of(found[1])}, {f'k = {found[2]}' if found[2] else 'unadapted'}, °"


def compare_records(before: Record, after: Record) -> list[Row]:
    """Compare two records of a tier, whose speed and memory were measured at different times.

    Only ratios to the baseline of the same rounds can be compared, so a change shared with the baseline is not seen.
    """
    if before["config_hash"] == after["config_hash"]:
        rows = [Row("Speed and memory", "", "", "code, values and machine are the same", "")]
    else:
        parts = [record["speed"]["speedup"] for record in (before, after)]
        ratio = parts[1]["ratio"] / parts[0]["ratio"]
        reach = math.exp(math.hypot(*(math.log(part["high"] / part["ratio"]) for part in parts)))
        speeds = [f.ratio(part["ratio"]) for part in parts]
        change = {"ratio": ratio, "low": ratio / reach, "high": ratio * reach}
        rows = [ratio_row("Speed, relative to the baseline", *speeds, change, "faster", "slower")]
        parts = [record["speed"]["memory_ratio"] for record in (before, after)]
        savings = [memory_change(part, differs=True) for part in parts]
        rows.append(Row("Peak memory, relative to the baseline", *savings, f.ratio(parts[1] / parts[0]), ""))
    return rows + error_rows(before["errors"], after["errors"])
