"""The content of one run in MLflow, read from the run's files. Uses only the standard library."""

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
from faze.base.result_paths import ResultPaths
from faze.base.tier_colors import BASELINE, tier_colors

# MLflow draws one chart per metric, so only a few training metrics are mirrored. Results have sections of their own and
# are all kept.
MAX_TRAINING_METRICS = 7
ALWAYS = ("val/", "train/lr")  # beginnings of metrics that are all kept
FIRST = ("train/loss", "train/images_per_s")  # training metrics that are always kept


class RunPlace(NamedTuple):
    """A run's place in its ablation."""

    tier: str
    seed: int
    name: str  # starts with the tier's number, so that MLflow sorts runs: 1-amp, or 1-amp-s0 if there are several seeds
    color: str  # of the tier, as in the report


class MetricValue(NamedTuple):
    """One value of a metric."""

    key: str
    step: int
    value: float
    time_ms: int


class InputDataset(NamedTuple):
    """A data set that the run read."""

    name: str
    digest: str
    store: str
    context: str  # training | testing
    profile: Mapping[str, Any]  # counts


@dataclass(frozen=True)
class RunRecord:
    """The content of one run in MLflow."""

    place: RunPlace
    start_ms: int
    end_ms: int | None  # None during training
    params: Mapping[str, str]
    tags: Mapping[str, str]
    training: Sequence[MetricValue]  # in the order of the run log, to which a training only appends
    results: Sequence[MetricValue] | None = None  # measured after training; None if only the run log was read
    artifacts: Mapping[str, Path] = dataclasses.field(default_factory=dict)  # folder in MLflow -> file or folder
    datasets: Sequence[InputDataset] = ()
    checkpoint: Path | None = None

    @property
    def identity(self) -> str:
        """A hash that identifies the experiment: runs with different identities are never mixed."""
        parts = [self.tags[name] for name in ("ablation", "tier", "seed", "config_hash", "code_fingerprint")]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

    @property
    def place_tags(self) -> Mapping[str, str]:
        """The tags of the run's place in the ablation. Only one current run has them."""
        return {name: self.tags[name] for name in ("ablation", "tier", "seed")}


def run_places(tiers: Sequence[str], seeds: Sequence[int], controls: Sequence[str] = ()) -> list[RunPlace]:
    """List every run of an ablation in the order of its tiers, followed by its noise controls."""
    digits = len(str(len(tiers) - 1))  # names are sorted as text
    places = [
        RunPlace(tier, seed, f"{number:0{digits}}-{tier}" + (f"-s{seed}" if len(seeds) > 1 else ""), color)
        for number, (tier, color) in enumerate(tier_colors(tiers).items())
        for seed in seeds
    ]
    return places + [RunPlace(control, seeds[0], f"control-{control}", BASELINE) for control in controls]


def read_training(log: Path, place: RunPlace) -> RunRecord:
    """Read a run log, whether or not the run has ended.

    Raises:
        UserError: the log does not begin with its start event, or was modified.
    """
    with as_written(log, "delete it and train that run again"):
        run = read_logged_run(log)
        return RunRecord(
            place=place,
            start_ms=_milliseconds(run.start["time"]),
            end_ms=None if run.ended is None else _milliseconds(run.ended),
            params={key: _text(value) for key, value in run.start["config"].items()},
            tags=_tags(run),
            training=_training_metrics(run.values),
        )


def read_sweep(paths: ResultPaths, places: Sequence[RunPlace]) -> list[RunRecord]:
    """Read the training runs of a sweep. The first run also gets the sweep's page."""
    records = []
    for place in places:
        log = paths.run_log(place.tier, place.seed)
        artifacts = {"": log} | ({} if records else {"sweep": paths.sweep})
        records.append(dataclasses.replace(read_training(log, place), artifacts=artifacts))
    return records


def read_runs(paths: ResultPaths, places: Sequence[RunPlace]) -> list[RunRecord]:
    """Read every run of an ablation. Only the first run gets the report and data pages, which are large."""
    return [read_run(paths, place, pages_in=places[0]) for place in places]


def read_run(paths: ResultPaths, place: RunPlace, pages_in: RunPlace | None = None) -> RunRecord:
    """Read a training run and everything measured afterwards.

    Args:
        paths: paths of the ablation's results.
        place: place of the run.
        pages_in: the run that gets the report and data pages; default: this run.

    Raises:
        UserError: the evaluation has no entry for this run, or a data set's page is missing.
    """
    log, summary = paths.run_log(place.tier, place.seed), paths.evaluation / "summary.json"
    run, training, pages_in = read_ended_run(log), read_training(log, place), pages_in or place
    with as_written(summary, "run the rule evaluate again"):
        results = _read_results(summary, training)
        datasets = list(read_json(summary, ("pixel_sources",), "")["pixel_sources"])
    artifacts = {"": log}
    if datasets and "control" not in training.tags:  # noise controls and other workloads have no walks
        artifacts["walks"] = paths.walks(place.tier, place.seed)
    if place == pages_in:
        artifacts |= {"report": paths.report} | {f"data/{dataset}": paths.inspection(dataset) for dataset in datasets}
    return dataclasses.replace(
        training,
        results=results,
        tags={**training.tags, "mlflow.note.content": _description(training, results, run, pages_in)},
        artifacts=artifacts,
        datasets=[_read_dataset(paths, dataset) for dataset in datasets],
        checkpoint=paths.checkpoint(place.tier, place.seed),
    )


def _read_dataset(paths: ResultPaths, dataset: str) -> InputDataset:
    """Read a data set's digest and counts from its page."""
    path, remedy = paths.inspection(dataset) / "summary.json", "run the rule inspect again"
    summary = read_json(path, ("dataset", "splits", "rejects"), remedy)
    with as_written(path, remedy):
        profile = {key: summary[key] for key in ("people", "strips")}
        profile |= {
            f"{split['split']}_{key}": split[key] for split in summary["splits"] for key in ("people", "strips")
        }
        if summary["rejects"]:
            profile["rejected_frames"] = summary["rejects"]["frames"]
        context = "training" if "train_people" in profile else "testing"
        return InputDataset(summary["dataset"], summary["digest"], str(paths.store(dataset)), context, profile)


def _milliseconds(time: float) -> int:
    return round(time * 1000)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _tags(run: LoggedRun) -> dict[str, str]:
    start, machine = run.start, run.start["machine"]
    on_gpu = "gpus" in machine and start["config"].get("engine.device") != "cpu"
    if not all(re.fullmatch(r"[\w-]{1,200}", str(start[name])) for name in ("name", "tier")):
        raise ValueError("an invalid name or tier")  # they are inserted into MLflow's queries
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
    }
    for switch in run.switches:
        reason = switch["reason"]
        tags[f"switch.{switch['switch']}"] = f"inactive: {reason}" if reason else switch["acted"]
    optional = {"control": start["config"].get("control"), "reused_from": run.reused_from}
    return {name: _text(value) for name, value in (tags | {k: v for k, v in optional.items() if v}).items()}


def _training_metrics(values: Sequence[LoggedValue]) -> list[MetricValue]:
    """Keep validation, learning rates and up to MAX_TRAINING_METRICS others, starting with loss and throughput."""
    names = dict.fromkeys(value.metric for value in values if not value.metric.startswith(ALWAYS))
    kept = sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))[:MAX_TRAINING_METRICS]
    return [
        MetricValue(value.metric, value.step, value.value, _milliseconds(value.time))
        for value in values
        if value.metric.startswith(ALWAYS) or value.metric in kept
    ]


def _read_results(summary: Path, training: RunRecord) -> list[MetricValue]:
    """Read scalars as values at step 0, and error curves with k as the step.

    All values have the timestamp of the last training value. With the timestamp of the evaluation, a value that is
    recomputed unchanged, or sent again after a failure, would appear in MLflow twice.
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


def _description(training: RunRecord, results: Sequence[MetricValue], run: LoggedRun, pages_in: RunPlace) -> str:
    """Return a Markdown description: headline numbers, then inactive switches. MLflow shows only five lines."""
    title = f"**{training.place.tier}** of the ablation *{training.tags['ablation']}*, seed {training.place.seed}"
    numbers = [f"{m.key} **{m.value:.4g}**" for m in results if m.key.startswith(("error/", "speed/", "memory/"))]
    reused = (
        [f"The training run of {run.reused_from} was reused, since it is identical on this machine."]
        if run.reused_from
        else []
    )
    config = run.start["config"]
    given = [f"Evaluated with given weights, `{config['train.start']}`."] if config.get("train.pairs") == 0 else []
    inactive = [f"{switch['switch']} inactive: {switch['reason']}" for switch in run.switches if switch["reason"]]
    of_run = "" if pages_in == training.place else f" of run {pages_in.name}"
    report = f"Figures and intervals: artifact `report/index.html`{of_run}."
    return "\n\n".join([f"{title}: {' · '.join(numbers)}", *given, *reused, *inactive, report])
