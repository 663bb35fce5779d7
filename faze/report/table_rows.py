"""The rows of the page's tables, out of the tables of the evaluation."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from faze.base.run_log import changed_switches
from faze.evaluation import UNADAPTED
from faze.evaluation.learner_pairs import crossings
from faze.evaluation.redirected_angles import FACTORS, LIKENESS
from faze.report import formats
from faze.report.results import Results
from faze.report.shot_figures import thinned

REDIRECTION_CONTROLS = {
    "still": "not turned",
    "other": "another real strip of the person",
    "oracle": "the person rendered anew",
    "real": "the real strip",
}
MOST_SHOTS = 7  # columns of the table of errors against k


def tier_rows(summary: Mapping[str, Any], results: Results) -> list[dict[str, Any]]:
    """Make the rows of the tier table: speed, memory, switches, errors with their change, verdict."""
    performance = results.tables["performance"].set_index("tier")
    switches = summary["switches"]
    return [
        {
            "tier": tier,
            "first": tier == results.tiers[0],
            "speed": performance.loc[tier].to_dict(),
            "same_step": "" if pd.isna(performance.loc[tier, "same_step"]) else performance.loc[tier, "same_step"],
            "switches": changed_switches(switches[tier], switches.get(before, ())),
            "same_as": summary.get("same_steps", {}).get(tier, ""),  # older evaluations do not say
            "errors": [_error_cell(results, tier, *key) for key in conditions(results)],
            "verdict": summary["tier_verdicts"].get(tier, ""),
        }
        for before, tier in itertools.pairwise([None, *results.tiers])
    ]


def conditions(results: Results) -> list[tuple[str, str, int]]:
    """List the errors that the tier table shows: data set, learner and k."""
    cells = ((UNADAPTED, 0), (results.learners[0], results.largest_k))
    return [(dataset, learner, k) for dataset in results.datasets for learner, k in cells]


def _error_cell(results: Results, tier: str, dataset: str, learner: str, k: int) -> dict[str, Any]:
    cell = {"dataset": dataset, "k": k, **results.cell("tiers", dataset, learner, k).loc[tier].to_dict()}
    changes = results.cell("changes", dataset, learner, k)
    return cell | {"change": changes.loc[tier].to_dict() if tier in changes.index else None}


def shot_rows(results: Results) -> list[dict[str, Any]]:
    """Make the table of the baseline's errors against k (of many k some), per data set and learner."""
    shown = thinned(sorted(results.tables["tiers"]["k"].unique()), MOST_SHOTS)
    curves = {
        (d, name): results.curve(results.tiers[0], d, name) for d in results.datasets for name in results.learners
    }
    return [
        {"dataset": dataset, "learner": learner, "cells": curve[curve["k"].isin(shown)].to_dict("records")}
        for (dataset, learner), curve in curves.items()
    ]


def learner_rows(results: Results) -> list[dict[str, Any]]:
    """List every pair of learners of the baseline at the largest k, with the k between which their curves cross."""
    pairs = results.tables["learners"]
    pairs = pairs[pairs["tier"] == results.tiers[0]]
    crossed = {
        (dataset, c.learner, c.other): f"k = {c.below} to {c.above}" + ("" if c.shown else ", not shown")
        for dataset in results.datasets
        for c in crossings(pairs[pairs["dataset"] == dataset])
    }
    return [
        row | {"crosses": crossed.get((row["dataset"], row["learner"], row["other"]), formats.DASH)}
        for row in pairs[pairs["k"] == results.largest_k].to_dict("records")
    ]


def pixel_check_rows(results: Results) -> list[dict[str, Any]]:
    """Average the errors of the network and of the pixel-blind predictors over seeds, per tier and data set."""
    table = results.tables["pixel_checks"]
    means = table.groupby(["tier", "dataset", "check"])[["error_deg", "unadapted_deg", "ratio"]].mean()
    return [
        {"tier": tier, "cells": [means.loc[(tier, dataset)].to_dict("index") for dataset in results.datasets]}
        for tier in results.tiers
    ]


def redirection_rows(results: Results) -> list[dict[str, Any]]:
    """Average the numbers of redirected strips over seeds, per tier; at the end stands what they are held against."""
    means = results.tables["redirection"].groupby(["tier", "dataset"]).mean()
    rows = [
        {"tier": tier, "cells": [means.loc[(tier, dataset)].to_dict() for dataset in results.datasets]}
        for tier in results.tiers
    ]
    of_data = [means.loc[(results.tiers[0], dataset)] for dataset in results.datasets]
    one_face = [{"l1": d["all_mean_l1"], "spread": 0.0, "right_person": 1 / d["people"]} for d in of_data]
    own_face = [{"l1": d["own_mean_l1"], "spread": d["real_spread"]} for d in of_data]
    real = [{"l1": 0.0, "spread": d["real_spread"], "right_person": d["real_right_person"]} for d in of_data]
    return [
        *rows,
        {"words": "the mean strip of all people, whoever it is", "cells": one_face},
        {"words": "the mean of the person’s other strips", "cells": own_face},
        {"words": "the real strip", "cells": real},
    ]


def turned_rows(results: Results) -> list[dict[str, Any]]:
    """List errors and gains of redirected strips, per tier; at the end stand the first tier's controls."""
    errors, gains = (_numbers(results, name) for name in ("redirected", "turned"))
    changes = results.tables["redirection_changes"].set_index(["tier", "dataset", "factor"])

    def cell(tier: str, variant: str, dataset: str) -> dict[str, Any]:
        found = {f: errors.get((tier, dataset, variant, f"{f}_error_deg")) for f in FACTORS}
        of_variant = "" if variant == "both" else f"_{variant}"
        found |= {f"{f}_gain": gains.get((tier, dataset, f"{f}_gain{of_variant}")) for f in FACTORS}
        if variant == "both":
            keys = {f: (tier, dataset, f) for f in FACTORS}
            found |= {f"{f}_change": changes.loc[key].to_dict() for f, key in keys.items() if key in changes.index}
        return found

    of_tiers = [{"tier": tier, "variant": "both"} for tier in results.tiers]
    of_controls = [{"words": words, "variant": variant} for variant, words in REDIRECTION_CONTROLS.items()]
    rows = [
        row | {"cells": [cell(row.get("tier", results.tiers[0]), row["variant"], d) for d in results.datasets]}
        for row in [*of_tiers, *of_controls]
    ]
    return [row for row in rows if any(cell["gaze"] for cell in row["cells"])]  # people who are not rendered: no oracle


def moved_rows(results: Results) -> list[dict[str, Any]]:
    """List how far gaze and head move where one code is turned aside, of the first and the last tier."""
    numbers = _numbers(results, "turned")
    return [
        {
            "tier": tier,
            "turned": turned,
            "cells": [[numbers.get((tier, d, f"{f}_by_{turned}_deg")) for f in FACTORS] for d in results.datasets],
        }
        for tier in dict.fromkeys([results.tiers[0], results.tiers[-1]])
        for turned in FACTORS
    ]


def likeness_rows(results: Results) -> list[dict[str, Any]]:
    """List how alike redirected strips and controls are to the strips that they were to become, of the first tier."""
    numbers, tier = _numbers(results, "redirected"), results.tiers[0]
    words = {"both": "turned", "own": "turned from the network’s own estimate"} | REDIRECTION_CONTROLS
    del words["real"]
    rows = [
        {"words": told, "cells": [[numbers.get((tier, d, v, name)) for name in LIKENESS] for d in results.datasets]}
        for v, told in words.items()
    ]
    return [row for row in rows if any(cell[0] for cell in row["cells"])]


def _numbers(results: Results, table: str) -> dict[tuple[str, ...], dict[str, float]]:
    """Give mean, low and high by tier, data set, perhaps variant, and name of the number."""
    rows = results.tables[table]
    keys = [key for key in ("tier", "dataset", "variant", "number") if key in rows]
    return rows.set_index(keys)[["mean", "low", "high"]].to_dict("index")


def coverage_rows(results: Results) -> list[dict[str, Any]]:
    """List, for each data set and learner that tells its uncertainty, its coverage at some k: region -> share."""
    table = results.tables["coverage"]
    keys, shown = ["dataset", "learner", "k"], thinned(sorted(table["k"].unique()), MOST_SHOTS)
    return [
        dict(zip(keys, key, strict=True)) | {"regions": dict(zip(rows["said"], rows["covered"], strict=True))}
        for key, rows in table[table["k"].isin(shown)].groupby(keys, sort=False)
    ]


def time_rows(results: Results) -> list[dict[str, Any]]:
    """Average over seeds when each tier reaches the baseline's final error; ratios have a geometric mean."""
    rows = []
    for tier, times in results.tables["convergence"].groupby("tier", sort=False):
        reached = times[times["reached"]]
        row = {"tier": tier, "reached": len(reached), "seeds": len(times)}
        row |= reached[["pairs", "rate_seconds"]].mean().to_dict()
        rows.append(row | {"rate_ratio": np.exp(np.log(reached["rate_ratio"]).mean())})
    return rows


def tier_table(summary: Mapping[str, Any], results: Results) -> pd.DataFrame:
    """Make the tier table with all its numbers, for other programs."""
    table = results.tables["performance"].set_index("tier").loc[list(results.tiers)]
    for dataset, learner, k in conditions(results):
        name = f"{dataset}_k{k}"
        table[f"{name}_deg"] = results.cell("tiers", dataset, learner, k)["mean_deg"]
        changes = results.cell("changes", dataset, learner, k).reindex(table.index)
        for column in ("difference_deg", "low_deg", "high_deg", "tost_p", "verdict"):
            table[f"{name}_{column}"] = changes[column]
    table["verdict"] = pd.Series(summary["tier_verdicts"], dtype=object).reindex(table.index)
    return table.reset_index()
