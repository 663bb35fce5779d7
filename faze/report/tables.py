"""Tables of the page with a group of columns for each data set.

Each is a list of rows: texts by (group, title) of the column. A text's first line is the value; the others are details.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from faze.base.result_paths import ResultPaths
from faze.data.strips import read_store
from faze.evaluation.redirected_angles import FACTORS, REDIRECTED, SIMILARITIES
from faze.evaluation.wording import peak, title_of
from faze.report import formats as f
from faze.report.results import Results, count_people, read_csv

MOST_REASONS = 10  # of rejected frames
Row = dict[tuple[str, str], str]
CONTROLS = {"not_turned": "not turned", "real": "real strip"}  # of redirection; those of the first tier are shown
SIMILARITY_TITLES = dict(zip(SIMILARITIES, ("L1", "PSNR, dB", "SSIM", "MS-SSIM"), strict=True))


def tabulate(results: Results, paths: ResultPaths) -> dict[str, list[dict]]:
    """Return the rows of every table by name; those of trainings are missing if nothing was trained."""
    found = {"tiers": tier_table(results), "proofs": [], "switches": []}
    for row in results.rows:
        found["proofs"] += [{"tier": row["tier"]} | compared for compared in row["proof"].get("formats", ())]
        found["switches"] += [{"tier": row["tier"]} | switch for switch in row["changed"]]
    if results.datasets:
        names = ("changes", "learners", "person_variance")
        found |= {name: results.tables[name].to_dict("records") for name in names}
        largest = results.summary["largest_k"]
        found["learners"] = [r for r in found["learners"] if (r["tier"], r["k"]) == (results.tiers[0], largest)]
        found |= {"times": time_table(results), "pixels": pixel_table(results), "turned": turned_table(results)}
        found |= {"similarity": similarity_table(results), "shots": shot_table(results)}
        found["data"] = data_table(results, paths)
    return found


def tier_table(results: Results) -> list[Row]:
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
    within = [row for row in proof["formats"] if row["format"] != "float64"]
    own = [f"in {r['format']} within {f.small(r['distance'])} (tolerated: {f.small(r['tolerance'])})" for r in within]
    return ["the same in float64" if exact else "the same", *own]


def error_cells(results: Results, tier: str) -> Row:
    """Return a tier's errors, with their intervals or with the changes from the baseline."""
    found = {}
    for dataset in results.datasets:
        for learner, k in results.decisive:
            means, compared = (results.cell(table, dataset, learner, k) for table in ("tiers", "changes"))
            text = "" if found else "not trained"
            if tier in results.tiers:
                change = compared.loc[tier] if tier in compared.index else None
                text = with_change(means.loc[tier, ["mean_deg", "low_deg", "high_deg"]], change)
            found[f"{title_of(dataset)} error", f"k = {k}" if k else "unadapted"] = text
    return found


def with_change(mean: Sequence[float], change: pd.Series | None) -> str:
    """Format a mean error with its interval or, if it is compared with the baseline's, with the change."""
    if change is None:
        return f"{f.degrees(mean.iloc[0])}\n{f.interval(*mean.iloc[1:])}"
    interval = f.signed_interval(change["low_deg"], change["high_deg"])
    detail = "no change" if change["identical"] else f"{f.change(change['difference_deg'])}\n{interval}"
    return f"{f.degrees(mean.iloc[0])}\n{detail}"


def score_cells(results: Results, tier: str) -> Row:
    """Return a tier's score and its change, with intervals."""
    group, found, table = results.summary["about"]["score"], {}, results.tables["scores"]
    for name, title, absent in (("score", "at the end", "not trained"), ("change", "change", "")):
        found[group, title] = absent
        if tier in table.index and (tier, name) != (table.index[0], "change"):
            mean, low, high = table.loc[tier, [f"{name}_{part}" for part in ("mean", "low", "high")]]
            found[group, title] = f"{mean:{'+' if name == 'change' else ''}.2f}\n{f.interval(low, high)}"
    return found


def time_table(results: Results) -> list[dict[str, Any]]:
    """Tabulate each tier's time to the baseline's final error, averaged over seeds; ratios use the geometric mean."""
    rows = []
    for tier, times in results.tables["convergence"].groupby("tier", sort=False):
        means = times[["pairs", "rate_seconds"]].mean(skipna=False)  # nan unless all seeds reach it
        ratio = np.exp(np.log(times["rate_ratio"]).mean(skipna=False))
        rows.append({"tier": tier, "reached": times["reached"].sum(), "seeds": len(times), "ratio": ratio, **means})
    return rows


def pixel_table(results: Results) -> list[Row]:
    """Tabulate the errors of the network and of the pixel checks, averaged over seeds."""
    checks, rows = results.tables["pixel_checks"].groupby(["tier", "dataset", "check"]), []
    means = checks[["error_deg", "unadapted_deg", "ratio"]].mean()
    for tier in results.tiers:
        row = {("", "Tier"): tier}
        for dataset in results.datasets:
            blind, shuffled = (means.loc[(tier, dataset, check)] for check in ("pixel_blind", "permuted"))
            row[title_of(dataset), "network, k = 0"] = f.degrees(blind["unadapted_deg"])
            for title, check in (("head pose only", blind), ("shuffled", shuffled)):
                row[title_of(dataset), title] = f"{f.degrees(check['error_deg'])} ({f.ratio(check['ratio'])})"
        rows.append(row)
    return rows


def turned_table(results: Results) -> list[Row]:
    """Tabulate errors and gains of redirected strips of every tier, and of the first tier's controls."""
    numbers = results.tables["redirected"].set_index(["tier", "dataset", "variant", "number"]).sort_index()
    changes = results.tables["redirection_changes"].set_index(["tier", "dataset", "factor"])
    shown = [(tier, REDIRECTED, tier) for tier in results.tiers]
    shown += [(results.tiers[0], variant, title) for variant, title in CONTROLS.items()]
    rows = []
    for tier, variant, title in shown:
        row = {("", "Tier"): title}
        for dataset in results.datasets:
            of_variant, group = numbers.loc[(tier, dataset, variant)], title_of(dataset)
            for factor in FACTORS:
                key = (tier, dataset, factor)
                change = changes.loc[key] if variant == REDIRECTED and key in changes.index else None
                row[group, f"{factor} error"] = with_change(of_variant.loc[f"{factor}_error_deg", ["mean", "low", "high"]], change)
            for factor in FACTORS:
                gain = of_variant.loc[f"{factor}_gain"] if f"{factor}_gain" in of_variant.index else None
                text = f.DASH if gain is None else f"{f.number(gain['mean'])}\n{f.interval(gain['low'], gain['high'])}"
                row[group, f"{factor} gain"] = text
        rows.append(row)
    return rows


def similarity_table(results: Results) -> list[Row]:
    """Tabulate the similarity of the first tier's redirected strips, and of strips not turned, to their targets."""
    means = results.tables["redirected"].set_index(["tier", "variant", "dataset", "number"])["mean"][results.tiers[0]]
    rows = []
    for variant, title in ((REDIRECTED, "redirected"), ("not_turned", "not turned")):
        row = {("", "Strips"): title}
        for dataset in results.datasets:
            for name, column in SIMILARITY_TITLES.items():
                row[title_of(dataset), column] = f.digits(means[variant, dataset, name])
        rows.append(row)
    return rows


def shot_table(results: Results) -> list[Row]:
    """Tabulate the baseline's errors at every k, per data set and learner."""
    rows = []
    for dataset in results.datasets:
        for learner in results.learners:
            row = {("", "Data set"): title_of(dataset), ("", "Learner"): learner}
            for cell in results.curve(results.tiers[0], dataset, learner).itertuples():
                less = f" ({f.percent(cell.reduction)})" if cell.k else ""
                text = f"{f.degrees(cell.mean_deg)}{less}\n{f.interval(cell.low_deg, cell.high_deg)}"
                row["Calibration samples", f"k = {cell.k}"] = text
            rows.append(row)
    return rows


def data_table(results: Results, paths: ResultPaths) -> list[dict[str, Any]]:
    """Tabulate people and strips of every split, and the rejected frames with their most frequent reasons."""
    rows = []
    for dataset in results.datasets:
        rejects = read_csv(paths.root / f"data/{dataset}_rejects.csv").dropna(subset="file_name")  # not whole people
        reasons = rejects["reason"].str.replace(r"\d[\w.]*", "…", regex=True).value_counts().head(MOST_REASONS)
        text = "\n".join([f.count(len(rejects)), *(f"{frames:,}: {reason}" for reason, frames in reasons.items())])
        for split in count_people(read_store(paths.store(dataset))).to_dict("records"):
            rows.append(split | {"title": title_of(dataset) if text else "", "rejects": text})
            text = ""
    return rows


def tiers_in_full(results: Results) -> pd.DataFrame:
    """Return the table of tiers with all digits, for other programs: docs/reference/formats.md."""
    table = pd.DataFrame(results.rows).rename(columns={"same_step": "idle"}).set_index("tier")
    table = table.rename(columns={f"speed_{end}": f"speedup_{end}" for end in ("ratio", "low", "high")})
    table["changed"] = ["; ".join(f"{s['switch']} {s['wanted']}" for s in changed) for changed in table["changed"]]
    table["not_compared"] = [proof.get("not_compared", "") for proof in table.pop("proof")]
    if "scores" in results.tables:
        table = table.join(results.tables["scores"])
    for dataset in results.datasets:
        for learner, k in results.decisive:
            of_cell = results.cell("tiers", dataset, learner, k)[["mean_deg"]].add_prefix(f"{dataset}_k{k}_")
            columns = ["difference_deg", "low_deg", "high_deg", "tost_p", "verdict"]
            changes = results.cell("changes", dataset, learner, k)[columns].add_prefix(f"{dataset}_k{k}_")
            table = table.join(of_cell).join(changes)
    return table
