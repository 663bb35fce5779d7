"""Read the outputs of the runs of an ablation.

Tables of errors have one row per tier, seed, dataset, person, learner and k. Errors are means over calibration draws.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.base.run_log import LoggedRun
from faze.evaluation import UNADAPTED
from faze.evaluation.switches import changed_switches

COLUMNS = ["person", "dataset", "split", "k", "repeat", "steps", "error_deg", "start_error_deg"]
# Metadata of the files of errors, as JSON.
LEFT_OUT = (b"left_out", b"left_out_of_training")  # reasons, one for each person
VAL = b"val_deg"  # k -> error
SECONDS = b"seconds"  # of learning and of adapting
PERSON_KEYS = ["tier", "seed", "dataset", "person", "learner", "k"]


@dataclass(frozen=True)
class Ablation:
    """The configured runs: every tier with every seed. The first tier is the baseline."""

    paths: ResultPaths
    tiers: Sequence[str]
    seeds: Sequence[int]
    learners: Sequence[str]  # the verdict is about the first one
    query_entries: int
    datasets: Sequence[str]
    controls: Sequence[str] = ()  # noise controls: trainings of the baseline with the first seed that differ by chance

    def runs(self) -> Iterator[tuple[str, int]]:
        """Yield every tier and seed, tier by tier."""
        return itertools.product(self.tiers, self.seeds)

    def all_runs(self) -> Iterator[tuple[str, int]]:
        """Yield every run, then every noise control, whose name takes the place of the tier."""
        yield from self.runs()
        yield from ((control, self.seeds[0]) for control in self.controls)


def read_errors(ablation: Ablation) -> pd.DataFrame:
    """Read the errors of every test person in every run and noise control.

    Returns:
        Columns PERSON_KEYS, error_deg, start_error_deg. For k = 0, there is one row per person, with the learner
        `unadapted`.

    Raises:
        UserError: a run has no error of any test person, or an error that is nan.
    """
    parts = []
    for tier, seed in ablation.all_runs():
        files = {learner: ablation.paths.errors(tier, seed, learner) for learner in ablation.learners}
        run = pd.concat([_read_learner(path, learner) for learner, path in files.items()], ignore_index=True)
        unadapted = run[run["k"] == 0].drop_duplicates(["dataset", "person"]).assign(learner=UNADAPTED)
        parts += [rows.assign(tier=tier, seed=seed) for rows in (unadapted, run[run["k"] > 0])]
    persons = pd.concat(parts, ignore_index=True)
    orders = {"tier": [*ablation.tiers, *ablation.controls], "dataset": ablation.datasets}
    orders["learner"] = [UNADAPTED, *ablation.learners]
    persons = persons.sort_values(PERSON_KEYS, key=lambda c: c.map(orders[c.name].index) if c.name in orders else c)
    return persons[[*PERSON_KEYS, "error_deg", "start_error_deg"]].reset_index(drop=True)


def _read_learner(path: Path, learner: str) -> pd.DataFrame:
    """Compute each test person's mean error over calibration draws, at each k and after the last adaptation step."""
    rows = pd.read_parquet(path, columns=COLUMNS)
    rows = rows[rows["split"] == "test"]
    if rows.empty or not np.isfinite(rows["error_deg"]).all():
        problem = "no error of any test person" if rows.empty else "an error that is nan"
        raise UserError(f"{path}: contains {problem}; see the log of adapt")
    last = rows.groupby(["dataset", "person", "k", "repeat"])["steps"].transform("max") == rows["steps"]
    means = rows[last].groupby(["dataset", "person", "k"], as_index=False)[["error_deg", "start_error_deg"]].mean()
    return means.assign(learner=learner)


def tier_switches(
    ablation: Ablation, benchmark: Mapping[str, Any], trainings: Mapping[str, LoggedRun]
) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return the switches of each measured tier: those of its training or, for an untrained tier, of the benchmark.

    Training sets some switches for all tiers, such as `allocator`. An untrained tier differs from the baseline's
    training only where it differs from the baseline in the benchmark.

    Args:
        ablation: its first tier is the baseline.
        benchmark: the measurements of the benchmark.
        trainings: the run log of one training run per trained tier.
    """
    first, measured = ablation.tiers[0], benchmark["tiers"]
    found = {}
    for tier, row in measured.items():
        if tier in trainings:
            found[tier] = trainings[tier].switches
        else:
            changed = changed_switches(row["switches"], measured[first]["switches"])
            own = {switch["switch"]: switch for switch in changed}
            found[tier] = [own.get(switch["switch"], switch) for switch in trainings[first].switches]
    return found


def read_metadata(path: Path) -> dict[bytes, Any]:
    """Read the JSON metadata of a parquet file; other metadata is ignored."""
    metadata = pq.read_schema(path).metadata or {}
    return {key: json.loads(metadata[key]) for key in (*LEFT_OUT, VAL, SECONDS) if key in metadata}


def read_left_out(ablation: Ablation) -> list[str]:
    """Read the distinct reasons why meta_train or adapt left people out, over all runs."""
    reasons: dict[str, None] = {}
    for (tier, seed), learner in itertools.product(ablation.all_runs(), ablation.learners):
        metadata = read_metadata(ablation.paths.errors(tier, seed, learner))
        for key in LEFT_OUT:
            reasons |= dict.fromkeys(metadata.get(key, ()))
    return list(reasons)


def read_val_errors(ablation: Ablation) -> pd.DataFrame:
    """Read the baseline's error on val people, averaged over seeds; learners may have been trained on these people.

    Returns:
        Columns learner, k (0: unadapted), error_deg; empty if there are no val people.
    """
    rows = []
    for seed, learner in itertools.product(ablation.seeds, ablation.learners):
        errors = read_metadata(ablation.paths.errors(ablation.tiers[0], seed, learner)).get(VAL, {})
        rows += [{"learner": learner, "k": int(k), "error_deg": deg} for k, deg in errors.items()]
    found = pd.DataFrame(rows, columns=["learner", "k", "error_deg"])
    return found.groupby(["learner", "k"], sort=False, as_index=False)["error_deg"].mean()


def read_learner_times(ablation: Ablation) -> dict[str, dict[str, float]]:
    """Read each learner's training and adaptation times and its number of calibrations, in the baseline's first run."""
    found = {}
    for learner in ablation.learners:
        path = ablation.paths.errors(ablation.tiers[0], ablation.seeds[0], learner)
        if seconds := read_metadata(path).get(SECONDS):
            found[learner] = seconds | {"calibrations": int((pd.read_parquet(path, columns=["k"])["k"] > 0).sum())}
    return found
