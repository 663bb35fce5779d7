"""The tables of an evaluation, read for the figures and the page."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from faze.base.errors import UserError
from faze.base.files import as_written, read_json
from faze.base.result_paths import ResultPaths
from faze.base.tier_colors import BASELINE, tier_colors
from faze.data.store.layout import RENDERED
from faze.evaluation import UNADAPTED
from faze.evaluation.wording import join, title_of

TABLES = ("runs", "tiers", "persons", "changes", "design", "learners", "pixel_checks", "person_variance", "coverage")
TABLES += ("redirection", "redirected", "turned", "redirected_by_angle", "redirection_changes", "performance")
TABLES += ("training", "convergence")


@dataclass(frozen=True)
class Results:
    """The tables of an evaluation, and the order in which tiers, controls, learners and data sets are shown."""

    tiers: Sequence[str]  # trained, or evaluated with given weights
    controls: Sequence[str]
    learners: Sequence[str]
    datasets: Sequence[str]
    largest_k: int
    margin_deg: float
    learner_margin_deg: float
    tables: Mapping[str, pd.DataFrame]
    pixel_sources: Mapping[str, str]  # of each data set (`faze.data.store.strips`)
    given_weights: Mapping[str, str]  # of tiers that were not trained: their checkpoints

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
    """Read the summary and the tables of an evaluation.

    Raises:
        UserError: a file is missing or damaged.
    """
    for name in (*(f"{table}.csv" for table in TABLES), "summary.json"):
        if not (paths.evaluation / name).is_file():
            raise UserError(f"{paths.evaluation / name} is missing: run evaluate first")
    path, again = paths.evaluation / "summary.json", "run evaluate again"
    summary = read_json(path, ("tiers", "learners", "seeds", "paper_width"), again)
    with as_written(path, again):
        tables = {
            table: read_csv(paths.evaluation / f"{table}.csv", again, summary["checksums"].get(table))
            for table in TABLES
        }
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
            given_weights=summary["given_weights"],
        )


def read_csv(path: Path, remedy: str, checksum: int | None = None) -> pd.DataFrame:
    """Read a table that a stage wrote.

    Args:
        path: path of the table.
        remedy: how to recreate it, for the error message.
        checksum: expected CRC-32.

    Raises:
        UserError: the table is damaged.
    """
    if checksum not in (None, zlib.crc32(path.read_bytes())):
        raise UserError(f"{path}: is corrupt (checksum mismatch): delete {path.parent} and {remedy}")
    try:
        # A person may be called NA; missing values are empty.
        return pd.read_csv(path, dtype={"person": str, "tier": str}, keep_default_na=False, na_values=[""])
    except (ValueError, OverflowError) as error:  # from the parser of pandas, also for bytes that are not text
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: is not a complete table ({reason}): {remedy}") from None


def walk_angles(paths: ResultPaths, tiers: Sequence[str], seed: int) -> dict[str, pd.DataFrame]:
    """Read the requested and estimated angles of the first and the last tier's walks, if the tables exist.

    Raises:
        UserError: a table is damaged.
    """
    files = {tier: paths.walks(tier, seed) / "angles.csv" for tier in dict.fromkeys([tiers[0], tiers[-1]])}
    return {tier: read_csv(path, "run walk again") for tier, path in files.items() if path.is_file()}
