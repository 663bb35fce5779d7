"""A record -> one flat MLflow run. Doing it twice changes nothing.

A run is found again by its identity. MLflow never takes a value back: where a run holds one that the files no longer
hold (measured anew, say), a new run takes its place. The replaced run stays, tagged `superseded`, and can be compared.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from faze.tracking.run_record import InputDataset, MetricValue, RunRecord
from faze.tracking.store import Store, explained

if TYPE_CHECKING:
    from mlflow.entities import Run

Held = set[tuple[str, int, float]]  # (metric, step, value) that a run holds

# What one request of MLflow takes at most.
BATCH_METRICS, BATCH_PARAMS = 1000, 100

# A rung keeps its colour in every chart; left to itself, MLflow gives two of five runs the same. (Wong's palette.)
COLORS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#999999")


def mirror_run(store: Store, record: RunRecord) -> str:
    """Make the store hold a record; give the id of its run.

    Raises:
        UserError: the store failed; the run log still holds everything.
    """
    with store.alone():
        run_id, held = _find(store, record) or (_create(store, record), set())
        _supersede_others(store, record, run_id)
        _log_datasets(store, run_id, record.datasets)  # runs share them: two processes would add the same one
    with explained(store.uri):
        _describe(store, record, run_id)
        _log_points(store, run_id, [p for p in record.points if (p.key, p.step, p.value) not in held])
        for folder, path in record.artifacts.items():
            _replace_artifacts(store, run_id, path, folder)
        if record.end_ms is not None:
            store.client.set_terminated(run_id, "FINISHED", end_time=record.end_ms)
    return run_id


def _search(store: Store, **tags: str) -> list["Run"]:
    """Runs with these tags, the current one first."""
    text = " and ".join(f"tags.{tag} = '{value}'" for tag, value in tags.items())
    runs = store.client.search_runs([store.experiment_id], text, max_results=1000)
    return sorted(runs, key=lambda run: run.data.tags["superseded"] == "true")


def _find(store: Store, record: RunRecord) -> tuple[str, Held] | None:
    """The run of this identity that holds nothing but what the record holds."""
    wanted = {(p.key, p.step, p.value) for p in record.points}
    keys = {p.key for p in record.points}
    for run in _search(store, identity=record.identity):
        held = _held(store, run)
        if all(value in wanted for value in held if record.whole or value[0] in keys):
            return run.info.run_id, held
    return None


def _held(store: Store, run: "Run") -> Held:
    run_id = run.info.run_id
    return {(m.key, m.step, m.value) for key in run.data.metrics for m in store.client.get_metric_history(run_id, key)}


def _create(store: Store, record: RunRecord) -> str:
    """By the experiment's id: by name, processes that start together file runs under another experiment."""
    color = COLORS[record.place.rung % len(COLORS)]
    tags = {"identity": record.identity, **_place(record), "superseded": "false", "mlflow.runColor": color}
    run = store.client.create_run(store.experiment_id, record.start_ms, tags, record.place.name)
    return run.info.run_id


def _place(record: RunRecord) -> dict[str, str]:
    """Tags of a run's place in the ablation, which only one current run can hold."""
    return {"ablation": record.ablation, "tier": record.place.tier, "seed": str(record.place.seed)}


def _supersede_others(store: Store, record: RunRecord, run_id: str) -> None:
    """The view shows runs whose tag says false: MLflow's filters never match a tag that is missing."""
    for run in _search(store, **_place(record), superseded="false"):
        if run.info.run_id != run_id:
            store.client.set_tag(run.info.run_id, "superseded", "true")
            store.client.update_run(run.info.run_id, name=f"{run.info.run_name} (superseded)")
    store.client.set_tag(run_id, "superseded", "false")


def _describe(store: Store, record: RunRecord, run_id: str) -> None:
    from mlflow.entities import Param, RunTag

    params = [Param(key, value) for key, value in record.params.items()]
    tags = [RunTag(key, value) for key, value in record.tags.items()]
    for first in range(0, len(params), BATCH_PARAMS):
        store.client.log_batch(run_id, params=params[first : first + BATCH_PARAMS])
    store.client.log_batch(run_id, tags=tags)
    store.client.update_run(run_id, name=record.place.name)


def _log_points(store: Store, run_id: str, points: list[MetricValue]) -> None:
    from mlflow.entities import Metric

    metrics = [Metric(p.key, p.value, p.time_ms, p.step) for p in points]
    for first in range(0, len(metrics), BATCH_METRICS):
        store.client.log_batch(run_id, metrics=metrics[first : first + BATCH_METRICS])


def _log_datasets(store: Store, run_id: str, datasets: Sequence[InputDataset]) -> None:
    """Name the data sets that a run read; one of the same digest is named once, however often it is logged."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    inputs = [
        DatasetInput(
            Dataset(d.name, d.digest, "local", json.dumps({"uri": d.store}), profile=json.dumps(d.profile)),
            [InputTag("mlflow.data.context", d.context)],
        )
        for d in datasets
    ]
    if inputs:
        store.client.log_inputs(run_id, inputs)


def _replace_artifacts(store: Store, run_id: str, path: Path, folder: str) -> None:
    """Upload a file or a folder's content; what lies in the run's folder besides is out of date and goes."""
    if path.is_file():
        store.client.log_artifact(run_id, str(path), folder or None)
        return
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    # Hidden files are the workflow's own marks.
    files = [file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".")]
    new = {f"{folder}/{file.relative_to(path)}" for file in files}
    repository = get_artifact_repository(store.client.get_run(run_id).info.artifact_uri, tracking_uri=store.uri)
    for old in set(_files(store, run_id, folder)) - new:
        repository.delete_artifacts(old)
    for file in files:
        store.client.log_artifact(run_id, str(file), str(PurePosixPath(folder) / file.relative_to(path).parent))


def _files(store: Store, run_id: str, folder: str) -> Iterator[str]:
    for item in store.client.list_artifacts(run_id, folder):
        if item.is_dir:
            yield from _files(store, run_id, item.path)
        else:
            yield item.path
