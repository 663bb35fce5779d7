"""Mirror run records in MLflow as flat runs. Mirroring the same records again changes nothing.

A run is found by its identity. MLflow cannot change a logged value: if a run contains a value that the files no longer
contain, a new run replaces that run. The replaced run is kept and tagged `superseded`.

Three tags record what a run already contains: the number and hash of its training values, the same for its results, and
the hash of its files. They are sent together with the data that they describe, so one search finds everything that is
still missing. MLflow stores identical values (name, step, time and value) only once, so a request can be repeated.
Values are sent before files: if the artifact store is full, no value is missing.

A run's network becomes an external logged model with the run's results and the address of its checkpoint.
"""

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.locks import output_lock
from faze.base.result_paths import ResultPaths
from faze.tracking.run_record import MetricValue, RunPlace, RunRecord, read_training
from faze.tracking.store import Store, at_once, explained, having

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Metric, Run
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

TRAINING, RESULTS, FILES = "held_training", "held_results", "held_files"  # tags of what a run contains
BATCH_METRICS, BATCH_PARAMS = 800, 100  # a request may have 1000 entries: metrics, at most 100 params and 100 tags
FOLDERS = ("report", "walks", "data", "sweep")  # outdated files are removed in these; others belong to users
MODEL_TYPE = "gaze"
MODEL_TAGS = ("ablation", "tier", "seed", "git_commit", "code_fingerprint", "config_hash", "device", "control")
MODEL_PARAMS = ("model.", "engine.")  # prefixes


class Mirrored(NamedTuple):
    """A record and the MLflow run that mirrors it."""

    record: RunRecord
    run: "Run"  # as it was before this call

    @property
    def id(self) -> str:
        """The run's id."""
        return self.run.info.run_id


def mirror_run(store: Store, record: RunRecord) -> str:
    """Mirror one record; see `mirror_runs`."""
    return mirror_runs(store, [record])[0]


def mirror_runs(store: Store, records: Sequence[RunRecord]) -> list[str]:
    """Mirror records of one ablation and return the ids of their runs.

    Raises:
        UserError: the store failed. The run logs still contain every value.
    """
    query = having(records[0].place_tags if len(records) == 1 else {"ablation": records[0].tags["ablation"]})
    # Processes that create runs or data sets at the same time would create them twice.
    with output_lock(store.lock), explained(store.uri):
        mirrored = _find_or_create_runs(store, records, query)
        for one in mirrored:
            _log_datasets(store, one)
        models = _find_or_create_models(store, mirrored, query)
        at_once(lambda one: _log_values(store, one, models.get(one.id)), mirrored)
        _upload_files(store, mirrored)
        at_once(lambda one: _finish(store, one, models.get(one.id)), mirrored)
    return [one.id for one in mirrored]


class Follower:
    """Mirrors the runs of an ablation while they train."""

    def __init__(self, store: Store, paths: ResultPaths, places: Sequence[RunPlace]) -> None:
        self._store, self._paths, self._places = store, paths, places
        self._sizes: Mapping[Path, int] = {}

    def look(self) -> list[str]:
        """Mirror the run logs that have grown and return the names of their runs.

        If the store fails, the failure is reported and the next call retries.
        """
        mirrored, sizes = [], {}
        for place in self._places:
            run = (place.tier, place.seed)
            for log in (self._paths.live_log(*run), self._paths.run_log(*run)):
                try:
                    if not (size := log.stat().st_size):
                        continue
                    if self._sizes.get(log) != size:
                        mirror_run(self._store, read_training(log, place))
                        mirrored.append(place.name)
                    sizes[log] = size
                    break
                except FileNotFoundError:  # not started yet, or ended at this moment and renamed
                    continue
                except UserError as error:
                    print(f"faze ui: {error}", file=sys.stderr)
                    break
        self._sizes = sizes
        return mirrored


def _find_or_create_runs(store: Store, records: Sequence[RunRecord], query: str) -> list[Mirrored]:
    """Find or create the run of each record, and tag every other run in the same place as superseded."""

    def search() -> list["Run"]:
        return store.client.search_runs([store.experiment_id], query, max_results=50_000)

    def find_or_create(record: RunRecord) -> Mirrored:
        fitting = [run for run in runs if _fits(run.data.tags, record)]
        if fitting:
            return Mirrored(record, min(fitting, key=lambda run: run.data.tags["superseded"]))
        own = {"identity": record.identity, "superseded": "false", "mlflow.runColor": record.place.color}
        tags = own | dict.fromkeys((TRAINING, RESULTS), _count_and_hash([])) | record.tags
        # By the experiment's id: processes that set it by name at the same time can get another experiment.
        return Mirrored(record, store.client.create_run(store.experiment_id, record.start_ms, tags, record.place.name))

    runs = search()
    known = {run.info.run_id for run in runs}
    mirrored = at_once(find_or_create, records)
    if any(one.id not in known for one in mirrored):
        runs = search()  # MLflow's client repeats a request whose answer was lost: the run was then created twice
    current = {tuple(one.record.place_tags.items()): one.id for one in mirrored}
    for run in runs:
        place = tuple((name, run.data.tags.get(name)) for name in mirrored[0].record.place_tags)
        if run.info.run_id != current.get(place, run.info.run_id) and run.data.tags.get("superseded") != "true":
            store.client.set_tag(run.info.run_id, "superseded", "true")  # a filter cannot match a missing tag
            store.client.update_run(run.info.run_id, name=f"{run.info.run_name} (superseded)")
    return mirrored


def _count_and_hash(values: Sequence[MetricValue]) -> str:
    text = json.dumps([[value.key, value.step, value.value] for value in values])
    return f"{len(values)} {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _count(tags: Mapping[str, str], tag: str) -> int:
    count = tags[tag].partition(" ")[0]
    return int(count) if count.isdecimal() else 0


def _fits(tags: Mapping[str, str], record: RunRecord) -> bool:
    """Return whether a run has the record's identity and its values are a prefix of the record's values."""
    parts = {TRAINING: record.training, RESULTS: record.results}
    return tags.get("identity") == record.identity and all(
        # A run log alone does not contain results, so any results fit it.
        tag in tags and (values is None or tags[tag] == _count_and_hash(values[: _count(tags, tag)]))
        for tag, values in parts.items()
    )


def _log_datasets(store: Store, one: Mirrored) -> None:
    """Log the data sets that a run read, unless they are already logged."""
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.exceptions import MlflowException

    existing = {(i.dataset.name, i.dataset.digest) for i in one.run.inputs.dataset_inputs}
    inputs = [
        DatasetInput(
            Dataset(d.name, d.digest, "local", json.dumps({"uri": d.store}), profile=json.dumps(d.profile)),
            [InputTag("mlflow.data.context", d.context)],
        )
        for d in one.record.datasets
        if (d.name, d.digest) not in existing
    ]
    if not inputs:
        return
    try:
        store.client.log_inputs(one.id, inputs)
    except MlflowException:  # another machine may have added the same data set at the same moment: it now exists
        store.client.log_inputs(one.id, inputs)


def _log_values(store: Store, one: Mirrored, model: "LoggedModel | None") -> None:
    """Send the parameters, values and tags that the run lacks; also send results to the model."""
    from mlflow.entities import Param, RunTag

    record, data = one.record, one.run.data
    params = [Param(key, value) for key, value in record.params.items() if key not in data.params]
    for first in range(BATCH_PARAMS, len(params), BATCH_PARAMS):
        store.client.log_batch(one.id, params=params[first : first + BATCH_PARAMS])
    params = params[:BATCH_PARAMS]  # with the first values
    wanted = record.tags | {"superseded": "false", "mlflow.runName": record.place.name}
    changed = {key: value for key, value in wanted.items() if data.tags.get(key) != value}
    batches = list(_batches(one, model))
    for metrics, contained in batches or [([], {})] * bool(params or changed):
        tags = [RunTag(*item) for item in (changed | contained).items()]
        store.client.log_batch(one.id, metrics=metrics, params=params, tags=tags)
        changed, params = {}, []


def _batches(one: Mirrored, model: "LoggedModel | None") -> Iterator[tuple[list["Metric"], dict[str, str]]]:
    """Yield the values that the run lacks, each batch with the tag that records it."""
    tags, record = one.run.data.tags, one.record
    for tag, values in ((TRAINING, record.training), (RESULTS, record.results or ())):
        of_model = model if tag == RESULTS else None
        sent = 0 if of_model and not of_model.metrics else _count(tags, tag)
        for first in range(sent, len(values), BATCH_METRICS):
            end = min(first + BATCH_METRICS, len(values))
            metrics = [_metric(value, record, of_model) for value in values[first:end]]
            yield metrics, {tag: _count_and_hash(values[:end])}


def _metric(value: MetricValue, record: RunRecord, model: "LoggedModel | None") -> "Metric":
    """Convert a value to an MLflow metric; link scalars to the model and to the data set that they were measured on."""
    from mlflow.entities import Metric

    fields = {"key": value.key, "value": value.value, "timestamp": value.time_ms, "step": value.step}
    if model and not value.key.startswith("curve/"):
        fields["model_id"] = model.model_id
        measured_on = [dataset for dataset in record.datasets if f"/{dataset.name}_" in value.key]
        if measured_on:  # a name may begin with another one
            dataset = max(measured_on, key=lambda dataset: len(dataset.name))
            fields |= {"dataset_name": dataset.name, "dataset_digest": dataset.digest}
    return Metric(**fields)


def _upload_files(store: Store, mirrored: Sequence[Mirrored]) -> None:
    """Upload the files of runs whose files have changed, and remove outdated files from our folders."""
    changed = []
    for one in mirrored:
        files = dict(_named_files(one.record.artifacts))
        hashes = [f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for name, file in files.items()]
        contained = hashlib.sha256("\n".join(hashes).encode()).hexdigest()[:12]
        if files and one.run.data.tags.get(FILES) != contained:
            changed.append((one, _repository(store, one.run.info.artifact_uri), files, contained))

    at_once(_upload, [(repository, *item) for _, repository, files, _ in changed for item in files.items()])
    for one, repository, files, contained in changed:
        if FILES in one.run.data.tags:
            for name in {name for folder in FOLDERS for name in _names(repository, folder)} - files.keys():
                repository.delete_artifacts(name)
        store.client.set_tag(one.id, FILES, contained)


def _upload(job: tuple["ArtifactRepository", str, Path]) -> None:
    """Upload a file to a repository under a name; MLflow would set the mode of a local file, which drvfs refuses."""
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    repository, name, file = job
    if isinstance(repository, LocalArtifactRepository):
        with whole_file(Path(repository.artifact_dir) / name) as temporary:
            shutil.copyfile(file, temporary)
    else:
        repository.log_artifact(str(file), str(PurePosixPath(name).parent).removeprefix(".") or None)


def _named_files(artifacts: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Yield each file with its name in MLflow. Hidden files belong to Snakemake and are skipped."""
    for folder, path in artifacts.items():
        root = path.parent if path.is_file() else path
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and not file.name.startswith("."):
                yield str(PurePosixPath(folder) / file.relative_to(root)), file


def _repository(store: Store, uri: str) -> "ArtifactRepository":
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    return get_artifact_repository(uri, tracking_uri=store.uri)


def _names(repository: "ArtifactRepository", folder: str) -> Iterator[str]:
    """List the files that a folder in MLflow contains, including those in its subfolders."""
    for item in repository.list_artifacts(folder):
        yield from _names(repository, item.path) if item.is_dir else [item.path]


def _find_or_create_models(store: Store, mirrored: Sequence[Mirrored], query: str) -> dict[str, "LoggedModel"]:
    """Find or create a logged model for each run with results, tag others as superseded, and map run ids to models."""
    from mlflow.utils.mlflow_tags import MLFLOW_MODEL_IS_EXTERNAL

    def search() -> list["LoggedModel"]:
        return store.client.search_logged_models([store.experiment_id], query, max_results=10_000)

    def create(one: Mirrored) -> None:
        record = one.record
        tags = {tag: record.tags[tag] for tag in (*MODEL_TAGS, "reused_from") if tag in record.tags}
        tags |= {"superseded": "false", "checkpoint": str(record.checkpoint), MLFLOW_MODEL_IS_EXTERNAL: "true"}
        params = {key: value for key, value in record.params.items() if key.startswith(MODEL_PARAMS)}
        store.client.create_logged_model(store.experiment_id, record.place.name, one.id, tags, params, MODEL_TYPE)

    found = search()
    existing = {model.source_run_id for model in found}
    if missing := [one for one in mirrored if one.record.results is not None and one.id not in existing]:
        at_once(create, missing)
        found = search()  # a repeated request creates a model twice, too
    current = {tuple(one.record.place_tags.items()): one.id for one in mirrored}
    models: dict[str, LoggedModel] = {}
    for model in sorted(found, key=lambda model: not model.metrics):
        run_id = current.get(tuple((name, model.tags.get(name)) for name in mirrored[0].record.place_tags))
        if run_id is None:
            continue
        replaced = model.source_run_id != run_id or run_id in models
        if not replaced:
            models[run_id] = model
        if model.tags.get("superseded") != str(replaced).lower():
            store.client.set_logged_model_tags(model.model_id, {"superseded": str(replaced).lower()})
    return models


def _finish(store: Store, one: Mirrored, model: "LoggedModel | None") -> None:
    """Mark a run and its model as complete."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models.model import MLMODEL_FILE_NAME
    from mlflow.models.utils import get_external_mlflow_model_spec

    if model:
        outputs = one.run.outputs.model_outputs if one.run.outputs else []
        if model.model_id not in {output.model_id for output in outputs}:
            store.client.log_outputs(one.id, [LoggedModelOutput(model.model_id, 0)])
        if model.status != LoggedModelStatus.READY:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / MLMODEL_FILE_NAME
                get_external_mlflow_model_spec(model).save(file)  # MLflow's registry requires it
                _upload((_repository(store, model.artifact_location), file.name, file))
            store.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    end_ms, info = one.record.end_ms, one.run.info
    if end_ms is not None and (info.status, info.end_time) != ("FINISHED", end_ms):
        store.client.set_terminated(one.id, "FINISHED", end_time=end_ms)
