"""Reading what the runs of one ablation left behind, with one clear sentence about what is missing.

Tables of errors have one row per tier, seed, dataset, person, learner and k; errors are means over calibration draws.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from faze.base.errors import UserError
from faze.base.files import as_written, read_json
from faze.base.logged_run import LoggedRun
from faze.base.result_paths import DATASETS, ResultPaths
from faze.evaluation import UNADAPTED
from faze.evaluation.parquet_file import NUMBER, TEXT, WHOLE, read_metadata, read_table

COLUMNS = {
    **dict.fromkeys(("person", "dataset", "split", "learner"), TEXT),
    **dict.fromkeys(("k", "repeat", "steps"), WHOLE),
    **dict.fromkeys(("error_deg", "start_error_deg"), NUMBER),
}
AGAIN = "delete it and run adapt again"
MEASURE_AGAIN = "delete it and run benchmark again"
LEFT_OUT = (b"left_out", b"left_out_of_training")  # metadata of those files: sentences, as JSON
VAL = b"val_deg"  # another: k -> error, as JSON
SECONDS = b"seconds"  # another: of learning and of adapting, as JSON
PERSON_KEYS = ["tier", "seed", "dataset", "person", "learner", "k"]


@dataclass(frozen=True)
class Ablation:
    """The runs that the configuration asks for: every tier (the first is the baseline) with every seed."""

    paths: ResultPaths
    tiers: Sequence[str]
    seeds: Sequence[int]
    learners: Sequence[str]  # the first is the one that the verdict is about
    query_entries: int
    controls: Sequence[str] = ()  # trainings of the baseline that chance alone tells apart, with the first seed

    def runs(self) -> Iterator[tuple[str, int]]:
        """Yield every tier and seed, tier by tier."""
        return itertools.product(self.tiers, self.seeds)

    def all_runs(self) -> Iterator[tuple[str, int]]:
        """Yield every run, then the noise controls, whose names stand for a tier's."""
        yield from self.runs()
        yield from ((control, self.seeds[0]) for control in self.controls)

    def files(self) -> Iterator[Path]:
        """Yield every file that an evaluation reads."""
        for tier, seed in self.all_runs():
            yield self.paths.run_log(tier, seed)
            yield self.paths.redirection(tier, seed)
            yield self.paths.redirected_pairs(tier, seed)
            yield from (self.paths.errors(tier, seed, learner) for learner in self.learners)
        for tier, seed in self.runs():
            yield from (self.paths.codes(tier, seed, dataset) for dataset in DATASETS)
        yield self.paths.benchmark
        yield self.paths.estimator_errors

    def check_complete(self) -> None:
        """Refuse to judge half an ablation.

        Raises:
            UserError: files are missing; the sentence counts them, names the first and says how to get them.
        """
        missing = [path for path in self.files() if not path.is_file()]
        if missing:
            others = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
            raise UserError(
                f"{missing[0]}{others} missing: run the ablation to its end, or take tiers and seeds that were "
                "not run off run.tiers and run.seeds"
            )


def read_errors(ablation: Ablation) -> pd.DataFrame:
    """Read the errors of every test person in every run and noise control.

    Returns:
        Columns PERSON_KEYS, error_deg, start_error_deg; k = 0 stands once per person, under the learner `unadapted`.

    Raises:
        UserError: a file lacks a column or a person, or the learners of a run disagree on the unadapted error.
    """
    parts = []
    for tier, seed in ablation.all_runs():
        run = [_read_learner(ablation.paths.errors(tier, seed, learner), learner) for learner in ablation.learners]
        persons = _join_unadapted(pd.concat(run, ignore_index=True), ablation.paths.run(tier, seed))
        parts.append(persons.assign(tier=tier, seed=seed))
    persons = pd.concat(parts, ignore_index=True)
    _check_same_people(persons, ablation.paths)
    ranks = {
        "tier": [*ablation.tiers, *ablation.controls],
        "dataset": DATASETS,
        "learner": [UNADAPTED, *ablation.learners],
    }
    persons = persons.sort_values(PERSON_KEYS, key=lambda c: c.map(list(ranks[c.name]).index) if c.name in ranks else c)
    return persons[[*PERSON_KEYS, "error_deg", "start_error_deg"]].reset_index(drop=True)


def _read_learner(path: Path, learner: str) -> pd.DataFrame:
    """Average each test person's error at each k over the calibration draws, after the last adaptation step."""
    rows = read_table(path, COLUMNS, AGAIN)
    rows = rows[rows["split"] == "test"]
    if unknown := set(rows["dataset"]) - set(DATASETS):
        raise UserError(f"{path}: is about a data set {min(unknown):.100}; {AGAIN}")
    if rows.empty or not np.isfinite(rows["error_deg"]).all():
        what = "no error of any test person" if rows.empty else "an error that is not a number"
        raise UserError(f"{path}: holds {what}; look into the log of adapt")
    last = rows.groupby(["dataset", "person", "k", "repeat"])["steps"].transform("max") == rows["steps"]
    means = rows[last].groupby(["dataset", "person", "k"], as_index=False)[["error_deg", "start_error_deg"]].mean()
    return means.assign(learner=learner)


def same_steps(trainings: Mapping[str, LoggedRun]) -> dict[str, str]:
    """Name for each tier the first one whose training is its own too; "" where no tier before it shares it."""
    trained_by = {tier: training.reused_from or tier for tier, training in trainings.items()}
    first: dict[str, str] = {}
    for tier, maker in trained_by.items():
        first.setdefault(maker, tier)
    return {tier: "" if first[maker] == tier else first[maker] for tier, maker in trained_by.items()}


def read_left_out(ablation: Ablation) -> list[str]:
    """Read a sentence about each person whom meta_train or adapt left out, in any run; each once."""
    sentences: dict[str, None] = {}
    for tier, seed in ablation.all_runs():
        for learner in ablation.learners:
            _, told = read_metadata(ablation.paths.errors(tier, seed, learner), AGAIN)
            for key in LEFT_OUT:
                listed = told.get(key, [])
                sentences |= dict.fromkeys(map(str, listed if isinstance(listed, list) else ()))
    return list(sentences)


def read_val_errors(ablation: Ablation) -> pd.DataFrame:
    """Read the baseline's mean error on val people, whom learners may have looked at, over seeds.

    Returns:
        Columns learner, k (0: unadapted), error_deg; no row where there were no val people.
    """
    rows = []
    for seed, learner in itertools.product(ablation.seeds, ablation.learners):
        path = ablation.paths.errors(ablation.tiers[0], seed, learner)
        with as_written(path, AGAIN):
            told = read_metadata(path, AGAIN)[1].get(VAL, {})
            rows += [{"learner": learner, "k": int(k), "error_deg": float(deg)} for k, deg in told.items()]
    found = pd.DataFrame(rows, columns=["learner", "k", "error_deg"])
    return found.groupby(["learner", "k"], sort=False, as_index=False)["error_deg"].mean()


def read_learner_times(ablation: Ablation) -> dict[str, dict[str, float]]:
    """Read what each learner of the baseline took, with the first seed: learn and adapt, seconds, and calibrations."""
    found = {}
    for learner in ablation.learners:
        path = ablation.paths.errors(ablation.tiers[0], ablation.seeds[0], learner)
        with as_written(path, AGAIN):
            if told := read_metadata(path, AGAIN)[1].get(SECONDS):
                adapted = int((read_table(path, {"k": WHOLE}, AGAIN)["k"] > 0).sum())
                found[learner] = {name: float(took) for name, took in told.items()} | {"calibrations": adapted}
    return found


def _join_unadapted(rows: pd.DataFrame, run: Path) -> pd.DataFrame:
    """Keep the unadapted error once, after checking that every learner's file says the same."""
    unadapted = rows[rows["k"] == 0]
    spread = unadapted.groupby(["dataset", "person"])["error_deg"].agg(lambda errors: errors.max() - errors.min())
    if spread.empty or spread.max() > 1e-6:
        who = (
            "has no unadapted error (k = 0)"
            if spread.empty
            else f"disagrees on the unadapted error of {spread.idxmax()[1]}"
        )
        raise UserError(f"{run}/fewshot: {who}; its files are of different trainings, delete them and run adapt again")
    unadapted = unadapted.drop_duplicates(["dataset", "person"]).assign(learner=UNADAPTED)
    return pd.concat([unadapted, rows[rows["k"] > 0]], ignore_index=True)


def _check_same_people(persons: pd.DataFrame, paths: ResultPaths) -> None:
    """Refuse runs that differ in people, learners or k: comparisons are paired."""
    runs = persons[["tier", "seed"]].drop_duplicates().shape[0]
    counts = persons.groupby(["dataset", "person", "learner", "k"]).size()
    if (counts != runs).any():
        dataset, person, learner, k = (counts != runs).idxmax()
        raise UserError(
            f"{paths.root}: person {person} of {dataset} has errors (learner {learner}, k = {k}) in "
            f"{counts[counts != runs].iloc[0]} of {runs} runs: run adapt again for all of them"
        )
    adapted = persons[persons["k"] > 0]
    learners = adapted.groupby(["dataset", "person", "k"])["learner"].nunique()
    if (learners != adapted["learner"].nunique()).any():
        dataset, person, k = (learners != adapted["learner"].nunique()).idxmax()
        raise UserError(
            f"{paths.root}: person {person} of {dataset} has errors for k = {k} of some learners only: run adapt "
            "again for all of them"
        )


def read_benchmark(ablation: Ablation) -> Mapping[str, Any]:
    """Read speed and memory of every tier.

    Raises:
        UserError: the file is not JSON, or lacks a tier.
    """
    path = ablation.paths.benchmark
    benchmark = read_json(path, ("tiers",), MEASURE_AGAIN)
    tiers = benchmark["tiers"] if isinstance(benchmark["tiers"], Mapping) else {}
    if absent := [tier for tier in ablation.tiers if tier not in tiers]:
        raise UserError(f"{path}: has no tier {', '.join(absent)}; {MEASURE_AGAIN}")
    return benchmark
