"""The report page: the rows of its tables and its template."""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from faze.evaluation import UNADAPTED
from faze.evaluation.redirected_angles import FACTORS, REDIRECTED, SIMILARITIES
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.switches import tier_changes
from faze.report import formats
from faze.report.figures import TALK, thinned
from faze.report.results import Results

PHASES = ("data", "copy", "forward", "backward", "optimizer", "graph")  # of a step, if measured
# Tiers of the talk that `run.tiers: auto` leaves out on a CPU.
NOT_ON_CPUS = {
    "amp": "CPUs without fp16 kernels compute it many times more slowly",
    "fused_sgd": "updating the weights takes 3 % of a step on a CPU",
    "autotune": "cuDNN, whose algorithms it times, runs on GPUs only",
}
MOST_SHOTS = 7  # columns of the table of errors against k
CONTROLS = {
    "not_turned": "not turned",
    "real": "real strip",
}  # of redirection -> label; those of the first tier are shown

Rows = list[dict[str, Any]]


def render(
    *,
    title: str,
    note: str,
    summary: Mapping[str, Any],
    results: Results,
    figures: Mapping[str, str],
    walks: Sequence[Mapping[str, Any]],
    data: Sequence[Mapping[str, Any]],
) -> str:
    """Render the page as HTML.

    Args:
        title: title of the page.
        note: text above the verdict; may be empty.
        summary: summary of the evaluation.
        results: tables of the evaluation.
        figures: data URI of each figure.
        walks: from `media.collect_walks`.
        data: from `data_counts.describe_data`, for each data set.
    """
    learner_rows = results.tables["learners"]
    learner_rows = learner_rows[(learner_rows["tier"] == results.tiers[0]) & (learner_rows["k"] == results.largest_k)]
    performance, machine = results.tables["performance"], summary["machine"] or summary["training_machine"]
    return formats.load_template("report.html.j2").render(
        title=title,
        note=note,
        summary=summary,
        results=results,
        figures=figures,
        walks=walks,
        data=data,
        paired_seeds=len(summary["seeds"]) >= SEEDS_FOR_A_TIER,  # bootstrap intervals are over seeds from two on
        colors=results.colors,
        trained=datetime.date.fromtimestamp(summary["began"]).isoformat(),
        machine=formats.facts(machine),
        device=formats.machine(machine),
        phases=[phase for phase in PHASES if f"{phase}_ms" in performance],
        roofline=bool(performance["share_of_matmul_roof"].notna().all()),
        talk=TALK,
        absent={} if "gpus" in machine else {t: why for t, why in NOT_ON_CPUS.items() if t not in results.measured},
        rows=tier_rows(summary, results),
        shots=shot_rows(results),
        every_k=results.tables["tiers"]["k"].nunique() <= MOST_SHOTS,
        learner_rows=learner_rows.to_dict("records"),
        pixel_checks=pixel_check_rows(results),
        person_variance=results.tables["person_variance"].to_dict("records"),
        turned=turned_rows(results),
        similarity=similarity_rows(results),
        changes=results.tables["changes"].astype({"verdict": object}).fillna({"verdict": ""}).to_dict("records"),
        # One in so many comparisons of equal tiers has ranges that do not overlap.
        one_in=lambda rounds: math.comb(2 * rounds, rounds) // 2,
        times=time_rows(results),
    )


def tier_rows(summary: Mapping[str, Any], results: Results) -> Rows:
    """Return the rows of the tier table: speed, memory, switches and, of trained tiers, errors and verdict."""
    performance = results.tables["performance"].set_index("tier").astype({"same_step": object})
    performance = performance.fillna({"same_step": ""})
    changes = tier_changes(summary["switches"])
    return [
        {
            "tier": tier,
            "first": tier == results.tiers[0],
            "speed": performance.loc[tier].to_dict(),
            "on": changes[tier][0],
            "switches": changes[tier][1],
            "errors": _error_cells(results, tier) if tier in results.tiers else [],
            "verdict": summary["tier_verdicts"].get(tier, ""),
        }
        for tier in results.measured
    ]


def conditions(results: Results) -> list[tuple[str, str, int]]:
    """Return the data set, learner and k of each error in the tier table."""
    cells = ((UNADAPTED, 0), (results.learners[0], results.largest_k))
    return [(dataset, learner, k) for dataset in results.datasets for learner, k in cells]


def _error_cells(results: Results, tier: str) -> Rows:
    return [_error_cell(results, tier, *condition) for condition in conditions(results)]


def _error_cell(results: Results, tier: str, dataset: str, learner: str, k: int) -> dict[str, Any]:
    cell = {"dataset": dataset, "k": k, **results.cell("tiers", dataset, learner, k).loc[tier].to_dict()}
    changes = results.cell("changes", dataset, learner, k)
    return cell | {"change": changes.loc[tier].to_dict() if tier in changes.index else None}


def tier_table(summary: Mapping[str, Any], results: Results) -> pd.DataFrame:
    """Return the tier table with full precision, for other programs."""
    table = results.tables["performance"].set_index("tier").reindex(results.measured)
    for dataset, learner, k in conditions(results):
        name = f"{dataset}_k{k}"
        table[f"{name}_deg"] = results.cell("tiers", dataset, learner, k)["mean_deg"]
        changes = results.cell("changes", dataset, learner, k).reindex(table.index)
        for column in ("difference_deg", "low_deg", "high_deg", "tost_p", "verdict"):
            table[f"{name}_{column}"] = changes[column]
    table["verdict"] = pd.Series(summary["tier_verdicts"], dtype=object).reindex(table.index)
    return table.reset_index()


def shot_rows(results: Results) -> Rows:
    """Return the baseline's errors at up to MOST_SHOTS values of k, per data set and learner."""
    shown = thinned(sorted(results.tables["tiers"]["k"].unique()), MOST_SHOTS)
    curves = {
        (d, name): results.curve(results.tiers[0], d, name) for d in results.datasets for name in results.learners
    }
    return [
        {"dataset": dataset, "learner": learner, "cells": curve[curve["k"].isin(shown)].to_dict("records")}
        for (dataset, learner), curve in curves.items()
    ]


def pixel_check_rows(results: Results) -> Rows:
    """Return the errors of the network and of the pixel checks, averaged over seeds, per tier and data set."""
    table = results.tables["pixel_checks"]
    means = table.groupby(["tier", "dataset", "check"])[["error_deg", "unadapted_deg", "ratio"]].mean()
    return [
        {"tier": tier, "cells": [means.loc[(tier, dataset)].to_dict("index") for dataset in results.datasets]}
        for tier in results.tiers
    ]


def turned_rows(results: Results) -> Rows:
    """Return the errors and gains of redirected strips per tier, followed by the first tier's controls."""
    numbers = _numbers(results)
    changes = results.tables["redirection_changes"].set_index(["tier", "dataset", "factor"])

    def cell(tier: str, variant: str, dataset: str) -> dict[str, Any]:
        found = {f: numbers.get((tier, dataset, variant, f"{f}_error_deg")) for f in FACTORS}
        found |= {f"{f}_gain": numbers.get((tier, dataset, variant, f"{f}_gain")) for f in FACTORS}
        if variant == REDIRECTED:
            keys = {f: (tier, dataset, f) for f in FACTORS}
            found |= {f"{f}_change": changes.loc[key].to_dict() for f, key in keys.items() if key in changes.index}
        return found

    of_tiers = [{"tier": tier, "variant": REDIRECTED} for tier in results.tiers]
    of_controls = [{"label": label, "variant": variant} for variant, label in CONTROLS.items()]
    return [
        row | {"cells": [cell(row.get("tier", results.tiers[0]), row["variant"], d) for d in results.datasets]}
        for row in [*of_tiers, *of_controls]
    ]


def similarity_rows(results: Results) -> Rows:
    """Return the similarity of redirected strips and controls to their target strips, for the first tier."""
    numbers, tier = _numbers(results), results.tiers[0]
    return [
        {
            "label": label,
            "cells": [[numbers.get((tier, d, v, name)) for name in SIMILARITIES] for d in results.datasets],
        }
        for v, label in {REDIRECTED: "redirected", "not_turned": CONTROLS["not_turned"]}.items()
    ]


def _numbers(results: Results) -> dict[tuple[str, ...], dict[str, float]]:
    """Return mean, low and high of redirected strips, keyed by tier, data set, variant and name of the measure."""
    rows = results.tables["redirected"].set_index(["tier", "dataset", "variant", "number"])
    return rows[["mean", "low", "high"]].to_dict("index")


def time_rows(results: Results) -> Rows:
    """Return each tier's time to the baseline's final error, averaged over seeds; ratios use the geometric mean."""
    rows = []
    for tier, times in results.tables["convergence"].groupby("tier", sort=False):
        reached = times[times["reached"]]
        row = {"tier": tier, "reached": len(reached), "seeds": len(times)}
        row |= reached[["pairs", "rate_seconds"]].mean().to_dict()
        rows.append(row | {"rate_ratio": np.exp(np.log(reached["rate_ratio"]).mean())})
    return rows
