"""What an MLflow run holds of its record, told by the run itself, and the requests that bring the rest.

Two tags say how many values a run holds, and their digest: those of the training, then the results. They travel with
the values of which they speak. Between the two the server may die: then the same values are sent again, and MLflow
keeps one of two that agree in name, step, time and value.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from faze.tracking.run_record import MetricValue, RunRecord

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Metric, Run

# One request of MLflow takes 1000 entries: values, and at most 100 params and 100 tags.
BATCH_METRICS, BATCH_PARAMS = 800, 100

TRAINING, RESULTS = "held_training", "held_results"  # tags

Item = TypeVar("Item")


class Held(NamedTuple):
    """A record and the run that is to hold it."""

    record: RunRecord
    run: "Run"  # as the store had it before
    is_new: bool

    @property
    def id(self) -> str:
        """The run's."""
        return self.run.info.run_id


def common_tags(records: Sequence[RunRecord]) -> Mapping[str, str]:
    """Give the tags by which the records' ablation is found, or the place of a single one."""
    return records[0].place_tags if len(records) == 1 else {"ablation": records[0].tags["ablation"]}


def _count_and_digest(values: Sequence[MetricValue]) -> str:
    text = json.dumps([[value.key, value.step, value.value] for value in values])
    return f"{len(values)} {hashlib.sha256(text.encode()).hexdigest()[:12]}"


EMPTY = dict.fromkeys((TRAINING, RESULTS), _count_and_digest([]))


def is_empty(tags: Mapping[str, str]) -> bool:
    """Tell whether a run with these tags holds no value yet."""
    return EMPTY.items() <= tags.items()


def fits(tags: Mapping[str, str], record: RunRecord) -> bool:
    """Tell whether a run with these tags holds nothing but the first values of the record.

    A run log alone says nothing of results, so any fit it.
    """
    parts = {TRAINING: record.training, RESULTS: record.results}
    return all(
        tag in tags and (values is None or tags[tag] == _count_and_digest(values[: _count(tags, tag)]))
        for tag, values in parts.items()
    )


def _count(tags: Mapping[str, str], tag: str) -> int:
    count = tags.get(tag, "").partition(" ")[0]
    return int(count) if count.isdecimal() else 0


def value_requests(one: Held, model: "LoggedModel | None") -> Iterator[dict[str, Any]]:
    """Yield what log_batch is to be given until the run holds its record's values, params and tags.

    Params go first: a run that holds a value holds all of them.

    Args:
        one: the record and its run.
        model: the logged model, which gets the results too.
    """
    from mlflow.entities import Param, RunTag

    tags, record = one.run.data.tags, one.record
    changed = {key: value for key, value in record.tags.items() if tags.get(key) != value}
    params = [Param(key, value) for key, value in record.params.items()] if _count(tags, TRAINING) == 0 else []
    first = [{"params": chunk} for chunk in _chunks(params, BATCH_PARAMS)]
    rest: list[dict[str, Any]] = []
    for tag, values in ((TRAINING, record.training), (RESULTS, record.results or ())):
        of_model = model if tag == RESULTS else None
        sent = 0 if of_model and not of_model.metrics else _count(tags, tag)
        for chunk in _chunks(values[sent:], BATCH_METRICS):
            sent += len(chunk)
            metrics = [_metric(value, record, of_model) for value in chunk]
            rest.append({"metrics": metrics, "tags": {tag: _count_and_digest(values[:sent])}})
    if first and rest:
        rest[0] |= first.pop()
    for request in [*first, *rest] or [{}] * bool(changed):
        entries = request.pop("tags", {}) | changed
        yield request | {"tags": [RunTag(key, value) for key, value in entries.items()]}
        changed = {}


def _metric(value: MetricValue, record: RunRecord, model: "LoggedModel | None") -> "Metric":
    """Make MLflow's own; a model gets the scalars, each with the data set that it was measured on."""
    from mlflow.entities import Metric

    fields = {"key": value.key, "value": value.value, "timestamp": value.time_ms, "step": value.step}
    if model is None or value.key.startswith("curve/"):
        return Metric(**fields)
    measured_on = next((d for d in record.datasets if f"/{d.name}_" in value.key), None)
    name, digest = (measured_on.name, measured_on.digest) if measured_on else (None, None)
    return Metric(**fields, model_id=model.model_id, dataset_name=name, dataset_digest=digest)


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
