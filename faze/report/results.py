"""What a page shows: benchmark, proofs and, if anything was trained, the tables of the evaluation."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from faze.base.result_paths import ResultPaths
from faze.base.tier_colors import BASELINE, tier_colors
from faze.evaluation import UNADAPTED
from faze.evaluation.diagnostics import performance
from faze.evaluation.summary import speed_and_memory
from faze.evaluation.switches import tier_changes
from faze.evaluation.wording import join

TABLES = ("tiers", "persons", "changes", "learners", "pixel_checks", "person_variance", "redirected")
TABLES += ("redirection_changes", "training", "convergence")
TALK = {"name": "talk", "speed": 2.07, "memory": 1.6, "error": 1.0}  # the baseline's value divided by the last tier's
NOT_TRAINED = {"tiers": [], "seeds": [], "pixel_sources": {}}
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Results:
    """Everything that a page shows; there are no tables if nothing was trained."""

    rows: Rows  # one per measured tier, the baseline first (`tier_rows`)
    benchmark: Mapping[str, Any]
    summary: Mapping[str, Any]  # of the evaluation, or NOT_TRAINED
    tables: Mapping[str, pd.DataFrame]
    published: Mapping[str, Any]  # ratios next to which ours are shown, with the keys of TALK

    @property
    def tiers(self) -> Sequence[str]:
        """The tiers that were trained."""
        return self.summary["tiers"]

    @property
    def datasets(self) -> Sequence[str]:
        """The data sets of gaze, in the order of the configuration."""
        return list(self.summary["pixel_sources"])

    @property
    def decisive(self) -> Sequence[tuple[str, int]]:
        """The learner and k of the errors on which the verdict is based."""
        return (UNADAPTED, 0), (self.summary["learners"][0], self.summary["largest_k"])

    @property
    def colors(self) -> Mapping[str, str]:
        """The colour of each tier, which for trained ones is that in MLflow, and of each control."""
        untrained = [row["tier"] for row in self.rows if row["tier"] not in self.tiers]
        return tier_colors([*self.tiers, *untrained]) | dict.fromkeys(self.summary.get("controls", ()), BASELINE)

    def cell(self, table: str, dataset: str, learner: str, k: int) -> pd.DataFrame:
        """Select the rows for a data set, learner and k, by tier; tiers come before noise controls."""
        rows = self.tables[table]
        return rows[(rows["dataset"] == dataset) & (rows["learner"] == learner) & (rows["k"] == k)].set_index("tier")

    def curve(self, tier: str, dataset: str, learner: str) -> pd.DataFrame:
        """Select the errors of one tier and learner as a function of k, starting at k = 0."""
        rows = self.tables["tiers"]
        rows = rows[(rows["tier"] == tier) & (rows["dataset"] == dataset)]
        return rows[rows["learner"].isin([UNADAPTED, learner])].sort_values("k")


def tier_rows(benchmark: Mapping[str, Any], proofs: Mapping[str, Any]) -> Rows:
    """Return each measured tier's speed and memory, its changes from the tier `before`, and its proof, or {}."""
    changes = tier_changes({tier: row["switches"] for tier, row in benchmark["tiers"].items()})
    rows = []
    for speed in performance(benchmark).to_dict("records"):
        proof, (before, changed) = proofs.get(speed["tier"], {}), changes[speed["tier"]]
        rows.append(speed | {"before": before, "changed": changed, "proof": proof, "same": "failed" not in proof})
    return rows


def cards(rows: Rows) -> list[dict[str, str]]:
    """Return the cards that need no training: speed and memory of the same experiments, and the proofs."""
    same, others = [row for row in rows if row["same"]], [row["tier"] for row in rows if not row["same"]]
    found = speed_and_memory(pd.DataFrame(same))
    if any(row["proof"] for row in rows):
        note = f"another one: {join(others)}" if others else f"their first steps are those of {rows[0]['tier']}"
        found.append(("Same experiment", f"{len(same) - 1} of {len(rows) - 1}", note))
    return [{"title": title, "value": value, "note": note} for title, value, note in found]


def read_evaluation(paths: ResultPaths, rows: Rows) -> tuple[Mapping[str, Any], dict[str, pd.DataFrame]]:
    """Read the summary and the tables of an evaluation of DT-ED; without one, return cards and no tables."""
    path = paths.evaluation / "summary.json"
    if not path.exists():
        return NOT_TRAINED | {"cards": cards(rows)}, {}
    summary = json.loads(path.read_text(encoding="utf-8"))
    return summary, {table: read_csv(paths.evaluation / f"{table}.csv") for table in TABLES}


def read_csv(path: Path) -> pd.DataFrame:
    """Read a table that a stage wrote. A person may be called NA; missing values are empty."""
    return pd.read_csv(path, dtype={"person": str, "tier": str}, keep_default_na=False, na_values=[""])
