"""Check that an MLflow store contains everything in the files of an ablation exactly once."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from data_sets import DATASETS

from faze.base.result_paths import ResultPaths
from faze.tracking.run_record import MetricValue, RunPlace, RunRecord, read_runs
from faze.tracking.store import Store, current_runs

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Run


def values_of(record: RunRecord) -> list[MetricValue]:
    return [*record.training, *(record.results or ())]


def points(store: Store, run_id: str) -> list[tuple]:
    keys = store.client.get_run(run_id).data.metrics
    return sorted(
        (m.key, m.step, m.value, m.timestamp) for k in keys for m in store.client.get_metric_history(run_id, k)
    )


def artifacts(store: Store, run_id: str, folder: str = "") -> set[str]:
    found = set()
    for item in store.client.list_artifacts(run_id, folder):
        found |= artifacts(store, run_id, item.path) if item.is_dir else {item.path}
    return found


def names_of(record: RunRecord) -> set[str]:
    named = set()
    for name, path in record.artifacts.items():
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        root = path.parent if path.is_file() else path
        named |= {str(Path(name) / file.relative_to(root)) for file in files if not file.name.startswith(".")}
    return named


def assert_mirrored(store: Store, paths: ResultPaths, places: Sequence[RunPlace]) -> None:
    """Check for missing and duplicate current runs, values, params, tags, data sets, files, models."""
    of_ablation = current_runs(paths.root.name)
    runs = store.client.search_runs([store.experiment_id], of_ablation)
    models = store.client.search_logged_models([store.experiment_id], of_ablation)
    assert Counter(run.info.run_name for run in runs) == Counter(place.name for place in places)
    assert Counter(m.source_run_id for m in models) == Counter(run.info.run_id for run in runs)
    by_name = {run.info.run_name: run for run in runs}
    by_run = {model.source_run_id: model for model in models}
    for record in read_runs(paths, places):
        run = by_name[record.place.name]
        assert_run(store, run, record)
        assert_model(by_run[run.info.run_id], run, record)


def assert_run(store: Store, run: "Run", record: RunRecord) -> None:
    assert points(store, run.info.run_id) == sorted(tuple(point) for point in values_of(record))
    assert run.data.params == record.params
    assert record.tags.items() | {("superseded", "false")} <= run.data.tags.items()
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("FINISHED", record.start_ms, record.end_ms)
    assert Counter(i.dataset.name for i in run.inputs.dataset_inputs) == Counter(DATASETS)
    assert artifacts(store, run.info.run_id) == names_of(record)
    with tempfile.TemporaryDirectory() as folder:
        held = Path(store.client.download_artifacts(run.info.run_id, "run.jsonl", folder))
        assert held.read_bytes() == record.artifacts[""].read_bytes()


def assert_model(model: "LoggedModel", run: "Run", record: RunRecord) -> None:
    from mlflow.entities import LoggedModelStatus

    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
    assert model.status == LoggedModelStatus.READY
    assert model.tags["superseded"] == "false"
    scalars = [(m.key, m.value) for m in record.results if not m.key.startswith("curve/")]
    assert sorted((m.key, m.value) for m in model.metrics) == sorted(scalars)
    digests = {d.name: d.digest for d in record.datasets}
    for metric in model.metrics:
        named = sorted((name for name in digests if f"/{name}_" in metric.key), key=len, reverse=True)
        assert [metric.dataset_name, metric.dataset_digest] == (
            [named[0], digests[named[0]]] if named else [None, None]
        )
