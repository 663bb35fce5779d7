"""One run as its files tell it: what MLflow is to hold of it. Standard library only."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from faze.base.errors import UserError
from faze.base.files import read_json
from faze.base.result_paths import DATASETS, ResultPaths
from faze.base.run_log import read_events

# MLflow's chart view draws one chart per metric: beyond about twenty, nobody finds the one that matters. The curves of
# error against k come on top, two for each learner that the config names, in a section of their own: none is cut off.
MAX_TRAINING_METRICS = 7
MAX_RESULT_METRICS = 12

# The training's own rate includes validation of the moment and other load; the name belongs to the benchmark's.
RENAMED = {"speed/images_per_s": "train/images_per_s"}


Event = Mapping[str, Any]  # a line of the run log, as faze.base.run_log describes them


class RunPlace(NamedTuple):
    """A run's place in its ablation."""

    tier: str
    seed: int
    rung: int  # of the tier, from 0
    name: str  # rung first, so that MLflow sorts the ladder: 1-amp, or 1-amp-s0 where there are more seeds


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
    ablation: str
    config_hash: str
    fingerprint: str
    start_ms: int
    end_ms: int | None  # None while it trains
    params: Mapping[str, str]
    tags: Mapping[str, str]
    points: Sequence[MetricValue]
    artifacts: Mapping[str, Path] = dataclasses.field(default_factory=dict)  # folder in MLflow -> file or folder
    datasets: Sequence[InputDataset] = ()
    whole: bool = False  # results are in it: a metric that it lacks is out of date

    @property
    def identity(self) -> str:
        """Of the experiment that was done: runs that differ in it are never mixed."""
        parts = [self.ablation, self.place.tier, str(self.place.seed), self.config_hash, self.fingerprint]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def run_places(tiers: Sequence[str], seeds: Sequence[int]) -> list[RunPlace]:
    """Every run of an ablation, in the order of the ladder."""
    return [
        RunPlace(tier, seed, rung, f"{rung}-{tier}" + (f"-s{seed}" if len(seeds) > 1 else ""))
        for rung, tier in enumerate(tiers)
        for seed in seeds
    ]


def read_training(log: Path, place: RunPlace) -> RunRecord:
    """What the run log alone tells, of a training under way as of one that ended.

    Raises:
        UserError: the log does not begin with its start event.
    """
    events = read_events(log)
    if not events or events[0]["event"] != "start":
        raise UserError(f"{log}: has no start event, so nobody knows whose run it is; train that tier again")
    start = events[0]
    ends = [_milliseconds(e) for e in events if e["event"] == "end"]
    return RunRecord(
        place=place,
        ablation=start["name"],
        config_hash=start["config_hash"],
        fingerprint=start["fingerprint"],
        start_ms=_milliseconds(start),
        end_ms=ends[-1] if ends else None,
        params={key: _text(value) for key, value in start["config"].items()},
        tags=_tags(start) | _switches(events),
        points=_training_points(events),
    )


def read_run(paths: ResultPaths, place: RunPlace) -> RunRecord:
    """The training and what was measured of it afterwards.

    Raises:
        UserError: the evaluation has no entry for this run, or a data set has no page.
    """
    run = (place.tier, place.seed)
    training = read_training(paths.run_log(*run), place)
    points = [*training.points, *_result_points(paths.evaluation / "summary.json", *run)]
    artifacts = {"": paths.run_log(*run), "walks": paths.walks(*run), "report": paths.report}
    artifacts |= {f"data/{dataset}": paths.inspection(dataset) for dataset in DATASETS}
    tags = {**training.tags, "mlflow.note.content": _description(training, points)}
    datasets = [_read_dataset(paths, dataset) for dataset in DATASETS]
    return dataclasses.replace(training, points=points, tags=tags, artifacts=artifacts, datasets=datasets, whole=True)


def _read_dataset(paths: ResultPaths, dataset: str) -> InputDataset:
    """From the page that stands for the data in MLflow: the pixels themselves are too many."""
    path = paths.inspection(dataset) / "summary.json"
    if not path.is_file():
        raise UserError(f"{path} is missing: run the rule inspect again")
    summary = read_json(path, ("dataset", "splits", "rejects"), "run the rule inspect again")
    profile = {key: summary[key] for key in ("people", "strips")}
    profile |= {f"{split['split']}_{key}": split[key] for split in summary["splits"] for key in ("people", "strips")}
    if summary["rejects"]:
        profile["rejected_frames"] = summary["rejects"]["frames"]
    trained_on = any(split["split"] == "train" for split in summary["splits"])
    context = "training" if trained_on else "testing"
    return InputDataset(summary["dataset"], summary["digest"], str(paths.store(dataset)), context, profile)


def _milliseconds(event: Event) -> int:
    return round(event["time"] * 1000)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _tags(start: Event) -> dict[str, str]:
    machine = start["machine"]
    on_gpu = "gpus" in machine and start["config"].get("engine.device") != "cpu"
    return {
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


def _switches(events: Sequence[Event]) -> dict[str, str]:
    """switch.<name> -> how it acted, or why not."""
    return {
        f"switch.{event['switch']}": f"inactive: {event['reason']}" if event["reason"] else _text(event["acted"])
        for event in events
        if event["event"] == "switch"
    }


def _training_points(events: Sequence[Event]) -> list[MetricValue]:
    """Validation, loss and rate first, then the loss terms; a step that was done twice counts once."""
    points: dict[tuple[str, int], MetricValue] = {}
    for event in events:
        if event["event"] == "metrics":
            for key, value in event["values"].items():
                if value is not None:
                    key = RENAMED.get(key, key)
                    points[key, event["step"]] = MetricValue(key, event["step"], float(value), _milliseconds(event))
    first = ("train/loss", "train/images_per_s")
    keys = dict.fromkeys(point.key for point in points.values() if not point.key.startswith("val/"))
    kept = sorted(keys, key=lambda key: first.index(key) if key in first else len(first))[:MAX_TRAINING_METRICS]
    return [point for point in points.values() if point.key.startswith("val/") or point.key in kept]


def _result_points(summary: Path, tier: str, seed: int) -> list[MetricValue]:
    """Scalars at step 0 and error curves at step k, all with the time of the evaluation."""
    time_ms = round(summary.stat().st_mtime * 1000)
    found = read_json(summary, ("runs",), "run the rule evaluate again")["runs"]
    runs = [run for run in found if (run["tier"], run["seed"]) == (tier, seed)]
    if not runs:
        raise UserError(f"{summary}: has no run of tier {tier}, seed {seed}; run the rule evaluate again")
    scalars = list(runs[0]["metrics"].items())[:MAX_RESULT_METRICS]
    series = {key: [[0, value]] for key, value in scalars}
    series |= {f"curve/{curve}_deg": points for curve, points in runs[0]["curves"].items()}  # every learner's
    return [
        MetricValue(key, int(step), float(value), time_ms)
        for key, points in series.items()
        for step, value in points
        if value is not None
    ]


def _description(training: RunRecord, points: Sequence[MetricValue]) -> str:
    """Headline numbers first, then inactive switches, as markdown: MLflow folds away what follows the fifth line."""
    whose = f"**{training.place.tier}** of the ablation *{training.ablation}*, seed {training.place.seed}"
    numbers = [f"{p.key} **{p.value:.4g}**" for p in points if p.key.startswith(("error/", "speed/", "memory/"))]
    inactive = [f"{tag.removeprefix('switch.')} {a}" for tag, a in training.tags.items() if a.startswith("inactive: ")]
    report = "Figures and intervals: artifact `report/index.html`."
    return "\n\n".join([f"{whose}: {' · '.join(numbers)}", *inactive, report])
