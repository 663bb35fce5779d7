"""After a failure, the same call completes the mirror: nothing is missing or duplicated."""

import os

import pytest
from mirrored import assert_mirrored, points, values_of
from tracking_tree import TIERS

from faze.tracking.mirror import mirror_run, mirror_runs
from faze.tracking.run_record import read_run, read_runs, run_places

PLACES = BASELINE, AMP = run_places(TIERS[:2], [0])


def failing(*_, **__):
    raise ConnectionResetError("gone")


@pytest.mark.parametrize("call", ["create_logged_model", "log_outputs", "finalize_logged_model", "log_inputs"])
def test_failure_is_completed_in_the_same_run(store, paths, search_runs, monkeypatch, call):
    with monkeypatch.context() as broken:
        broken.setattr(store.client, call, failing)
        with pytest.raises(ValueError, match=r"gone.*lost"):
            mirror_runs(store, read_runs(paths, PLACES))
    before = set(search_runs())
    assert set(mirror_runs(store, read_runs(paths, PLACES))) == before
    assert_mirrored(store, paths, PLACES)


def test_interrupted_values_are_completed_in_the_same_run(store, paths, search_runs, monkeypatch):
    monkeypatch.setattr("faze.tracking.mirror.BATCH_METRICS", 10)
    log_batch, calls = store.client.log_batch, []

    def fifth_fails(*args, **named):
        calls.append(args)
        return failing() if len(calls) == 5 else log_batch(*args, **named)

    monkeypatch.setattr(store.client, "log_batch", fifth_fails)
    with pytest.raises(ValueError, match="gone"):
        mirror_run(store, read_run(paths, AMP))
    (run_id,) = search_runs()
    assert 0 < len(points(store, run_id)) < len(values_of(read_run(paths, AMP)))
    monkeypatch.undo()
    assert mirror_run(store, read_run(paths, AMP)) == run_id
    assert_mirrored(store, paths, [AMP])


def test_values_without_their_tag_are_not_duplicated(store, paths, monkeypatch):
    """The server stops after receiving the values, but before receiving the tag that records them."""
    log_batch = store.client.log_batch

    def dying(run_id, metrics=(), tags=(), **rest):
        dies = any(tag.key == "held_results" for tag in tags)
        log_batch(run_id, metrics=metrics, tags=[] if dies else tags, **rest)
        return failing() if dies else None

    with monkeypatch.context() as broken:
        broken.setattr(store.client, "log_batch", dying)
        with pytest.raises(ValueError, match="gone"):
            mirror_run(store, read_run(paths, AMP))
    os.utime(paths.evaluation / "summary.json", (2e9, 2e9))
    mirror_run(store, read_run(paths, AMP))
    assert_mirrored(store, paths, [AMP])


def test_values_are_sent_before_files(store, paths, search_runs):
    """If the artifact store is full, everything else is stored."""
    records = read_runs(paths, PLACES)
    root = store.lock.parent / "mlartifacts"
    root.mkdir(exist_ok=True)
    root.rename(root.with_name("away"))
    root.touch()  # no folder can be created in it
    with pytest.raises(ValueError, match=r"mlartifacts.*lost"):
        mirror_runs(store, records)
    runs = {run.info.run_name: run for run in search_runs(current=True).values()}
    for record in records:
        run = runs[record.place.name]
        assert points(store, run.info.run_id) == sorted(tuple(p) for p in values_of(record))
        assert run.info.status == "RUNNING"
    root.unlink()
    root.with_name("away").rename(root)
    mirror_runs(store, records)
    assert_mirrored(store, paths, PLACES)


@pytest.mark.parametrize("call", ["create_run", "create_logged_model"])
def test_repeated_request_leaves_one_current(store, paths, monkeypatch, call):
    """MLflow's client repeats a request whose answer was lost, although the first one had already taken effect."""
    act = getattr(store.client, call)
    with monkeypatch.context() as repeating:
        repeating.setattr(store.client, call, lambda *args: (act(*args), act(*args))[1])
        ids = mirror_runs(store, read_runs(paths, PLACES))
    assert_mirrored(store, paths, PLACES)
    assert mirror_runs(store, read_runs(paths, PLACES)) == ids


def test_deleted_model_is_created_again_with_its_results(store, paths, search_runs, search_models):
    mirror_runs(store, read_runs(paths, PLACES))
    store.client.delete_logged_model(search_models()[0].model_id)
    assert len(search_models()) == len(PLACES) - 1
    mirror_runs(store, read_runs(paths, PLACES))
    models = search_models()
    assert {m.tags["tier"] for m in models} == {"baseline", "amp"} and all(m.metrics for m in models)
    outputs = {output.model_id for run in search_runs().values() for output in run.outputs.model_outputs}
    assert {m.model_id for m in models} <= outputs


def test_data_set_that_another_machine_adds_at_the_same_moment_is_logged_once(store, paths, monkeypatch):
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
