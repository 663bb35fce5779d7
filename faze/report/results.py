"""The tables of an evaluation, read for the figures and the page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from faze.base.result_paths import ResultPaths
from faze.base.tier_colors import BASELINE, tier_colors
from faze.data.strips import RENDERED
from faze.evaluation import UNADAPTED
from faze.evaluation.wording import join, title_of

TABLES = ("tiers", "persons", "changes", "learners", "pixel_checks", "person_variance", "redirected")
TABLES += ("redirection_changes", "performance", "training", "convergence")


@dataclass(frozen=True)
class Results:
    """The tables of an evaluation, and the order in which tiers, controls, learners and data sets are shown."""

    tiers: Sequence[str]  # that were trained
    controls: Sequence[str]
    learners: Sequence[str]
    datasets: Sequence[str]
    largest_k: int
    margin_deg: float
    learner_margin_deg: float
    tables: Mapping[str, pd.DataFrame]
    pixel_sources: Mapping[str, str]  # of each data set (`faze.data.strips`)

    @property
    def measured(self) -> list[str]:
        """Every tier with a measured speed and memory, including those that are not trained."""
        return list(self.tables["performance"]["tier"])

    @property
    def colors(self) -> dict[str, str]:
        """The colour of each tier, which for trained ones is that in MLflow, and of each control."""
        untrained = [tier for tier in self.measured if tier not in self.tiers]
        return tier_colors([*self.tiers, *untrained]) | dict.fromkeys(self.controls, BASELINE)

    @property
    def pixel_note(self) -> str:
        """One sentence about the data sets whose people are rendered; "" if there are none."""
        rendered = [title_of(dataset) for dataset in self.datasets if self.pixel_sources.get(dataset) == RENDERED]
        if not rendered:
            return ""
        names = join(rendered)
        return f"The people of {names} are rendered, not photographed: errors are not comparable with published ones."

    def cell(self, table: str, dataset: str, learner: str, k: int, *, controls: bool = False) -> pd.DataFrame:
        """Select the rows for a data set, learner and k: one per tier and, with `controls`, one per noise control."""
        rows = self.tables[table]
        rows = rows[(rows["dataset"] == dataset) & (rows["learner"] == learner) & (rows["k"] == k)]
        order = [*self.tiers, *self.controls] if controls else self.tiers
        return rows.set_index("tier").reindex([tier for tier in order if tier in set(rows["tier"])])

    def curve(self, tier: str, dataset: str, learner: str) -> pd.DataFrame:
        """Select the errors of one tier and learner as a function of k, starting at k = 0."""
        rows = self.tables["tiers"]
        rows = rows[(rows["tier"] == tier) & (rows["dataset"] == dataset)]
        return rows[rows["learner"].isin([UNADAPTED, learner])].sort_values("k")


def read_evaluation(paths: ResultPaths) -> tuple[dict[str, Any], Results]:
    """Read the summary and the tables of an evaluation."""
    summary = json.loads((paths.evaluation / "summary.json").read_text(encoding="utf-8"))
    tables = {table: read_csv(paths.evaluation / f"{table}.csv") for table in TABLES}
    return summary, Results(
        tiers=summary["tiers"],
        controls=summary["controls"],
        learners=summary["learners"],
        datasets=list(dict.fromkeys(tables["tiers"]["dataset"])),
        largest_k=summary["largest_k"],
        margin_deg=summary["margin_deg"],
        learner_margin_deg=summary["learner_margin_deg"],
        tables=tables,
        pixel_sources=summary["pixel_sources"],
    )


def read_csv(path: Path) -> pd.DataFrame:
    """Read a table that a stage wrote. A person may be called NA; missing values are empty."""
    return pd.read_csv(path, dtype={"person": str, "tier": str}, keep_default_na=False, na_values=[""])


def walk_angles(paths: ResultPaths, tiers: Sequence[str], seed: int) -> dict[str, pd.DataFrame]:
    """Read the requested and estimated angles of the first and the last tier's walks."""
    ends = dict.fromkeys([tiers[0], tiers[-1]])
    return {tier: read_csv(paths.walks(tier, seed) / "angles.csv") for tier in ends}
