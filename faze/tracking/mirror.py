"""Records -> flat MLflow runs. Doing it twice changes nothing.

A run is found again by its identity. MLflow never takes a value back: where a run holds one that the files no longer
hold (measured anew, say), a new run takes its place. The replaced run stays, tagged `superseded`, and can be compared.

What a run holds is told by tags of its own (`run_contents`), so one search tells what is left to do in all runs of an
ablation. What is left is sent in the order of its worth: values, then files, then the end.
"""

import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from faze.tracking.artifacts import upload_artifacts
from faze.tracking.logged_models import end_models, make_models
from faze.tracking.run_contents import EMPTY, Held, common_tags, fits, is_empty, value_requests
from faze.tracking.run_record import InputDataset, RunRecord
from faze.tracking.store import Store, at_once, explained, having

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, LoggedModel, Run


def mirror_run(store: Store, record: RunRecord) -> str:
    """Mirror one record, as `mirror_runs` does."""
    return mirror_runs(store, [record])[0]


def mirror_runs(store: Store, records: Sequence[RunRecord]) -> list[str]:
    """Make the store hold records of one ablation; return the ids of their runs.

    Raises:
        UserError: the store failed; the run logs still hold everything.
    """
    with store.alone():
        held = _hold(store, records)
    with explained(store.uri):
        _log_datasets(store, held)
        models = make_models(store, held)
        at_once(lambda one: _log_values(store, one, models.get(one.id)), held)
        upload_artifacts(store, held)
        end_models(store, held, models)
        at_once(lambda one: _end(store, one), held)
    return [one.id for one in held]


def _search(store: Store, records: Sequence[RunRecord]) -> list["Run"]:
    """Find the runs of the records' ablation, or of the one place."""
    text, found, page = having(common_tags(records)), [], None
    while page != "":
        runs = store.client.search_runs([store.experiment_id], text, max_results=1000, page_token=page)
        found, page = [*found, *runs], runs.token or ""
    return [run for run in found if "identity" in run.data.tags]


def _hold(store: Store, records: Sequence[RunRecord]) -> list[Held]:
    """Find each record's run or make it, and leave one current run in each place of the ablation."""
    runs = _search(store, records)
    held = at_once(lambda record: _find(runs, record) or _create(store, record), records)
    if any(one.is_new for one in held):
        runs = _search(store, records)  # anew: a request that was sent twice has made two runs
    _supersede_others(store, held, runs)
    return held


def _find(runs: Sequence["Run"], record: RunRecord) -> Held | None:
    """Find the run of this identity that holds nothing but what the record holds; the current and fuller one first."""
    same = [run for run in runs if run.data.tags["identity"] == record.identity and fits(run.data.tags, record)]
    if not same:
        return None
    return Held(record, min(same, key=lambda run: (_is_superseded(run), is_empty(run.data.tags))), is_new=False)


def _create(store: Store, record: RunRecord) -> Held:
    """Create a run by the experiment's id: by name, processes that start together use another experiment."""
    tags = {"identity": record.identity, "superseded": "false", "mlflow.runColor": record.place.color}
    run = store.client.create_run(
        store.experiment_id, record.start_ms, {**tags, **EMPTY, **record.tags}, record.place.name
    )
    return Held(record, run, is_new=True)


def _is_superseded(run: "Run") -> bool:
    return run.data.tags.get("superseded") == "true"


def _supersede_others(store: Store, held: Sequence[Held], runs: Sequence["Run"]) -> None:
    """Tag the runs that these replace. The view shows those tagged false: no filter matches a missing tag."""
    current = {tuple(one.record.place_tags.values()): one for one in held}
    for run in runs:
        one = current.get(tuple(run.data.tags.get(name) for name in ("ablation", "tier", "seed")))
        if one is None or run.info.run_id == one.id:
            continue
        if run.data.tags["identity"] == one.record.identity and is_empty(run.data.tags):
            store.client.delete_run(run.info.run_id)  # the same run made twice
        elif not _is_superseded(run):
            store.client.set_tag(run.info.run_id, "superseded", "true")
            store.client.update_run(run.info.run_id, name=f"{run.info.run_name} (superseded)")
    for one in held:
        if _is_superseded(one.run):
            store.client.set_tag(one.id, "superseded", "false")
            store.client.update_run(one.id, name=one.record.place.name)


def _log_datasets(store: Store, held: Sequence[Held]) -> None:
    """Name the data sets that runs read; one of the same digest is named once, however often it is logged."""
    waiting = [(one.id, inputs) for one in held if (inputs := _missing_inputs(one))]

    def log(run_and_inputs: tuple[str, list["DatasetInput"]]) -> None:
        from mlflow.exceptions import MlflowException

        # Of two machines that add a data set at the same moment one fails: it finds the other's when it tries again.
        with contextlib.suppress(MlflowException):
            store.client.log_inputs(*run_and_inputs)
            return
        store.client.log_inputs(*run_and_inputs)

    for first in waiting[:1]:  # the others share its data sets
        log(first)
    at_once(log, waiting[1:])


def _missing_inputs(one: Held) -> list["DatasetInput"]:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    def entity(d: InputDataset) -> Dataset:
        return Dataset(d.name, d.digest, "local", json.dumps({"uri": d.store}), profile=json.dumps(d.profile))

    there = {(i.dataset.name, i.dataset.digest) for i in one.run.inputs.dataset_inputs}
    return [
        DatasetInput(entity(d), [InputTag("mlflow.data.context", d.context)])
        for d in one.record.datasets
        if (d.name, d.digest) not in there
    ]


def _log_values(store: Store, one: Held, model: "LoggedModel | None") -> None:
    for request in value_requests(one, model):
        store.client.log_batch(one.id, **request)


def _end(store: Store, one: Held) -> None:
    ended, info = one.record.end_ms, one.run.info
    if ended is not None and (info.status, info.end_time) != ("FINISHED", ended):
        store.client.set_terminated(one.id, "FINISHED", end_time=ended)
