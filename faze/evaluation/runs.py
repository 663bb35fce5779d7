"""Read the outputs of the runs of an ablation: errors of people, and what few-shot learning reports about itself."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.evaluation import UNADAPTED

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
    datasets: Sequence[str]
    controls: Sequence[str] = ()  # noise controls: trainings of the baseline with the first seed that differ by chance

    def runs(self) -> Iterator[tuple[str, int]]:
        """Yield every tier and seed, then every noise control, whose name takes the place of the tier."""
        yield from itertools.product(self.tiers, self.seeds)
        yield from ((control, self.seeds[0]) for control in self.controls)


def read_errors(ablation: Ablation) -> pd.DataFrame:
    """Read the errors of every test person in every run, as means over calibration draws.

    Returns:
        Columns PERSON_KEYS and error_deg. For k = 0, there is one row per person, with the learner `unadapted`.

    Raises:
        UserError: a run has no error of any test person, or an error that is nan.
    """
    parts = []
    for (tier, seed), learner in itertools.product(ablation.runs(), ablation.learners):
        path = ablation.paths.errors(tier, seed, learner)
        rows = pd.read_parquet(path, columns=["person", "dataset", "split", "k", "error_deg"])
        rows = rows[rows["split"] == "test"]
        if rows.empty or not np.isfinite(rows["error_deg"]).all():
            problem = "no error of any test person" if rows.empty else "an error that is nan"
            raise UserError(f"{path}: contains {problem}; see the log of adapt")
        means = rows.groupby(["dataset", "person", "k"], as_index=False)["error_deg"].mean()
        parts.append(means.assign(tier=tier, seed=seed, learner=np.where(means["k"] > 0, learner, UNADAPTED)))
    persons = pd.concat(parts, ignore_index=True).drop_duplicates(PERSON_KEYS)
    orders = {"tier": [*ablation.tiers, *ablation.controls], "dataset": ablation.datasets}
    orders["learner"] = [UNADAPTED, *ablation.learners]
    persons = persons.sort_values(PERSON_KEYS, key=lambda c: c.map(orders[c.name].index) if c.name in orders else c)
    return persons[[*PERSON_KEYS, "error_deg"]].reset_index(drop=True)


def read_metadata(path: Path) -> dict[bytes, Any]:
    """Read the JSON metadata of a file of errors; other metadata is ignored."""
    metadata = pq.read_schema(path).metadata or {}
    return {key: json.loads(metadata[key]) for key in (*LEFT_OUT, VAL, SECONDS) if key in metadata}


def read_about_learners(ablation: Ablation) -> dict[str, Any]:
    """Read the reasons why people were left out in any run, the recommended learners, and times in the first run."""
    reasons: dict[str, None] = {}
    val, times = [], {}
    for (tier, seed), learner in itertools.product(ablation.runs(), ablation.learners):
        path = ablation.paths.errors(tier, seed, learner)
        metadata = read_metadata(path)
        for key in LEFT_OUT:
            reasons |= dict.fromkeys(metadata.get(key, ()))
        if tier == ablation.tiers[0]:
            val += [(int(k), learner, error_deg) for k, error_deg in metadata.get(VAL, {}).items()]
            if seed == ablation.seeds[0] and SECONDS in metadata:
                calibrations = int((pd.read_parquet(path, columns=["k"])["k"] > 0).sum())
                times[learner] = metadata[SECONDS] | {"calibrations": calibrations}
    recommended = recommend_learners(pd.DataFrame(val, columns=["k", "learner", "error_deg"]))
    return {"left_out_reasons": list(reasons), "recommended_learners": recommended, "learner_times": times}


def recommend_learners(val: pd.DataFrame) -> list[dict[str, Any]]:
    """Select, for each k, the learner with the lowest error on val people, or UNADAPTED if none improves on k = 0.

    Args:
        val: columns k (0: unadapted), learner, error_deg; for each seed.
    """
    means, rows = val.pivot_table(index="k", columns="learner", values="error_deg"), []
    for k, of_k in means[means.index > 0].iterrows():
        unadapted, lowest = means.loc[0].mean(), of_k.min()
        learner = of_k.idxmin() if lowest < unadapted else UNADAPTED
        row = {"k": k, "learner": learner, "error_deg": min(lowest, unadapted), "unadapted_deg": unadapted}
        rows.append(row)
    return rows
