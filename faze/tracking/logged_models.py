"""The trained network of a run as MLflow's logged model: found by its errors, over all ablations of an experiment.

It holds no weights: MLflow would keep a copy of every checkpoint. It names the checkpoint, and has the run's results,
each with the data set on which it was measured.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from faze.tracking.artifacts import repository_of
from faze.tracking.run_contents import Held, common_tags
from faze.tracking.store import Store, at_once, having

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel

MODEL_TYPE = "gaze"
TAGS = ("ablation", "tier", "seed", "git_commit", "code_fingerprint", "config_hash", "device", "control", "reused_from")
PARAMS = ("model.", "engine.")  # of the run's: by what a network is looked for


def make_models(store: Store, held: Sequence[Held]) -> dict[str, "LoggedModel"]:
    """Find or make the logged model of every run with results, by the run's id; tag those of replaced runs."""
    found = _search(store, held)
    made = {model.source_run_id for model in found}
    if lacking := [one for one in held if one.record.results is not None and one.id not in made]:
        at_once(lambda one: _create(store, one), lacking)
        found = _search(store, held)  # anew: a request that was sent twice has made two
    models: dict[str, LoggedModel] = {}
    current = {tuple(one.record.place_tags.items()): one.id for one in held}
    for model in sorted(found, key=lambda model: not model.metrics):
        place = tuple((tag, model.tags.get(tag)) for tag in held[0].record.place_tags)
        if model.source_run_id in models:
            store.client.delete_logged_model(model.model_id)
        elif place in current:
            replaced = str(model.source_run_id != current[place]).lower()
            if model.tags.get("superseded") != replaced:
                store.client.set_logged_model_tags(model.model_id, {"superseded": replaced})
            models[model.source_run_id] = model
    return models


def end_models(store: Store, held: Sequence[Held], models: Mapping[str, "LoggedModel"]) -> None:
    """Link each model to the run that it came from, and call it ready, once the run holds all else."""
    at_once(lambda one: _end(store, one, models[one.id]), [one for one in held if one.id in models])


def _search(store: Store, held: Sequence[Held]) -> list["LoggedModel"]:
    """Find the models of the ablation, or of the one place."""
    text, found, page = having(common_tags([one.record for one in held])), [], None
    while page != "":
        models = store.client.search_logged_models([store.experiment_id], text, page_token=page)
        found, page = [*found, *models], models.token or ""
    return found


def _create(store: Store, one: Held) -> None:
    from mlflow.utils.mlflow_tags import MLFLOW_MODEL_IS_EXTERNAL

    record = one.record
    tags = {tag: record.tags[tag] for tag in TAGS if tag in record.tags}
    tags |= {"superseded": "false", "checkpoint": str(record.checkpoint), MLFLOW_MODEL_IS_EXTERNAL: "true"}
    params = {key: value for key, value in record.params.items() if key.startswith(PARAMS)}
    store.client.create_logged_model(store.experiment_id, record.place.name, one.id, tags, params, MODEL_TYPE)


def _end(store: Store, one: Held, model: "LoggedModel") -> None:
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models.model import MLMODEL_FILE_NAME
    from mlflow.models.utils import get_external_mlflow_model_spec

    outputs = one.run.outputs.model_outputs if one.run.outputs else []
    if model.model_id not in {output.model_id for output in outputs}:
        store.client.log_outputs(one.id, [LoggedModelOutput(model.model_id, 0)])
    if model.status != LoggedModelStatus.READY:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / MLMODEL_FILE_NAME
            get_external_mlflow_model_spec(model).save(file)  # by it MLflow's registry takes the model in
            repository_of(store, model.artifact_location).log_artifact(str(file))
        store.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
