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

# What one request of MLflow takes at most.
BATCH_METRICS, BATCH_PARAMS = 1000, 100


def mirror_run(store: Store, record: RunRecord) -> str:
    """Make the store hold a record; return the id of its run.

    Raises:
        UserError: the store failed; the run log still holds everything.
    """
    with store.alone():
        run_id, stored = _find(store, record) or (_create(store, record), set())
        _supersede_others(store, record, run_id)
        _log_datasets(store, run_id, record.datasets)  # runs share them: two processes would add the same one
    with explained(store.uri):
        _describe(store, record, run_id)
        _log_metrics(store, run_id, [m for m in record.metrics if (m.key, m.step, m.value) not in stored])
        for folder, path in record.artifacts.items():
            _replace_artifacts(store, run_id, path, folder)
        if record.end_ms is not None:
            store.client.set_terminated(run_id, "FINISHED", end_time=record.end_ms)
    return run_id


def _search(store: Store, **tags: str) -> list["Run"]:
    """Find the runs with these tags, the current one first."""
    text = " and ".join(f"tags.{tag} = '{value}'" for tag, value in tags.items())
    runs = store.client.search_runs([store.experiment_id], text, max_results=1000)
    return sorted(runs, key=lambda run: run.data.tags["superseded"] == "true")


def _find(store: Store, record: RunRecord) -> tuple[str, set[tuple[str, int, float]]] | None:
    """Find the run of this identity that holds nothing but what the record holds, with its (metric, step, value)."""
    wanted = {(m.key, m.step, m.value) for m in record.metrics}
    keys = {m.key for m in record.metrics}
    for run in _search(store, identity=record.identity):
        histories = (store.client.get_metric_history(run.info.run_id, key) for key in run.data.metrics)
        stored = {(m.key, m.step, m.value) for history in histories for m in history}
        if all(value in wanted for value in stored if record.whole or value[0] in keys):
            return run.info.run_id, stored
    return None


def _create(store: Store, record: RunRecord) -> str:
    """Create a run by the experiment's id: by name, processes that start together use another experiment."""
    tags = {"identity": record.identity, "superseded": "false", "mlflow.runColor": record.place.color}
    return store.client.create_run(
        store.experiment_id, record.start_ms, {**tags, **record.place_tags}, record.place.name
    ).info.run_id


def _supersede_others(store: Store, record: RunRecord, run_id: str) -> None:
    """Tag the runs that this one replaces. The view shows those tagged false: no filter matches a missing tag."""
    for run in _search(store, **record.place_tags, superseded="false"):
        if run.info.run_id != run_id:
            store.client.set_tag(run.info.run_id, "superseded", "true")
            store.client.update_run(run.info.run_id, name=f"{run.info.run_name} (superseded)")
    store.client.set_tag(run_id, "superseded", "false")


def _describe(store: Store, record: RunRecord, run_id: str) -> None:
    from mlflow.entities import Param, RunTag

    params = [Param(key, value) for key, value in record.params.items()]
    for first in range(0, len(params), BATCH_PARAMS):
        store.client.log_batch(run_id, params=params[first : first + BATCH_PARAMS])
    store.client.log_batch(run_id, tags=[RunTag(key, value) for key, value in record.tags.items()])
    store.client.update_run(run_id, name=record.place.name)


def _log_metrics(store: Store, run_id: str, values: Sequence[MetricValue]) -> None:
    from mlflow.entities import Metric

    metrics = [Metric(m.key, m.value, m.time_ms, m.step) for m in values]
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
