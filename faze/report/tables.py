"""Tables of the page. A cell is a text: its first line is the value, and the others are details."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from faze.base.result_paths import ResultPaths
from faze.data.strips import StripStore, read_store
from faze.evaluation.redirected_angles import FACTORS, REDIRECTED, SIMILARITIES
from faze.evaluation.wording import peak, title_of
from faze.report import formats as f
from faze.report.results import Results, read_csv

CONTROLS = {"not_turned": "not turned", "real": "real strip"}  # of redirection; those of the first tier are shown
MOST_REASONS = 10  # of rejected frames
Cells = dict[tuple[str, str], str]  # by (group, title) of the column


def tier_table(results: Results) -> list[Cells]:
    """Tabulate each tier's change, proof, speed and memory and, if any was trained, errors or scores and verdicts."""
    found, verdicts = [], results.summary.get("tier_verdicts", {})
    for row in results.rows:
        acting = [switch for switch in row["changed"] if not switch["reason"]]
        idle = ", ".join(switch["switch"] for switch in row["changed"] if switch["reason"])
        added = ", ".join(s["switch"] if s["wanted"] == "true" else f"{s['switch']} {s['wanted']}" for s in acting)
        speed, memory = [f.ratio(row["speed_ratio"])], [row["memory_change"]]
        if row["before"]:
            speed.append(f.interval(row["speed_low"], row["speed_high"]))
        if not row["same"]:
            speed = memory = ["not compared"]
        cells = {
            "Tier": [row["tier"], f"{row['before']} + {added}" if added else "", f"inactive: {idle}" if idle else ""],
            "Same experiment": describe_proof(row["proof"]) if row["before"] else ["reference"],
            "Speed": [*speed, f.milliseconds(row["step_ms"])],
            "Peak memory": [*memory, *peak(row).removesuffix(")").split(" (")],
        }
        shown = {("", title): "\n".join(filter(None, lines)) for title, lines in cells.items()}
        if results.tables:
            shown |= error_cells(results, row["tier"]) if results.datasets else score_cells(results, row["tier"])
        if verdicts:
            shown["", "Verdict"] = verdicts.get(row["tier"], "")
        found.append(shown)
    return found


def describe_proof(proof: Mapping[str, Any]) -> list[str]:
    """Describe what was shown about a tier's first steps."""
    if not proof:
        return ["not proved"]
    if "failed" in proof:
        return ["another experiment"]
    exact = any(row["format"] == "float64" for row in proof["formats"])
    own = [row for row in proof["formats"] if row["format"] != "float64"]
    lines = [
        f"in {r['format']} within {f.distance(r['distance'])}, tolerated {f.distance(r['tolerance'])}" for r in own
    ]
    return ["the same in float64" if exact else "the same", *lines]


def error_cells(results: Results, tier: str) -> Cells:
    """Return a tier's errors, with their intervals or with the changes from the baseline."""
    found = {}
    for dataset in results.datasets:
        for learner, k in results.decisive:
            means, changes = (results.cell(table, dataset, learner, k) for table in ("tiers", "changes"))
            text = "" if found else "not trained"
            if tier in results.tiers:
                mean = means.loc[tier, ["mean_deg", "low_deg", "high_deg"]]
                text = with_change(mean, changes.loc[tier] if tier in changes.index else None)
            found[f"{title_of(dataset)} error", f"k = {k}" if k else "unadapted"] = text
    return found


def with_change(mean: pd.Series, change: pd.Series | None) -> str:
    """Format a mean error with its interval or, if it is compared with the baseline's, with the change."""
    detail = f.interval(*mean.iloc[1:])
    if change is not None:
        interval = f.signed_interval(change["low_deg"], change["high_deg"])
        detail = "no change" if change["identical"] else f"{f.change(change['difference_deg'])}\n{interval}"
    return f"{f.degrees(mean.iloc[0])}\n{detail}"


def score_cells(results: Results, tier: str) -> Cells:
    """Return a tier's score and its change, with intervals."""
    group, scores, found = results.summary["about"]["score"], results.tables["scores"], {}
    for name, title, form, absent in (("score", "at the end", "", "not trained"), ("change", "change", "+", "")):
        row = scores.loc[tier] if tier in scores.index else {}
        mean, low, high = (row.get(f"{name}_{part}", np.nan) for part in ("mean", "low", "high"))
        found[group, title] = f"{mean:{form}.2f}\n{f.interval(low, high)}" if mean == mean else absent
    return found


def tiers_in_full(results: Results) -> pd.DataFrame:
    """Return the tiers with all digits, for other programs: docs/reference/formats.md."""
    table = pd.DataFrame(results.rows).rename(columns={"same_step": "idle"}).set_index("tier")
    table = table.rename(columns={f"speed_{end}": f"speedup_{end}" for end in ("ratio", "low", "high")})
    table["changed"] = ["; ".join(f"{s['switch']} {s['wanted']}" for s in changed) for changed in table["changed"]]
    table["not_compared"] = [proof.get("not_compared", "") for proof in table.pop("proof")]
    return table.join(results.tables["scores"]) if "scores" in results.tables else table


def time_table(results: Results) -> list[dict[str, Any]]:
    """Tabulate each tier's time to the baseline's final error, averaged over seeds; ratios use the geometric mean."""
    rows = []
    for tier, times in results.tables["convergence"].groupby("tier", sort=False):
        means = times[["pairs", "rate_seconds"]].mean(skipna=False)  # nan unless all seeds reach it
        ratio = np.exp(np.log(times["rate_ratio"]).mean(skipna=False))
        rows.append({"tier": tier, "reached": times["reached"].sum(), "seeds": len(times), "ratio": ratio, **means})
    return rows


def redirection_table(results: Results) -> list[dict[str, str]]:
    """Tabulate errors, gains and similarity of redirected strips of every tier, and of the first tier's controls."""
    numbers = results.tables["redirected"].set_index(["dataset", "tier", "variant", "number"]).sort_index()
    changes = results.tables["redirection_changes"].set_index(["dataset", "tier", "factor"]).sort_index()
    shown = [(tier, REDIRECTED, tier) for tier in results.tiers]
    shown += [(results.tiers[0], variant, title) for variant, title in CONTROLS.items()]
    rows = []
    for dataset in results.datasets:
        for tier, variant, title in shown:
            own = numbers.loc[(dataset, tier, variant)][["mean", "low", "high"]]
            row = {"Data set": title_of(dataset), "Strips": title}
            for factor in FACTORS:
                compared = variant == REDIRECTED and (dataset, tier, factor) in changes.index
                change = changes.loc[(dataset, tier, factor)] if compared else None
                row[f"{factor} error".capitalize()] = with_change(own.loc[f"{factor}_error_deg"], change)
            for name in (f"{factor}_gain" for factor in FACTORS):
                gain = own.loc[name] if name in own.index else None
                row[name.replace("_", " ").capitalize()] = (
                    f.DASH if gain is None else f"{gain['mean']:.2f}\n{f.interval(*gain[1:])}"
                )
            for name in SIMILARITIES:
                row[name.replace("_", "-").upper()] = f.digits(own["mean"].get(name))
            rows.append(row)
    return rows


def count_people(store: StripStore) -> pd.DataFrame:
    """Count the people and strips of a store in each split: dataset, split, people, strips."""
    rows = [(store.dataset, person.split, len(person.labels)) for person in store.people]
    groups = pd.DataFrame(rows, columns=["dataset", "split", "strips"]).groupby(["dataset", "split"], sort=False)
    return groups["strips"].agg(people="size", strips="sum").reset_index()


def data_table(results: Results, paths: ResultPaths) -> list[dict[str, Any]]:
    """Tabulate people and strips of every split, and the rejected frames with their most frequent reasons."""
    rows = []
    for dataset in results.datasets:
        rejects = read_csv(paths.root / f"data/{dataset}_rejects.csv").dropna(subset="file_name")  # not whole people
        reasons = rejects["reason"].str.replace(r"\d[\w.]*", "…", regex=True).value_counts().head(MOST_REASONS)
        text = "\n".join([f.count(len(rejects)), *(f"{frames:,}: {reason}" for reason, frames in reasons.items())])
        for split in count_people(read_store(paths.store(dataset))).to_dict("records"):
            rows.append(split | {"rejects": text})
            text = ""
    return rows
