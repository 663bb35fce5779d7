"""One run as its files tell it: what MLflow is to hold of it. Standard library only."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from faze.base.errors import UserError
from faze.base.files import as_written, read_json
from faze.base.logged_run import LoggedRun, LoggedValue, read_ended_run, read_logged_run
from faze.base.result_paths import DATASETS, ResultPaths
from faze.base.tier_colors import BASELINE, tier_colors

# MLflow's chart view draws one chart per metric: beyond some, nobody finds the one that matters. Results come on top,
# in sections of their own: none is cut off.
MAX_TRAINING_METRICS = 7

FIRST = ("train/loss", "train/images_per_s")  # of the training's metrics; whatever else there is, these are kept


class RunPlace(NamedTuple):
    """A run's place in its ablation."""

    tier: str
    seed: int
    name: str  # rung first, so that MLflow sorts the ladder: 1-amp, or 1-amp-s0 where there are more seeds
    color: str  # of the tier, as in the report


class MetricValue(NamedTuple):
    """One value of a metric."""

    key: str
    step: int
    value: float
    time_ms: int


class InputDataset(NamedTuple):
    """A data set that the run read, as its page tells."""

    name: str
    digest: str
    store: str
    context: str  # training | testing
    profile: Mapping[str, Any]  # counts


@dataclass(frozen=True)
class RunRecord:
    """All that MLflow is to hold of one run."""

    place: RunPlace
    start_ms: int
    end_ms: int | None  # None while it trains
    params: Mapping[str, str]
    tags: Mapping[str, str]
    training: Sequence[MetricValue]  # what the run log holds, in its order: a training under way only adds to it
    results: Sequence[MetricValue] | None = None  # what was measured afterwards; None of a run log alone
    artifacts: Mapping[str, Path] = dataclasses.field(default_factory=dict)  # folder in MLflow -> file or folder
    datasets: Sequence[InputDataset] = ()
    checkpoint: Path | None = None  # of the trained network

    @property
    def metrics(self) -> Sequence[MetricValue]:
        """All values, those of the training first."""
        return [*self.training, *(self.results or ())]

    @property
    def identity(self) -> str:
        """Tell the experiment that was done from others: runs that differ in it are never mixed."""
        parts = [self.tags[name] for name in ("ablation", "tier", "seed", "config_hash", "code_fingerprint")]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

    @property
    def place_tags(self) -> Mapping[str, str]:
        """Tag a run's place in the ablation, which only one current run can hold."""
        return {name: self.tags[name] for name in ("ablation", "tier", "seed")}


def run_places(tiers: Sequence[str], seeds: Sequence[int], controls: Sequence[str] = ()) -> list[RunPlace]:
    """List every run of an ablation, in the order of the ladder, then its noise controls."""
    digits = len(str(len(tiers) - 1))  # names are sorted as text
    places = [
        RunPlace(tier, seed, f"{rung:0{digits}}-{tier}" + (f"-s{seed}" if len(seeds) > 1 else ""), color)
        for rung, (tier, color) in enumerate(tier_colors(tiers).items())
        for seed in seeds
    ]
    return places + [RunPlace(control, seeds[0], f"control-{control}", BASELINE) for control in controls]


def read_training(log: Path, place: RunPlace) -> RunRecord:
    """Read what the run log alone tells, of a training under way as of one that ended.

    Raises:
        UserError: the log does not begin with its start event, or was changed since it was written.
    """
    with as_written(log, "delete it and train that run again"):
        return _record(read_logged_run(log), place)


def read_sweep(paths: ResultPaths, places: Sequence[RunPlace]) -> list[RunRecord]:
    """Read the trainings of a sweep; the first keeps its page."""
    records = [read_training(paths.run_log(place.tier, place.seed), place) for place in places]
    artifacts = [{"": paths.run_log(place.tier, place.seed)} for place in places]
    artifacts[0]["sweep"] = paths.sweep
    return [dataclasses.replace(record, artifacts=of) for record, of in zip(records, artifacts, strict=True)]


def _record(run: LoggedRun, place: RunPlace) -> RunRecord:
    switches = {
        f"switch.{switch['switch']}": f"inactive: {switch['reason']}" if switch["reason"] else _text(switch["acted"])
        for switch in run.switches
    }
    return RunRecord(
        place=place,
        start_ms=_milliseconds(run.start["time"]),
        end_ms=None if run.ended is None else _milliseconds(run.ended),
        params={key: _text(value) for key, value in run.start["config"].items()},
        tags=_tags(run.start) | switches | ({"reused_from": run.reused_from} if run.reused_from else {}),
        training=_training_metrics(run.values),
    )


def read_runs(paths: ResultPaths, places: Sequence[RunPlace]) -> list[RunRecord]:
    """Read every run of an ablation; the first keeps the pages of the whole, which are too large for copies."""
    return [read_run(paths, place, pages_in=places[0]) for place in places]


def read_run(paths: ResultPaths, place: RunPlace, pages_in: RunPlace | None = None) -> RunRecord:
    """Read the training and what was measured of it afterwards.

    Args:
        paths: of the ablation.
        place: of the run.
        pages_in: the run that keeps report and data pages, if another.

    Raises:
        UserError: the evaluation has no entry for this run, or a data set has no page.
    """
    log = paths.run_log(place.tier, place.seed)
    run, training, summary = read_ended_run(log), read_training(log, place), paths.evaluation / "summary.json"
    with as_written(summary, "run the rule evaluate again"):
        results = _read_results(summary, training)
    keeper = pages_in or place
    artifacts = {"": log}
    if "control" not in training.tags:  # nobody walks through a noise control
        artifacts["walks"] = paths.walks(place.tier, place.seed)
    if place == keeper:
        artifacts |= {"report": paths.report} | {f"data/{dataset}": paths.inspection(dataset) for dataset in DATASETS}
    return dataclasses.replace(
        training,
        results=results,
        tags={**training.tags, "mlflow.note.content": _description(training, results, run, keeper)},
        artifacts=artifacts,
        datasets=[_read_dataset(paths, dataset) for dataset in DATASETS],
        checkpoint=paths.checkpoint(place.tier, place.seed),
    )


def _read_dataset(paths: ResultPaths, dataset: str) -> InputDataset:
    """Read the page that stands for the data in MLflow: the pixels themselves are too many."""
    path = paths.inspection(dataset) / "summary.json"
    summary = read_json(path, ("dataset", "splits", "rejects"), "run the rule inspect again")
    with as_written(path, "run the rule inspect again"):
        return _dataset_of(summary, paths.store(dataset))


def _dataset_of(summary: Mapping[str, Any], store: Path) -> InputDataset:
    profile = {key: summary[key] for key in ("people", "strips")}
    profile |= {f"{split['split']}_{key}": split[key] for split in summary["splits"] for key in ("people", "strips")}
    if summary["rejects"]:
        profile["rejected_frames"] = summary["rejects"]["frames"]
    context = "training" if any(split["split"] == "train" for split in summary["splits"]) else "testing"
    return InputDataset(summary["dataset"], summary["digest"], str(store), context, profile)


def _milliseconds(time: float) -> int:
    return round(time * 1000)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _tags(start: Mapping[str, Any]) -> dict[str, str]:
    machine = start["machine"]
    on_gpu = "gpus" in machine and start["config"].get("engine.device") != "cpu"
    control = start["config"].get("control")
    if not all(re.fullmatch(r"[\w-]{1,200}", str(start[name])) for name in ("name", "tier")):
        raise ValueError("a name that is none")  # they stand in queries
    tags = {
        "ablation": start["name"],
        "tier": start["tier"],
        "seed": str(start["seed"]),
        "stage": start["stage"],
        "git_commit": machine["commit"],
        "code_fingerprint": start["fingerprint"],
        "config_hash": start["config_hash"],
        "device": machine["gpus" if on_gpu else "processor"],
        "mlflow.source.name": "faze",
        "mlflow.source.type": "LOCAL",
    } | ({"control": control} if control else {})
    return {name: _text(value) for name, value in tags.items()}


def _training_metrics(values: Sequence[LoggedValue]) -> list[MetricValue]:
    """Keep the validation, loss and rate, and of the loss terms as many as there is room for."""
    names = dict.fromkeys(value.metric for value in values if not value.metric.startswith("val/"))
    kept = sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))[:MAX_TRAINING_METRICS]
    return [
        MetricValue(value.metric, value.step, value.value, _milliseconds(value.time))
        for value in values
        if value.metric.startswith("val/") or value.metric in kept
    ]


def _read_results(summary: Path, training: RunRecord) -> list[MetricValue]:
    """Read scalars at step 0 and error curves at step k.

    All bear the time of the training's last value: with that of the evaluation, a value that is measured anew to the
    same number, and sent again after a failure, would stand in MLflow twice.
    """
    place, time_ms = training.place, max((m.time_ms for m in training.training), default=training.start_ms)
    runs = read_json(summary, ("runs",), "run the rule evaluate again")["runs"]
    run = next((run for run in runs if (run["tier"], run["seed"]) == (place.tier, place.seed)), None)
    if run is None:
        raise UserError(f"{summary}: has no run of tier {place.tier}, seed {place.seed}; run the rule evaluate again")
    series = {key: [[0, value]] for key, value in run["metrics"].items()}
    series |= {f"curve/{curve}_deg": points for curve, points in run["curves"].items()}
    return [
        MetricValue(key, int(step), float(value), time_ms)
        for key, points in series.items()
        for step, value in points
        if value is not None
    ]


def _description(training: RunRecord, results: Sequence[MetricValue], run: LoggedRun, keeper: RunPlace) -> str:
    """Write headline numbers, then inactive switches, as markdown: MLflow folds away what follows the fifth line."""
    whose = f"**{training.place.tier}** of the ablation *{training.tags['ablation']}*, seed {training.place.seed}"
    numbers = [f"{m.key} **{m.value:.4g}**" for m in results if m.key.startswith(("error/", "speed/", "memory/"))]
    taken = [f"The same training as {run.reused_from} here: taken over."] if run.reused_from else []
    inactive = [f"{switch['switch']} inactive: {switch['reason']}" for switch in run.switches if switch["reason"]]
    whose_page = "" if keeper == training.place else f" of run {keeper.name}"
    report = f"Figures and intervals: artifact `report/index.html`{whose_page}."
    return "\n\n".join([f"{whose}: {' · '.join(numbers)}", *taken, *inactive, report])
