"""The report page: a template filled with tables, figures, pictures and videos. Table cells begin with their value."""

import base64
import datetime
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from faze.base.result_paths import ResultPaths
from faze.data.strips import RENDERED, StripStore, read_store
from faze.evaluation import wording
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.wording import title_of
from faze.report import formats as f
from faze.report.results import Results, read_csv

WALK_VIDEOS = 8  # embedded per page; the rest remain in their folder
PICTURE_PX = 2400  # largest width of a picture: twice the page's width, for high-resolution screens
MOST_REASONS = 10  # for rejecting frames; rarer reasons are not shown
Cells = dict[tuple[str, str], str]  # keyed by the column's (group, title)


def render(results: Results, paths: ResultPaths, title: str, note: str, drawn: Mapping[str, str]) -> str:
    """Return the page as HTML; `drawn` contains the data URI of each figure."""
    loader, summary = jinja2.PackageLoader("faze.report", "."), results.summary
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= vars(wording) | vars(f) | {"with_change": with_change}
    return environment.get_template("page.html.j2").render(
        results=results,
        figures=drawn,
        title=title,
        note=note,
        tiers=tier_table(results),
        walks=collect_walks(paths, results.tiers, summary["seeds"][0]) if results.datasets else [],
        data=data_table(results, paths),
        rendered=[title_of(name) for name in results.datasets if summary["pixel_sources"][name] == RENDERED],
        began=datetime.date.fromtimestamp(summary["began"]).isoformat() if "began" in summary else "",
        enough_seeds=SEEDS_FOR_A_TIER,
        one_in=lambda rounds: math.comb(2 * rounds, rounds) // 2,  # 1 in this many identical tiers has disjoint ranges
    )


def tier_table(results: Results) -> list[Cells]:
    """Tabulate each tier's changes, proof, speed and memory; with trained tiers, add errors or scores, and verdicts."""
    found, verdicts = [], results.summary.get("tier_verdicts", {})
    for row in results.rows:
        added = ", ".join(f"{s['switch']} {s['wanted']}" for s in row["changed"] if not s["reason"])
        changed = f"{row['before']} + {added.replace(' true', '')}" if added else ""
        idle = ", ".join(switch["switch"] for switch in row["changed"] if switch["reason"])
        speed, memory = [f.ratio(row["speed_ratio"])], [row["memory_change"]]
        speed += [f.interval(row["speed_low"], row["speed_high"])] * bool(row["before"])
        if not row["same"]:
            speed = memory = ["not compared"]
        low, high = row["peak_gib_low"], row["peak_gib_high"]
        cells = {
            "Tier": [row["tier"], changed, f"inactive: {idle}" if idle else ""],
            "Same experiment": describe_proof(row["proof"]) if row["before"] else ["reference"],
            "Speed": [*speed, f.milliseconds(row["step_ms"]), wording.parallelism(row)],
            "Peak memory": [*memory, f"{row['peak_gib']:.3f} GiB", f"{low:.3f} to {high:.3f}" if low < high else ""],
        }
        shown = {("", title): "\n".join(filter(None, lines)) for title, lines in cells.items()}
        if results.tables:
            shown |= error_cells(results, row["tier"]) if results.datasets else score_cells(results, row["tier"])
        found.append(shown | ({("", "Verdict"): verdicts.get(row["tier"], "")} if verdicts else {}))
    for tier, network in results.summary.get("networks", {}).items():
        shown = dict.fromkeys(found[0], "") | {
            ("", "Tier"): f"{tier}\n{network}",
            ("", "Same experiment"): "not trained",
        }
        found.append(shown | error_cells(results, tier))
    return found


def describe_proof(proof: Mapping[str, Any]) -> list[str]:
    """Describe the outcome of a tier's proof, which compares its first steps with the baseline's."""
    if not proof:
        return ["not proved"]
    if "failed" in proof:
        return ["another experiment" if proof["number"] is not None else "not proved"]
    formats = {row["format"]: [f.distance(row[name]) for name in ("distance", "tolerance")] for row in proof["formats"]}
    main = "the same in float64" if formats.pop("float64", None) else "the same"
    lines = [f"in {name} within {found} (tolerated: {most})" for name, (found, most) in formats.items()]
    left_out = proof.get("not_compared")
    return [main, *lines, f"not compared: {left_out}" if left_out else ""]


def error_cells(results: Results, tier: str) -> Cells:
    """Return a tier's errors, with their intervals or their changes from the baseline."""
    found = {}
    for dataset in results.datasets:
        for decisive, k in results.decisive:
            learner = results.first_learner(tier) if k else decisive
            means, changes = (results.cell(table, dataset, learner, k) for table in ("tiers", "changes"))
            text = "" if found else "not trained"
            if tier in means.index:
                mean = list(means.loc[tier, ["mean_deg", "low_deg", "high_deg"]])
                text = with_change(mean, changes.loc[tier] if tier in changes.index else None)
            if learner != decisive:
                text += f"\n{learner}"
            found[f"{title_of(dataset)} error", f"k = {k}" if k else "unadapted"] = text
    return found


def with_change(mean: Sequence[float], change: pd.Series | None) -> str:
    """Format an error (mean, low, high) with its change from the baseline, if given, or else with its interval."""
    detail = f.interval(*mean[1:])
    if change is not None:
        interval = f.signed_interval(change["low_deg"], change["high_deg"])
        detail = "no change" if change["identical"] else f"{f.change(change['difference_deg'])}\n{interval}"
    return f"{f.degrees(mean[0])}\n{detail}"


def score_cells(results: Results, tier: str) -> Cells:
    """Return a tier's score and its change, with intervals."""
    group, scores, found = results.summary["about"]["score"], results.tables["scores"], {}
    for name, title, form, absent in (("score", "at the end", "", "not trained"), ("change", "change", "+", "")):
        row = scores.loc[tier] if tier in scores.index else {}
        mean, low, high = (row.get(f"{name}_{part}", np.nan) for part in ("mean", "low", "high"))
        found[group, title] = f"{mean:{form}.2f}\n{f.interval(low, high)}" if mean == mean else absent
    return found


def tiers_in_full(results: Results) -> pd.DataFrame:
    """Return the tier table as plain numbers for other programs (see docs/reference/formats.md)."""
    table = pd.DataFrame(results.rows).rename(columns={"same_step": "idle"}).set_index("tier")
    table = table.rename(columns={f"speed_{end}": f"speedup_{end}" for end in ("ratio", "low", "high")})
    table["changed"] = ["; ".join(f"{s['switch']} {s['wanted']}" for s in changed) for changed in table["changed"]]
    table["not_compared"] = [proof.get("not_compared", "") for proof in table.pop("proof")]
    return table.join(results.tables["scores"]) if "scores" in results.tables else table


def count_people(store: StripStore) -> pd.DataFrame:
    """Count the people and strips in each split of a store; the columns are dataset, split, people and strips."""
    rows = [(store.dataset, person.split, len(person.labels)) for person in store.people]
    groups = pd.DataFrame(rows, columns=["dataset", "split", "strips"]).groupby(["dataset", "split"], sort=False)
    return groups["strips"].agg(people="size", strips="sum").reset_index()


def data_table(results: Results, paths: ResultPaths) -> list[dict[str, Any]]:
    """Tabulate the people and strips in every split, and the rejected frames with their most frequent reasons."""
    rows = []
    for dataset in results.datasets:
        rejects = read_csv(paths.root / f"data/{dataset}_rejects.csv").dropna(subset="file_name")  # frames only
        reasons = rejects["reason"].str.replace(r"\d[\w.]*", "…", regex=True).value_counts().head(MOST_REASONS)
        text = "\n".join([f.count(len(rejects)), *(f"{frames:,}: {reason}" for reason, frames in reasons.items())])
        for split in count_people(read_store(paths.store(dataset))).to_dict("records"):
            rows.append(split | {"rejects": text})
            text = ""
    return rows


def save_figures(drawn: Mapping[str, Figure], folder: Path) -> dict[str, str]:
    """Save every figure as an SVG file; return each figure's data URI."""
    folder.mkdir()
    for name, figure in drawn.items():
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return {name: embed((folder / f"{name}.svg").read_bytes(), "image/svg+xml") for name in drawn}


def embed(content: bytes, kind: str) -> str:
    """Return a file's content as a data URI with the given MIME type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def embed_picture(path: Path) -> str:
    """Return a picture as the data URI of a JPEG."""
    buffer = io.BytesIO()
    with Image.open(path) as image:
        image.thumbnail((PICTURE_PX, image.height), Image.Resampling.LANCZOS)
        image.convert("RGB").save(buffer, "jpeg", quality=88, optimize=True)
    return embed(buffer.getvalue(), "image/jpeg")


def collect_walks(paths: ResultPaths, tiers: Sequence[str], seed: int) -> list[dict[str, Any]]:
    """Collect the contact sheet of every tier, last tier first, and videos of the last tier only."""
    walks = []
    for tier in reversed(tiers):
        folder, videos = paths.walks(tier, seed), []
        files = sorted(folder.glob("*.mp4"))
        for path in files[:: math.ceil(len(files) / WALK_VIDEOS) or 1] if not walks else ():
            dataset, _, person = path.stem.partition("_")
            videos.append((f"{title_of(dataset)} {person}", embed(path.read_bytes(), "video/mp4")))
        about = {"tier": tier, "folder": folder.relative_to(paths.root), "total": len(files), "videos": videos}
        walks.append(about | {"sheet": embed_picture(folder / "contact_sheet.png")})
    return walks
