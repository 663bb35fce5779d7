"""Readers for the outputs of an ablation's runs: per-person errors, and the metadata of few-shot learning."""

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from faze.base.result_paths import ResultPaths
from faze.config.parameters import Run
from faze.config.stage_config import Resolved
from faze.evaluation import UNADAPTED

LEFT_OUT = (b"left_out", b"left_out_of_training")  # JSON metadata of error files: a reason for each person
VAL, SECONDS = b"val_deg", b"seconds"  # error on val people at each k; durations of meta-training and adaptation
PERSON_KEYS = ["tier", "seed", "dataset", "person", "learner", "k"]


def list_runs(run: Run) -> list[tuple[str, int]]:
    """Return every combination of tier and seed, then every noise control (in place of a tier) with the first seed."""
    return [*itertools.product(run.tiers, run.seeds), *((control, run.seeds[0]) for control in run.controls)]


def given_runs(config: Resolved) -> list[tuple[str, int]]:
    """Return the runs of networks of other projects, which are only evaluated."""
    return [(tier, config.run.seeds[0]) for tier in config.networks]


def read_errors(paths: ResultPaths, runs: Iterable[tuple[str, int]], learners: Sequence[str]) -> pd.DataFrame:
    """Return a table of PERSON_KEYS and error_deg (mean over draws); at k = 0, the learner is UNADAPTED."""
    parts = []
    for tier, seed in runs:
        rows = pd.concat(pd.read_parquet(paths.errors(tier, seed, learner)) for learner in learners)
        rows = rows.sort_values("dataset", key=lambda names: pd.factorize(names)[0], kind="stable")  # in file order
        parts.append(rows.assign(tier=tier, seed=seed, learner=rows["learner"].where(rows["k"] > 0, UNADAPTED)))
    return pd.concat(parts).groupby(PERSON_KEYS, sort=False, as_index=False)["error_deg"].mean()


def read_metadata(path: Path) -> dict[bytes, Any]:
    """Read the JSON metadata of an error file."""
    return {key: json.loads(value) for key, value in pq.read_schema(path).metadata.items()}


def read_about_learners(paths: ResultPaths, config: Resolved) -> dict[str, Any]:
    """Return the reasons for leaving people out, the recommended learners, and each learner's time in the first run."""
    runs, reasons, val, times = list_runs(config.run), [], [], {}
    for run, learner in itertools.product(runs, config.fewshot.learners):
        path = paths.errors(*run, learner)
        metadata = read_metadata(path)
        reasons += [reason for key in LEFT_OUT for reason in metadata.get(key, ())]
        if run[0] == config.run.tiers[0]:
            val += [(int(k), learner, error_deg) for k, error_deg in metadata.get(VAL, {}).items()]
        if run == runs[0]:
            times[learner] = metadata[SECONDS] | {"calibrations": int((pd.read_parquet(path)["k"] > 0).sum())}
    val = pd.DataFrame(val, columns=["k", "learner", "error_deg"])
    found = {"left_out_reasons": list(dict.fromkeys(reasons)), "learner_times": times}
    return found | {"recommended_learners": recommend_learners(val) if len(val) else []}


def recommend_learners(val: pd.DataFrame) -> list[dict[str, Any]]:
    """Select, for each k, the learner (or UNADAPTED) with the lowest mean error in `val` (k, learner, error_deg)."""
    means = val.pivot_table(index="k", columns="learner", values="error_deg")
    adapted = means.drop(index=0)
    adapted.insert(0, UNADAPTED, means.loc[0].mean())
    best = {"learner": adapted.idxmin(axis=1), "error_deg": adapted.min(axis=1), "unadapted_deg": adapted[UNADAPTED]}
    return pd.DataFrame(best).reset_index().to_dict("records")
