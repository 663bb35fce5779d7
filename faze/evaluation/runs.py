"""Read the outputs of the runs of an ablation.

Tables of errors have one row per tier, seed, dataset, person, learner and k. Errors are means over calibration draws.
"""

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from faze.base.errors import UserError
from faze.base.files import as_written, read_json
from faze.base.logged_run import LoggedRun
from faze.base.result_paths import ResultPaths
from faze.base.run_log import changed_switches
from faze.evaluation import UNADAPTED
from faze.evaluation.parquet_file import NUMBER, TEXT, WHOLE, read_metadata, read_table

COLUMNS = {
    **dict.fromkeys(("person", "dataset", "split", "learner"), TEXT),
    **dict.fromkeys(("k", "repeat", "steps"), WHOLE),
    **dict.fromkeys(("error_deg", "start_error_deg"), NUMBER),
}
AGAIN = "delete it and run adapt again"
MEASURE_AGAIN = "delete it and run benchmark again"
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

    def files(self) -> Iterator[Path]:
        """Yield every file that the evaluation reads."""
        for tier, seed in self.all_runs():
            yield self.paths.run_log(tier, seed)
            yield self.paths.redirection(tier, seed)
            yield self.paths.redirected_pairs(tier, seed)
            yield from (self.paths.errors(tier, seed, learner) for learner in self.learners)
        for tier, seed in self.runs():
            yield from (self.paths.codes(tier, seed, dataset) for dataset in self.datasets)
        yield self.paths.benchmark
        yield self.paths.estimator_errors

    def check_complete(self) -> None:
        """Check that every file exists.

        Raises:
            UserError: files are missing; the message contains their number, the name of the first one and the remedy.
        """
        missing = [path for path in self.files() if not path.is_file()]
        if missing:
            others = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
            raise UserError(
                f"{missing[0]}{others} missing: finish the ablation, or remove tiers and seeds without results from "
                "run.tiers and run.seeds"
            )


def read_errors(ablation: Ablation) -> pd.DataFrame:
    """Read the errors of every test person in every run and noise control.

    Returns:
        Columns PERSON_KEYS, error_deg, start_error_deg. For k = 0, there is one row per person, with the learner
        `unadapted`.

    Raises:
        UserError: a file lacks a column or a person, or the learners of a run disagree on the unadapted error.
    """
    parts = []
    for tier, seed in ablation.all_runs():
        files = {learner: ablation.paths.errors(tier, seed, learner) for learner in ablation.learners}
        run = [_read_learner(path, learner, ablation.datasets) for learner, path in files.items()]
        persons = _join_unadapted(pd.concat(run, ignore_index=True), ablation.paths.run(tier, seed))
        parts.append(persons.assign(tier=tier, seed=seed))
    persons = pd.concat(parts, ignore_index=True)
    _check_same_people(persons, ablation.paths)
    orders = {"tier": [*ablation.tiers, *ablation.controls], "dataset": ablation.datasets}
    orders["learner"] = [UNADAPTED, *ablation.learners]
    persons = persons.sort_values(PERSON_KEYS, key=lambda c: c.map(orders[c.name].index) if c.name in orders else c)
    return persons[[*PERSON_KEYS, "error_deg", "start_error_deg"]].reset_index(drop=True)


def _read_learner(path: Path, learner: str, datasets: Sequence[str]) -> pd.DataFrame:
    """Compute each test person's mean error over calibration draws, at each k and after the last adaptation step."""
    rows = read_table(path, COLUMNS, AGAIN)
    rows = rows[rows["split"] == "test"]
    if unknown := set(rows["dataset"]) - set(datasets):
        raise UserError(f"{path}: contains an unknown data set, {min(unknown):.100}; {AGAIN}")
    if rows.empty or not np.isfinite(rows["error_deg"]).all():
        problem = "no error of any test person" if rows.empty else "an error that is nan"
        raise UserError(f"{path}: contains {problem}; see the log of adapt")
    last = rows.groupby(["dataset", "person", "k", "repeat"])["steps"].transform("max") == rows["steps"]
    means = rows[last].groupby(["dataset", "person", "k"], as_index=False)[["error_deg", "start_error_deg"]].mean()
    return means.assign(learner=learner)


def _join_unadapted(rows: pd.DataFrame, run: Path) -> pd.DataFrame:
    """Keep one row per person for the unadapted error, after checking that all learners' files agree on it."""
    unadapted = rows[rows["k"] == 0]
    spread = unadapted.groupby(["dataset", "person"])["error_deg"].agg(lambda errors: errors.max() - errors.min())
    if spread.empty or spread.max() > 1e-6:
        problem = (
            "no unadapted error (k = 0)" if spread.empty else f"different unadapted errors of {spread.idxmax()[1]}"
        )
        raise UserError(
            f"{run}/fewshot: its files contain {problem}, so they come from different training runs; delete them and "
            "run adapt again"
        )
    unadapted = unadapted.drop_duplicates(["dataset", "person"]).assign(learner=UNADAPTED)
    return pd.concat([unadapted, rows[rows["k"] > 0]], ignore_index=True)


def _check_same_people(persons: pd.DataFrame, paths: ResultPaths) -> None:
    """Check that all runs have the same people, learners and k, because comparisons are paired."""
    runs = persons[["tier", "seed"]].drop_duplicates().shape[0]
    counts = persons.groupby(["dataset", "person", "learner", "k"]).size()
    if (counts != runs).any():
        dataset, person, learner, k = (counts != runs).idxmax()
        raise UserError(
            f"{paths.root}: person {person} of {dataset} has results (learner {learner}, k = {k}) in only "
            f"{counts[counts != runs].iloc[0]} of {runs} runs: run adapt again for all of them"
        )
    adapted = persons[persons["k"] > 0]
    learners = adapted.groupby(["dataset", "person", "k"])["learner"].nunique()
    if (learners != adapted["learner"].nunique()).any():
        dataset, person, k = (learners != adapted["learner"].nunique()).idxmax()
        raise UserError(
            f"{paths.root}: person {person} of {dataset} has results for k = {k} from only some learners: run adapt "
            "again for all of them"
        )


def same_steps(trainings: Mapping[str, LoggedRun]) -> dict[str, str]:
    """Return, for each tier, the first tier with the same training run, or "" if that is the tier itself."""
    sources = {tier: training.reused_from or tier for tier, training in trainings.items()}
    first: dict[str, str] = {}
    for tier, source in sources.items():
        first.setdefault(source, tier)
    return {tier: "" if first[source] == tier else first[source] for tier, source in sources.items()}


def logged_weights(trainings: Mapping[str, LoggedRun]) -> dict[str, str]:
    """Return the tiers that were evaluated with given weights, without training, each with its checkpoint.

    Args:
        trainings: the run log of one training run per tier; the first tier is the baseline, which is always measured.
    """
    _, *others = trainings
    configs = {tier: trainings[tier].start["config"] for tier in others}
    return {tier: known["train.start"] for tier, known in configs.items() if known.get("train.pairs") == 0}


def tier_switches(
    ablation: Ablation, benchmark: Mapping[str, Any], trainings: Mapping[str, LoggedRun]
) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return the switches of each measured tier: those of its training or, for an untrained tier, of the benchmark.

    Training sets some switches for all tiers, such as `allocator`. An untrained tier differs from the baseline's
    training only where it differs from the baseline in the benchmark.

    Args:
        ablation: its first tier is the baseline.
        benchmark: the measurements of the benchmark (`read_benchmark`).
        trainings: the run log of one training run per trained tier.
    """
    first, measured = ablation.tiers[0], benchmark["tiers"]
    found = {}
    with as_written(ablation.paths.benchmark, MEASURE_AGAIN):
        for tier, row in measured.items():
            if tier in trainings:
                found[tier] = trainings[tier].switches
            else:
                changed = changed_switches(row["switches"], measured[first]["switches"])
                own = {switch["switch"]: switch for switch in changed}
                found[tier] = [own.get(switch["switch"], switch) for switch in trainings[first].switches]
    return found


def read_left_out(ablation: Ablation) -> list[str]:
    """Read the distinct reasons why meta_train or adapt left people out, over all runs."""
    reasons: dict[str, None] = {}
    for (tier, seed), learner in itertools.product(ablation.all_runs(), ablation.learners):
        _, metadata = read_metadata(ablation.paths.errors(tier, seed, learner), AGAIN)
        for listed in (metadata.get(key) for key in LEFT_OUT):
            reasons |= dict.fromkeys(map(str, listed if isinstance(listed, list) else ()))
    return list(reasons)


def read_val_errors(ablation: Ablation) -> pd.DataFrame:
    """Read the baseline's error on val people, averaged over seeds; learners may have been trained on these people.

    Returns:
        Columns learner, k (0: unadapted), error_deg; empty if there are no val people.
    """
    rows = []
    for seed, learner in itertools.product(ablation.seeds, ablation.learners):
        path = ablation.paths.errors(ablation.tiers[0], seed, learner)
        with as_written(path, AGAIN):
            errors = read_metadata(path, AGAIN)[1].get(VAL, {})
            rows += [{"learner": learner, "k": int(k), "error_deg": float(deg)} for k, deg in errors.items()]
    found = pd.DataFrame(rows, columns=["learner", "k", "error_deg"])
    return found.groupby(["learner", "k"], sort=False, as_index=False)["error_deg"].mean()


def read_learner_times(ablation: Ablation) -> dict[str, dict[str, float]]:
    """Read each learner's training and adaptation times and its number of calibrations, in the baseline's first run."""
    found = {}
    for learner in ablation.learners:
        path = ablation.paths.errors(ablation.tiers[0], ablation.seeds[0], learner)
        with as_written(path, AGAIN):
            if seconds := read_metadata(path, AGAIN)[1].get(SECONDS):
                adapted = int((read_table(path, {"k": WHOLE}, AGAIN)["k"] > 0).sum())
                found[learner] = {name: float(took) for name, took in seconds.items()} | {"calibrations": adapted}
    return found


def read_benchmark(ablation: Ablation, given: Container[str] = ()) -> Mapping[str, Any]:
    """Read the benchmark of every tier, except those with given weights, which have no training steps.

    Raises:
        UserError: the file is not JSON, or lacks a tier.
    """
    path = ablation.paths.benchmark
    benchmark = read_json(path, ("tiers",), MEASURE_AGAIN)
    tiers = benchmark["tiers"] if isinstance(benchmark["tiers"], Mapping) else {}
    if absent := [tier for tier in ablation.tiers if tier not in tiers and tier not in given]:
        raise UserError(f"{path}: has no tier {', '.join(absent)}; {MEASURE_AGAIN}")
    return benchmark
