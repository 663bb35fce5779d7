import json
import os
from pathlib import Path

import pytest
from mirrored import artifacts, assert_mirrored, points
from tracking_tree import (
    TIERS,
    default_config,
    start_event,
    write_data_page,
    write_log,
    write_results,
    write_stage_config,
    write_summary,
)

from faze.base.result_paths import DATASETS, ResultPaths
from faze.config.parameters import Tracking
from faze.stages import track
from faze.tracking.follower import Follower
from faze.tracking.mirror import mirror_run, mirror_runs
from faze.tracking.run_record import read_run, read_runs, read_sweep, read_training, run_places
from faze.tracking.store import open_store
from faze.tracking.view import address, current_runs, share_view

AMP = run_places(TIERS, [0])[1]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return open_store(Tracking("faze", None), tmp_path_factory.mktemp("all") / "results")


@pytest.fixture
def paths(store, request):
    """Results of an ablation of the test's own, beside the common store."""
    name = request.node.name.replace("[", "_").replace("]", "")
    return write_results(store.lock.parent / name, ("baseline", "amp"), steps=8)


def runs_of(store, paths):
    return store.client.search_runs([store.experiment_id], f"tags.ablation = '{paths.root.name}'")


def current(store, paths):
    return store.client.search_runs([store.experiment_id], current_runs(paths.root.name))


def test_a_run_in_mlflow_is_what_its_files_tell(store, paths):
    record = read_run(paths, AMP)
    run = store.client.get_run(mirror_run(store, record))
    assert (run.info.run_name, run.info.status, run.info.experiment_id) == ("1-amp", "FINISHED", store.experiment_id)
    assert (run.info.start_time, run.info.end_time) == (record.start_ms, record.end_ms)
    assert points(store, run.info.run_id) == sorted(tuple(p) for p in record.metrics)
    assert run.data.params == record.params
    assert record.tags.items() <= run.data.tags.items()
    assert "mlflow.parentRunId" not in run.data.tags
    assert run.data.metrics["speed/images_per_s"] == 97.5
    assert artifacts(store, run.info.run_id) == {
        *("run.jsonl", "walks/contact_sheet.png", "walks/gaze_p00.mp4"),
        *("report/index.html", "report/table.csv", "report/figures/speed.svg"),
        *(f"data/{d}/{file}" for d in DATASETS for file in ("index.html", "summary.json", "table.csv")),
    }


def test_a_run_names_the_data_sets_that_it_read_once(store, paths):
    for dataset in DATASETS:
        write_data_page(paths, dataset, f"{dataset} of this test")  # MLflow shares data sets of one digest
    run_id = mirror_run(store, read_run(paths, AMP))
    assert mirror_run(store, read_run(paths, AMP)) == run_id
    inputs = store.client.get_run(run_id).inputs.dataset_inputs
    named = {i.dataset.name: (i.dataset, {tag.key: tag.value for tag in i.tags}) for i in inputs}
    assert len(inputs) == 2 and set(named) == {"mpiigaze", "gazecapture"}
    dataset, tags = named["gazecapture"]
    assert (dataset.digest, tags) == ("gazecapture of this test", {"mlflow.data.context": "training"})
    assert json.loads(dataset.source) == {"uri": str(paths.store("gazecapture"))}
    counts = {
        "people": 36,
        "strips": 360,
        "train_people": 24,
        "train_strips": 240,
        "test_people": 12,
        "test_strips": 120,
    }
    assert json.loads(dataset.profile) == counts
    dataset, tags = named["mpiigaze"]
    assert tags == {"mlflow.data.context": "testing"}
    assert json.loads(dataset.profile)["rejected_frames"] == 3


def test_a_missing_data_page_is_named(paths):
    (paths.inspection("mpiigaze") / "summary.json").unlink()
    with pytest.raises(ValueError, match=r"inspection/mpiigaze/summary.json is missing: run the rule inspect again"):
        read_run(paths, AMP)


def test_tracking_twice_changes_nothing(store, paths):
    first = mirror_run(store, read_run(paths, AMP))
    before = points(store, first)
    (paths.evaluation / "summary.json").touch()
    assert mirror_run(store, read_run(paths, AMP)) == first
    assert points(store, first) == before
    assert len(runs_of(store, paths)) == 1


def test_an_interrupted_mirror_is_completed_in_the_same_run(store, paths, monkeypatch):
    record = read_run(paths, AMP)
    monkeypatch.setattr("faze.tracking.run_contents.BATCH_METRICS", 10)
    log_batch, calls = store.client.log_batch, []

    def failing(run_id, metrics=(), **rest):
        calls.append(metrics)
        if len(calls) == 5:
            raise ConnectionResetError("the server went away")
        return log_batch(run_id, metrics=metrics, **rest)

    monkeypatch.setattr(store.client, "log_batch", failing)
    with pytest.raises(ValueError, match="the server went away. Nothing is lost"):
        mirror_run(store, record)
    (run,) = runs_of(store, paths)
    assert 0 < len(points(store, run.info.run_id)) < len(record.metrics)
    monkeypatch.undo()
    assert mirror_run(store, record) == run.info.run_id
    assert points(store, run.info.run_id) == sorted(tuple(p) for p in record.metrics)


def test_artifacts_are_replaced(store, paths):
    run_id = mirror_run(store, read_run(paths, AMP))
    (paths.walks("amp", 0) / "gaze_p00.mp4").rename(paths.walks("amp", 0) / "gaze_p01.mp4")
    (paths.report / "table.csv").write_text("new")
    assert mirror_run(store, read_run(paths, AMP)) == run_id
    assert {a for a in artifacts(store, run_id) if "walks" in a} == {"walks/contact_sheet.png", "walks/gaze_p01.mp4"}
    root = store.client.get_run(run_id).info.artifact_uri.removeprefix("file://")
    assert (Path(root) / "report" / "table.csv").read_text() == "new"


def test_a_newer_identity_replaces_the_run_of_its_tier_and_seed_only(store, paths):
    baseline, *_ = run_places(TIERS, [0])
    old, other = mirror_run(store, read_run(paths, AMP)), mirror_run(store, read_run(paths, baseline))
    write_log(paths.run_log("amp", 0), start_event(paths.root, "amp", 0, fingerprint="fedcba987654"))
    new = mirror_run(store, read_run(paths, AMP))
    assert len({old, other, new}) == 3
    superseded = {run.info.run_id: run.data.tags["superseded"] for run in runs_of(store, paths)}
    assert superseded == {old: "true", other: "false", new: "false"}
    assert {run.info.run_id for run in current(store, paths)} == {other, new}
    names = {run.info.run_id: run.info.run_name for run in runs_of(store, paths)}
    assert names == {old: "1-amp (superseded)", other: "0-baseline", new: "1-amp"}
    # The former code once more: its run comes back, under its name.
    write_log(paths.run_log("amp", 0), start_event(paths.root, "amp", 0))
    back = mirror_run(store, read_training(paths.run_log("amp", 0), AMP))
    assert {run.info.run_id: run.info.run_name for run in current(store, paths)} == {
        other: "0-baseline",
        back: "1-amp",
    }


def test_a_value_measured_anew_makes_a_new_run_since_mlflow_takes_none_back(store, paths):
    old = mirror_run(store, read_run(paths, AMP))
    write_summary(paths.root, ("baseline", "amp"), shift=0.5)
    new = mirror_run(store, read_run(paths, AMP))
    assert new != old
    assert [run.info.run_id for run in current(store, paths)] == [new]
    assert store.client.get_run(old).data.metrics["error/mpiigaze_deg"] == pytest.approx(4.93)
    assert store.client.get_run(new).data.metrics["error/mpiigaze_deg"] == pytest.approx(5.43)
    history = store.client.get_metric_history(new, "curve/mpiigaze_maml_deg")
    assert [m.step for m in history] == [0, 1, 3, 5, 9]
    # The live log alone fits both runs: the current one stays current.
    assert mirror_run(store, read_training(paths.run_log("amp", 0), AMP)) == new
    assert [run.info.run_id for run in current(store, paths)] == [new]


def test_a_run_is_mirrored_while_it_trains_and_completed_afterwards(store, paths):
    log = paths.run_log("amp", 0)
    lines = log.read_text().splitlines(keepends=True)
    live = paths.run("amp", 0) / "train.work" / "run.jsonl"
    live.parent.mkdir()
    log.unlink()
    paths.run_log("baseline", 0).unlink()
    follower = Follower(store, ResultPaths(paths.root), run_places(TIERS, [0]))
    assert follower.look() == []

    live.write_text("".join(lines[:6]) + lines[6][:30])
    assert follower.look() == ["1-amp"]
    assert follower.look() == []
    (run,) = current(store, paths)
    assert run.info.status == "RUNNING"
    assert [m.step for m in store.client.get_metric_history(run.info.run_id, "train/loss")] == [400, 800, 1200]

    live.write_text("".join(lines[:8]))
    assert follower.look() == ["1-amp"]
    live.rename(log)
    log.write_text("".join(lines))
    assert follower.look() == ["1-amp"]
    assert mirror_run(store, read_run(paths, AMP)) == run.info.run_id
    assert points(store, run.info.run_id) == sorted(tuple(p) for p in read_run(paths, AMP).metrics)
    assert store.client.get_run(run.info.run_id).info.status == "FINISHED"


def test_the_follower_reports_a_failing_store_and_goes_on(store, paths, monkeypatch, capsys):
    follower = Follower(store, paths, run_places(TIERS, [0]))
    with monkeypatch.context() as broken:
        broken.setattr(store.client, "search_runs", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("gone")))
        assert follower.look() == []
    assert "gone. Nothing is lost" in capsys.readouterr().err
    assert follower.look() == ["0-baseline", "1-amp"]


def test_the_shared_view_hides_superseded_runs_and_shows_the_results(store, paths):
    mirror_run(store, read_run(paths, AMP))
    share_view(store, paths.root.name)
    tag = store.client.get_experiment(store.experiment_id).tags[f"mlflow.sharedViewState.{paths.root.name}"]
    state = json.loads(tag)
    assert len(tag) < 5000
    assert state["searchFilter"] == f"tags.ablation = '{paths.root.name}' and tags.superseded = 'false'"
    assert state["selectedColumns"][:2] == ["metrics.`error/mpiigaze_deg`", "metrics.`error/gazecapture_deg`"]
    assert "metrics.`error/mpiigaze_k9_deg`" in state["selectedColumns"]
    assert not any("train/" in column for column in state["selectedColumns"])
    url = address(store, paths.root.name)
    assert url.startswith(f"http://127.0.0.1:5000/#/experiments/{store.experiment_id}/runs?")
    assert {"compareRunsMode=CHART", "workflowType=machine_learning"} <= set(url.split("?")[1].split("&"))
    assert f"viewStateShareKey={paths.root.name}" in url


def test_the_stage_mirrors_every_tier_and_seed_and_says_where_to_look(store, monkeypatch, capsys):
    results = store.lock.parent / "stage"
    write_results(results, ("baseline", "amp"), (0, 1), steps=3)
    mapping = default_config(results)
    mapping["run"] |= {"tiers": ["baseline", "amp"], "seeds": [0, 1]}
    out = results / "tracking" / "tracked.json"
    argv = ["track", "--config", write_stage_config(results, mapping), "--results", results, "--out", out]
    monkeypatch.setattr("sys.argv", [str(a) for a in argv])
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    seen = []
    for _ in range(2):
        assert track.main() == 0
        seen.append(json.loads(out.read_text()))
    assert seen[0] == seen[1]
    assert list(seen[0]["runs"]) == ["0-baseline-s0", "0-baseline-s1", "1-amp-s0", "1-amp-s1"]
    assert {run.info.run_id for run in runs_of(store, ResultPaths(results))} == set(seen[0]["runs"].values())
    assert seen[0]["invitation"] in capsys.readouterr().out
    assert "make ui" in seen[0]["invitation"] and seen[0]["address"] in seen[0]["invitation"]


def test_the_trainings_of_a_sweep_are_runs_and_the_first_keeps_its_page(store, paths):
    places = run_places(["point00", "point01"], [0])
    for place, rate in zip(places, (0.01, 0.02), strict=True):
        start = start_event(paths.root, "baseline", 0)
        config = start["config"] | {"train.base_lr": rate}
        write_log(
            paths.run_log(place.tier, 0), start | {"tier": place.tier, "config": config, "config_hash": place.tier}
        )
    paths.sweep.mkdir()
    (paths.sweep / "index.html").write_text("points")
    (paths.sweep / "old.svg").write_text("goes")
    mirror_runs(store, read_sweep(paths, places))
    (paths.sweep / "old.svg").unlink()
    first, second = mirror_runs(store, read_sweep(paths, places))
    assert len(current(store, paths)) == 2
    assert artifacts(store, first) == {"run.jsonl", "sweep/index.html"} and artifacts(store, second) == {"run.jsonl"}
    runs = [store.client.get_run(run).data for run in (first, second)]
    assert [run.params["train.base_lr"] for run in runs] == ["0.01", "0.02"]
    assert all("val/gaze_deg" in run.metrics and run.tags["stage"] == "train" for run in runs)


WRITES = ("create_run", "log_batch", "log_inputs", "set_tag", "update_run", "set_terminated", "log_outputs")
WRITES += ("create_logged_model", "finalize_logged_model", "set_logged_model_tags", "delete_run", "delete_logged_model")


def noted(asked, name, call):
    def note(*args, **rest):
        asked.append(name)
        return call(*args, **rest)

    return note


def test_a_second_time_asks_twice_and_writes_nothing(store, paths, monkeypatch):
    records, asked = read_runs(paths, run_places(TIERS[:2], [0])), []
    mirror_runs(store, records)
    for name in (*WRITES, "search_runs", "search_logged_models", "get_metric_history", "get_run", "list_artifacts"):
        call = getattr(store.client, name)
        monkeypatch.setattr(
            store.client, name, lambda *a, call=call, name=name, **k: (asked.append(name), call(*a, **k))[1]
        )
    monkeypatch.setattr("faze.tracking.artifacts._upload", lambda *_: asked.append("upload"))
    mirror_runs(store, records)
    assert sorted(asked) == ["search_logged_models", "search_runs"]


def test_pages_of_the_whole_ablation_are_kept_once(store, paths):
    first, other = read_runs(paths, run_places(TIERS[:2], [0]))
    ids = mirror_runs(store, [first, other])
    assert {name.split("/")[0] for name in artifacts(store, ids[0])} == {"run.jsonl", "walks", "report", "data"}
    assert {name.split("/")[0] for name in artifacts(store, ids[1])} == {"run.jsonl", "walks"}
    assert "`report/index.html`." in first.tags["mlflow.note.content"]
    assert "`report/index.html` of run 0-baseline." in other.tags["mlflow.note.content"]


def test_files_that_people_add_to_a_run_stay(store, paths, tmp_path):
    run_id = mirror_run(store, read_run(paths, AMP))
    (tmp_path / "mine.txt").write_text("a remark")
    store.client.log_artifact(run_id, tmp_path / "mine.txt", "notes")
    (paths.report / "table.csv").write_text("new")
    assert mirror_run(store, read_run(paths, AMP)) == run_id
    assert "notes/mine.txt" in artifacts(store, run_id)


def test_values_are_sent_before_files(store, paths, monkeypatch):
    """Where there is no room for files, nothing else is missing."""
    records = read_runs(paths, run_places(TIERS[:2], [0]))
    with monkeypatch.context() as full:
        full.setattr("faze.tracking.artifacts._upload", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
        with pytest.raises(ValueError, match="no space left. Nothing is lost"):
            mirror_runs(store, records)
    runs = {run.info.run_name: run for run in current(store, paths)}
    for record in records:
        assert points(store, runs[record.place.name].info.run_id) == sorted(tuple(p) for p in record.metrics)
        assert runs[record.place.name].info.status == "RUNNING"
    mirror_runs(store, records)
    assert_mirrored(store, paths, run_places(TIERS[:2], [0]))


def test_a_live_run_sends_only_what_is_new(store, paths, monkeypatch):
    log, sent = paths.run_log("amp", 0), []
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:6]))
    mirror_run(store, read_training(log, AMP))
    log.write_text("".join(lines[:8]))
    log_batch = store.client.log_batch
    monkeypatch.setattr(store.client, "log_batch", lambda run_id, **k: (sent.append(k), log_batch(run_id, **k)))
    mirror_run(store, read_training(log, AMP))
    assert len(sent) == 1 and "params" not in sent[0]
    assert {m.step for m in sent[0]["metrics"]} == {1600, 2000}


def test_values_that_came_without_their_tag_and_are_evaluated_anew_are_there_once(store, paths, monkeypatch):
    """The server dies between the two: it has the values, and its run does not say so."""
    record, log_batch = read_run(paths, AMP), store.client.log_batch

    def dying(run_id, metrics=(), tags=(), **rest):
        told = {tag.key for tag in tags}
        log_batch(run_id, metrics=metrics, tags=[] if "held_results" in told else tags, **rest)
        if "held_results" in told:
            raise ConnectionResetError("the server went away")

    with monkeypatch.context() as broken:
        broken.setattr(store.client, "log_batch", dying)
        with pytest.raises(ValueError, match="went away"):
            mirror_run(store, record)
    os.utime(paths.evaluation / "summary.json", (2e9, 2e9))
    run_id = mirror_run(store, read_run(paths, AMP))
    assert [run.info.run_id for run in runs_of(store, paths)] == [run_id]
    assert points(store, run_id) == sorted(tuple(p) for p in record.metrics)
    assert store.client.get_run(run_id).data.tags["held_results"].startswith(f"{len(record.results)} ")
