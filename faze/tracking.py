"""Mirror an ablation's files in MLflow: one flat run per tier and seed. The files contain every value.

MLflow cannot change a logged value, so a changed training run or result becomes a new run, and the old one is tagged
`superseded`. Mirroring the same files again changes nothing. The `faze.*` tags record what faze wrote, so that it does
not overwrite names and descriptions that people edited in MLflow.
"""
# ruff: noqa: E402

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock
from sqlalchemy.exc import SQLAlchemyError

# By default, mlflow reports its use over the network, retries a dead server for minutes, and prints passwords in URLs.
os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
os.environ |= {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_LOGGING_LEVEL": "WARNING"}
os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModel, LoggedModelOutput, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.run_log import LoggedRun, LoggedValue
from faze.base.tier_colors import BASELINE, tier_colors
from faze.config.parameters import Tracking

SQLITE = "sqlite:///"
RECORD = "record.json"  # artifact of a run
COLUMNS = ("error/", "score/", "speed/", "memory/", "proof/")  # metrics in the shared view
MODEL_TAGS = ("ablation", "tier", "seed", "config_hash", "code_fingerprint", "git_commit", "device", "control")


class Place(NamedTuple):
    """A run's place in its ablation. Its name begins with the tier's number, so that MLflow sorts runs by tier."""

    tier: str
    seed: int
    name: str
    color: str


class Outcome(NamedTuple):
    """One run's results from the stages after training."""

    results: Mapping[str, Any]  # the run's entry in summary.json
    report: str  # location of the report, for the description
    files: Mapping[str, Path]  # name in MLflow -> file
    data_sets: Sequence[DatasetInput]
    checkpoint: Path | None = None
    record: Mapping[str, Any] | None = None  # see faze.evaluation.records


def places(tiers: Sequence[str], seeds: Sequence[int], controls: Sequence[str] = ()) -> list[Place]:
    """List every run of an ablation in tier order, followed by the noise controls."""
    digits = len(str(len(tiers) - 1))
    found = [
        Place(tier, seed, f"{number:0{digits}}-{tier}" + (f"-s{seed}" if len(seeds) > 1 else ""), color)
        for number, (tier, color) in enumerate(tier_colors(tiers).items())
        for seed in seeds
    ]
    return found + [Place(control, seeds[0], f"control-{control}", BASELINE) for control in controls]


def data_set(name: str, digest: str, store: Path, counts: Mapping[str, int]) -> DatasetInput:
    """Describe a data set that the runs used."""
    data = Dataset(name, digest, "local", json.dumps({"uri": str(store)}), profile=json.dumps(counts))
    return DatasetInput(data, [InputTag("mlflow.data.context", "training" if "train_people" in counts else "testing")])


def bare(text: str) -> str:
    """Remove user names and passwords from the addresses in a text."""
    return re.sub(r"//\S*@", "//", text)


@contextlib.contextmanager
def explained(uri: str) -> Iterator[None]:
    """Convert errors from the store into a UserError with a remedy."""
    try:
        yield
    except (MlflowException, SQLAlchemyError, ImportError, OSError) as error:
        reason = bare(" ".join(str(error).split()))[:400].rstrip(".")
        remedy = "check tracking.uri, or MLFLOW_TRACKING_URI, and run the same command again once the store responds"
        raise UserError(f"MLflow store {bare(uri)}: {reason}. The run logs contain all values; {remedy}") from error


class Store:
    """An open MLflow store and its experiment."""

    def __init__(self, tracking: Tracking, results: Path) -> None:
        """Open the configured store, else $MLFLOW_TRACKING_URI, else results/mlflow.db; create whatever is missing."""
        database = results.resolve() / "mlflow.db"
        self.uri = tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{database}"
        if self.uri.startswith(SQLITE):
            database = Path(self.uri.removeprefix(SQLITE)).resolve()
            self.uri = f"{SQLITE}{database}"
        self.is_server = self.uri.startswith("http")
        # Without a lock, processes that open an empty database at once would corrupt it and create runs twice.
        database.parent.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(database.with_name(f".{database.name}.lock"))
        with self.lock, explained(self.uri):
            if self.uri.startswith(SQLITE) and not database.exists():
                with whole_file(database) as temporary:  # if killed here, no broken database is left
                    MlflowClient(f"{SQLITE}{temporary}").search_experiments(max_results=1)
            self.client = MlflowClient(self.uri)
            artifacts = None if self.is_server else (database.parent / "mlartifacts").as_uri()
            self.experiment_id = self._find_or_create_experiment(tracking.experiment, artifacts)

    def _find_or_create_experiment(self, name: str, artifacts: str | None) -> str:
        """Find the experiment by faze's tag (people may rename it) or by its name, or create it; return its id."""
        every = self.client.search_experiments(view_type=3, filter_string=f"tags.`faze.experiment` = '{name}'")
        found = every[0] if every else self.client.get_experiment_by_name(name)
        if not found:
            return self.client.create_experiment(name, artifacts, {"faze.experiment": name})
        if found.lifecycle_stage != "active":
            raise UserError(f"MLflow's experiment {name!r} was deleted: restore it, or set tracking.experiment")
        self.client.set_experiment_tag(found.experiment_id, "faze.experiment", name)
        return found.experiment_id

    def mirror(self, run: LoggedRun, place: Place, outcome: Outcome | None = None) -> str:
        """Mirror a run and, if given, its outcome; return the run's id. A failed call can be repeated."""
        tags, params = _tags(run), _texts(run.start["config"])
        results = _results(run, outcome.results) if outcome else []
        with self.lock, explained(self.uri):
            found = self._find_or_create_run(run, place, tags, _hash(results) if outcome else None)
            run_id, held = found.info.run_id, found.data.tags
            sent = int(held.get("faze.values", 0))  # a resumed run repeats values, with new times
            metrics = [_metric(value) for value in run.values[sent:]]
            tags["faze.values"] = str(max(sent, len(run.values)))
            texts = {"mlflow.runName": place.name}
            if outcome:
                tags |= {"faze.results": _hash(results), "has_record": str(bool(outcome.record)).lower()}
                texts["mlflow.note.content"] = _description(run, results, outcome.report)
                model = None
                if outcome.checkpoint:
                    tags["checkpoint"] = str(outcome.checkpoint)
                    model = self._find_or_create_model(run_id, place.name, tags, params)
                metrics += [_metric(value, model, outcome.data_sets) for value in results]
            for name, text in texts.items():
                if held.get(f"faze.{name}", _hash(None)) == _hash(held.get(name)):
                    tags |= {name: text, f"faze.{name}": _hash(text)}
            for first in range(0, len(metrics), 1000):  # a request must not contain more
                self.client.log_batch(run_id, metrics[first : first + 1000])
            self.client.log_batch(run_id, (), [Param(*p) for p in params.items()], [RunTag(*t) for t in tags.items()])
            if outcome:  # files come last: if their disk is full, no value is lost
                self.client.log_inputs(run_id, list(outcome.data_sets))
                for name, file in outcome.files.items():
                    self.client.log_artifact(run_id, str(file), os.path.dirname(name))
                if outcome.record:
                    self.client.log_dict(run_id, dict(outcome.record), RECORD)
            if run.ended:
                self.client.set_terminated(run_id, "FINISHED", round(1000 * run.ended))
        return run_id

    def _find_or_create_run(self, run: LoggedRun, place: Place, tags: Mapping[str, str], results: str | None) -> Run:
        """Return the MLflow run for a training run and result; tag others of the same tier and seed as superseded."""
        query = " and ".join(f"tags.{name} = '{tags[name]}'" for name in ("ablation", "tier", "seed"))
        current = self.client.search_runs([self.experiment_id], f"{query} and tags.superseded = 'false'")
        found = None
        for one in current:
            held = one.data.tags
            if held.get("identity") == tags["identity"] and results in (None, held.get("faze.results", results)):
                found = one
        if not found:
            own = {"superseded": "false", "mlflow.runColor": place.color, "faze.mlflow.runName": _hash(place.name)}
            found = self.client.create_run(self.experiment_id, round(1000 * run.start["time"]), own | tags, place.name)
        for one in current:
            if one.info.run_id != found.info.run_id:
                for output in one.outputs.model_outputs:
                    self.client.set_logged_model_tags(output.model_id, {"superseded": "true"})
                if one.data.tags.get("faze.mlflow.runName") == _hash(one.info.run_name):
                    name = f"{place.name} (earlier, {one.data.tags['git_commit'][:9]})"
                    self.client.set_tag(one.info.run_id, "mlflow.runName", name)
                self.client.set_tag(one.info.run_id, "superseded_by", found.info.run_id)
                self.client.set_tag(one.info.run_id, "superseded", "true")
        return found

    def records(self, **tags: str) -> list[dict[str, Any]]:
        """Return the records of all runs with these tags, newest first, each with its `run` (id) and `run_name`."""
        query = " and ".join(f"tags.{name} = '{value}'" for name, value in (tags | {"has_record": "true"}).items())
        with explained(self.uri), tempfile.TemporaryDirectory() as folder:
            found = []
            for run in self.client.search_runs([self.experiment_id], query):
                path = Path(self.client.download_artifacts(run.info.run_id, RECORD, folder))
                found.append(json.loads(path.read_bytes()) | {"run": run.info.run_id, "run_name": run.info.run_name})
        return sorted(found, key=lambda record: record["time"], reverse=True)

    def _find_or_create_model(self, run_id: str, name: str, tags: Mapping, params: Mapping) -> LoggedModel:
        """Return a run's logged model, which holds its results and checkpoint path, but no weights."""
        found = self.client.search_logged_models([self.experiment_id], f"source_run_id = '{run_id}'")
        if found and found[0].status == "READY":
            return found[0]
        own = {tag: tags[tag] for tag in MODEL_TAGS if tag in tags}
        own |= {"superseded": "false", "checkpoint": tags["checkpoint"], "mlflow.model.isExternal": "true"}
        settings = {key: value for key, value in params.items() if key.startswith(("model.", "engine."))}
        model = self.client.create_logged_model(self.experiment_id, name, run_id, own, settings, "gaze")
        self.client.log_outputs(run_id, [LoggedModelOutput(model.model_id, 0)])
        return self.client.finalize_logged_model(model.model_id, "READY")

    def share_view(self, ablation: str, port: int = 5000) -> str:
        """Store a view of an ablation, with runs in tier order and results as columns, and return its address."""
        query = f"tags.ablation = '{ablation}' and tags.superseded = 'false'"
        with explained(self.uri):
            runs = self.client.search_runs([self.experiment_id], query)
            keys = sorted({key for run in runs for key in run.data.metrics})
            columns = [f"metrics.`{key}`" for group in COLUMNS for key in keys if key.startswith(group)]
            state = {"searchFilter": query, "orderByKey": "tags.`mlflow.runName`", "orderByAsc": True}
            state |= {"selectedColumns": columns, "columnOrder": columns, "columnWidths": dict.fromkeys(columns, 190)}
            self.client.set_experiment_tag(self.experiment_id, f"mlflow.sharedViewState.{ablation}", json.dumps(state))
        host = bare(self.uri).rstrip("/") if self.is_server else f"http://127.0.0.1:{port}"
        page = f"viewStateShareKey={ablation}&compareRunsMode=CHART&workflowType=machine_learning"
        return f"{host}/#/experiments/{self.experiment_id}/runs?{page}"


def _results(run: LoggedRun, found: Mapping[str, Any]) -> list[LoggedValue]:
    """Return scalar results at step 0 and curves with k as the step, all timestamped like the last training value."""
    time = max((value.time for value in run.values), default=run.start["time"])  # the same whenever they are sent
    series = {name: [[0, value]] for name, value in found["metrics"].items()}
    series |= {f"curve/{name}_deg": points for name, points in found.get("curves", {}).items()}
    return [LoggedValue(name, k, v, time) for name, points in series.items() for k, v in points if v is not None]


def _metric(value: LoggedValue, model: LoggedModel | None = None, data_sets: Sequence[DatasetInput] = ()) -> Metric:
    """Convert a value to a metric; link a scalar result to its model and to the data set it names (error/NAME_deg)."""
    links = {}
    if model and not value.metric.startswith("curve/"):
        links["model_id"] = model.model_id
        for one in sorted(data_sets, key=lambda one: len(one.dataset.name)):  # the longest match wins
            if f"/{one.dataset.name}_" in value.metric:
                links |= {"dataset_name": one.dataset.name, "dataset_digest": one.dataset.digest}
    return Metric(value.metric, value.value, round(1000 * value.time), value.step, **links)


def _tags(run: LoggedRun) -> dict[str, str]:
    start, machine = run.start, run.start["machine"]
    on_gpu = "gpus" in machine and start["config"].get("engine.device") != "cpu"
    tags = {name: start[name] for name in ("tier", "seed", "stage", "config_hash")}
    tags |= {"ablation": start["name"], "code_fingerprint": start["fingerprint"], "git_commit": machine["commit"]}
    tags |= {"device": machine["gpus" if on_gpu else "processor"], "mlflow.source.name": "faze"}
    if start["config"].get("control"):
        tags["control"] = start["config"]["control"]
    for switch in run.switches:
        tags[f"switch.{switch['switch']}"] = f"inactive: {switch['reason']}" if switch["reason"] else switch["acted"]
    identity = ("name", "tier", "seed", "config_hash", "fingerprint", "time")
    return _texts(tags | {"identity": _hash([start[name] for name in identity])})


def _description(run: LoggedRun, results: Sequence[LoggedValue], report: str) -> str:
    """Return a Markdown description: headline numbers, then inactive switches. MLflow shows only five lines."""
    start, shown = run.start, ("error/", "speed/", "memory/")
    numbers = " · ".join(f"{one.metric} **{one.value:.4g}**" for one in results if one.metric.startswith(shown))
    title = f"**{start['tier']}** of *{start['name']}*, seed {start['seed']}: {numbers}"
    inactive = [f"{switch['switch']} inactive: {switch['reason']}" for switch in run.switches if switch["reason"]]
    return "\n\n".join([title, *inactive, f"Figures and intervals: {report}."])


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
