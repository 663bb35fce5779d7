"""The trained network as MLflow's logged model: what it says, that it is one, and that it finds the best tier."""

import json

import pytest
from mirrored import assert_mirrored
from tracking_tree import TIERS as LADDER
from tracking_tree import start_event, write_log, write_results, write_summary

from faze.config.parameters import Tracking
from faze.tracking.mirror import mirror_run, mirror_runs
from faze.tracking.run_record import read_run, read_runs, read_training, run_places
from faze.tracking.store import having, open_store

TIERS = LADDER[:3]
PLACES = run_places(TIERS, [0])
AMP = PLACES[1]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return open_store(Tracking("faze", None), tmp_path_factory.mktemp("all") / "results")


@pytest.fixture
def paths(store, request):
    name = request.node.name.replace("[", "_").replace("]", "")
    return write_results(store.lock.parent / name, TIERS, steps=4)


def models_of(store, paths, **tags):
    return store.client.search_logged_models([store.experiment_id], having({"ablation": paths.root.name} | tags))


def test_every_run_has_its_network_once(store, paths):
    for _ in range(2):
        mirror_runs(store, read_runs(paths, PLACES))
        assert_mirrored(store, paths, PLACES)
    model = next(m for m in models_of(store, paths) if m.name == "1-amp")
    assert model.model_type == "gaze"
    assert model.params["engine.precision"] == "fp16" and "train.global_batch" not in model.params
    wanted = {"tier": "amp", "seed": "0", "superseded": "false", "git_commit": "1a2b3c4d5e6f"}
    assert wanted.items() <= model.tags.items()
    assert model.tags["checkpoint"] == str(paths.checkpoint("amp", 0))


def test_the_best_tier_is_found_by_its_error(store, paths):
    mirror_runs(store, read_runs(paths, PLACES))
    summary = json.loads((paths.evaluation / "summary.json").read_text())
    found = store.client.search_logged_models(
        [store.experiment_id],
        having({"ablation": paths.root.name, "superseded": "false"}) + " and metrics.`error/mpiigaze_deg` > 4.92",
        datasets=[{"dataset_name": "mpiigaze"}],
        order_by=[{"field_name": "metrics.error/mpiigaze_deg", "ascending": True, "dataset_name": "mpiigaze"}],
    )
    errors = {run["tier"]: run["metrics"]["error/mpiigaze_deg"] for run in summary["runs"]}
    assert [m.tags["tier"] for m in found] == sorted((t for t in errors if errors[t] > 4.92), key=errors.get)
    assert len(found) == len(TIERS) - 1


def test_no_file_but_its_description_is_kept_and_the_registry_takes_it(store, paths, monkeypatch):
    mirror_run(store, read_run(paths, AMP))
    (model,) = models_of(store, paths)
    assert [file.path for file in store.client.list_logged_model_artifacts(model.model_id)] == ["MLmodel"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)  # of a database the registry asks by itself
    store.client.create_registered_model(paths.root.name)
    version = store.client.create_model_version(paths.root.name, f"models:/{model.model_id}", model_id=model.model_id)
    assert (version.status, version.source) == ("READY", f"models:/{model.model_id}")


def test_the_network_of_a_replaced_run_is_superseded_and_comes_back_with_it(store, paths):
    old = mirror_run(store, read_run(paths, AMP))
    write_summary(paths.root, TIERS, shift=0.5)
    new = mirror_run(store, read_run(paths, AMP))
    assert {m.source_run_id: m.tags["superseded"] for m in models_of(store, paths)} == {old: "true", new: "false"}
    write_summary(paths.root, TIERS)
    assert mirror_run(store, read_run(paths, AMP)) == old
    assert {m.source_run_id: m.tags["superseded"] for m in models_of(store, paths)} == {old: "false", new: "true"}


def test_a_training_under_way_has_none_and_supersedes_the_former(store, paths):
    mirror_run(store, read_run(paths, AMP))
    write_log(paths.run_log("amp", 0), start_event(paths.root, "amp", 0, fingerprint="fedcba987654"), 2, end=False)
    run_id = mirror_run(store, read_training(paths.run_log("amp", 0), AMP))
    assert [m.tags["superseded"] for m in models_of(store, paths)] == ["true"]
    assert not [m for m in models_of(store, paths) if m.source_run_id == run_id]


def test_a_network_that_was_deleted_by_hand_is_made_again_with_its_results(store, paths):
    mirror_runs(store, read_runs(paths, PLACES))
    before = {m.source_run_id: sorted((x.key, x.value) for x in m.metrics) for m in models_of(store, paths)}
    store.client.delete_logged_model(models_of(store, paths)[0].model_id)
    assert len(models_of(store, paths)) == len(TIERS) - 1
    mirror_runs(store, read_runs(paths, PLACES))
    after = {m.source_run_id: sorted((x.key, x.value) for x in m.metrics) for m in models_of(store, paths)}
    assert after == before and all(before.values())


@pytest.mark.parametrize("call", ["create_logged_model", "log_outputs", "finalize_logged_model", "log_inputs"])
def test_a_failure_on_the_way_is_made_good_in_the_same_run(store, paths, monkeypatch, call):
    ours = read_runs(paths, PLACES)
    with monkeypatch.context() as broken:
        broken.setattr(store.client, call, lambda *_, **__: (_ for _ in ()).throw(ConnectionResetError("gone")))
        with pytest.raises(ValueError, match="gone. Nothing is lost"):
            mirror_runs(store, ours)
    mirror_runs(store, ours)
    assert_mirrored(store, paths, PLACES)


@pytest.mark.parametrize("call", ["create_run", "create_logged_model"])
def test_what_a_repeated_request_made_twice_is_there_once(store, paths, monkeypatch, call):
    """MLflow's client sends a request again whose answer was lost: the first had acted."""
    act = getattr(store.client, call)
    monkeypatch.setattr(store.client, call, lambda *args: (act(*args), act(*args))[1])
    mirror_runs(store, read_runs(paths, PLACES))
    assert_mirrored(store, paths, PLACES)


def test_a_data_set_that_another_machine_adds_at_the_same_moment_is_named_once(store, paths, monkeypatch):
    from mlflow.exceptions import MlflowException

    log, calls = store.client.log_inputs, []

    def late(*args):
        calls.append(args)
        if len(calls) == 1:
            raise MlflowException("duplicate key value violates unique constraint")
        log(*args)

    monkeypatch.setattr(store.client, "log_inputs", late)
    mirror_runs(store, read_runs(paths, PLACES))
    assert len(calls) == len(PLACES) + 1
    assert_mirrored(store, paths, PLACES)
