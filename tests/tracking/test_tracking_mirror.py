"""Records in MLflow: what a run and its logged model contain, and what replaces what."""

import functools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from data_sets import DATASETS
from mirrored import artifacts, assert_mirrored
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

from faze.base.result_paths import ResultPaths
from faze.stages import track
from faze.tracking import mirror
from faze.tracking.mirror import Follower, mirror_run, mirror_runs
from faze.tracking.run_record import (
    InputDataset,
    MetricValue,
    read_run,
    read_runs,
    read_sweep,
    read_training,
    run_places,
)
from faze.tracking.store import address, having, share_view

PLACES = BASELINE, AMP = run_places(TIERS[:2], [0])


def test_run_contains_what_its_files_contain(store, paths):
    record = read_run(paths, AMP)
    run = store.client.get_run(mirror_run(store, record))
    assert (run.info.run_name, run.info.experiment_id) == ("1-amp", store.experiment_id)
    assert_mirrored(store, paths, [AMP])
    assert "mlflow.parentRunId" not in run.data.tags
    assert run.data.metrics["speed/images_per_s"] == 97.5
    assert artifacts(store, run.info.run_id) == {
        *("run.jsonl", "walks/contact_sheet.png", "walks/gaze_p00.mp4"),
        *("report/index.html", "report/table.csv", "report/figures/speed.svg"),
        *(f"data/{d}/{file}" for d in DATASETS for file in ("index.html", "summary.json", "table.csv")),
    }


@pytest.mark.parametrize("names", [("gaze", "gaze_own"), ("gaze_own", "gaze")])
def test_a_metric_is_linked_to_its_own_data_set_if_a_name_begins_with_another(names):
    """Regression: the last of the matching data sets was taken."""
    record = SimpleNamespace(datasets=[InputDataset(name, f"digest of {name}", "", "testing", {}) for name in names])
    for name in names:
        value = MetricValue(f"error/{name}_k9_deg", 0, 3.0, 0)
        metric = mirror._metric(value, record, SimpleNamespace(model_id="m"))
        assert (metric.dataset_name, metric.dataset_digest) == (name, f"digest of {name}")


def test_data_sets_are_inputs_of_the_run(store, paths):
    for dataset in DATASETS:
        write_data_page(paths, dataset, f"{dataset} of this test")  # MLflow shares data sets with the same digest
    run_id = mirror_run(store, read_run(paths, AMP))
    inputs = store.client.get_run(run_id).inputs.dataset_inputs
    named = {i.dataset.name: (i.dataset, {tag.key: tag.value for tag in i.tags}) for i in inputs}
    dataset, tags = named["gazecapture"]
    assert (dataset.digest, tags) == ("gazecapture of this test", {"mlflow.data.context": "training"})
    assert json.loads(dataset.source) == {"uri": str(paths.store("gazecapture"))}
    profile = {"people": 36, "train_people": 24, "test_people": 12}
    profile |= {key.replace("people", "strips"): 10 * number for key, number in profile.items()}
    assert json.loads(dataset.profile) == profile
    dataset, tags = named["mpiigaze"]
    assert tags == {"mlflow.data.context": "testing"}
    assert json.loads(dataset.profile)["rejected_frames"] == 3


def test_missing_data_page_is_reported(paths):
    (paths.inspection("mpiigaze") / "summary.json").unlink()
    with pytest.raises(ValueError, match=r"inspection/mpiigaze/summary.json.*inspect"):
        read_run(paths, AMP)


CALLS = ("search_runs", "search_logged_models", "get_metric_history", "get_run", "list_artifacts", "set_terminated")
CALLS += ("create_run", "log_batch", "log_inputs", "set_tag", "update_run", "log_outputs", "delete_run", "log_artifact")
CALLS += ("create_logged_model", "finalize_logged_model", "set_logged_model_tags", "delete_logged_model")


def test_second_mirror_searches_twice_and_writes_nothing(store, paths, search_runs, monkeypatch):
    records, calls = read_runs(paths, PLACES), []
    ids = mirror_runs(store, records)
    (paths.evaluation / "summary.json").touch()

    def noted(call, *args, **named):
        calls.append(call.__name__)
        return call(*args, **named)

    for name in CALLS:
        monkeypatch.setattr(store.client, name, functools.partial(noted, getattr(store.client, name)))
    assert mirror_runs(store, records) == ids
    assert sorted(calls) == ["search_logged_models", "search_runs"]
    monkeypatch.undo()
    assert len(search_runs()) == 2
    assert_mirrored(store, paths, PLACES)


def test_changed_files_replace_outdated_ones(store, paths, tmp_path):
    run_id = mirror_run(store, read_run(paths, AMP))
    (tmp_path / "mine.txt").write_text("a remark")
    store.client.log_artifact(run_id, tmp_path / "mine.txt", "notes")
    (paths.walks("amp", 0) / "gaze_p00.mp4").rename(paths.walks("amp", 0) / "gaze_p01.mp4")
    (paths.report / "table.csv").write_text("new")
    assert mirror_run(store, read_run(paths, AMP)) == run_id
    found = artifacts(store, run_id)
    assert {name for name in found if "walks" in name} == {"walks/contact_sheet.png", "walks/gaze_p01.mp4"}
    assert "notes/mine.txt" in found  # a user's file
    root = store.client.get_run(run_id).info.artifact_uri.removeprefix("file://")
    assert (Path(root) / "report" / "table.csv").read_text() == "new"


def test_pages_of_the_ablation_are_in_its_first_run(store, paths):
    first, other = read_runs(paths, PLACES)
    ids = mirror_runs(store, [first, other])
    assert {name.split("/")[0] for name in artifacts(store, ids[0])} == {"run.jsonl", "walks", "report", "data"}
    assert {name.split("/")[0] for name in artifacts(store, ids[1])} == {"run.jsonl", "walks"}
    assert "0-baseline" in other.tags["mlflow.note.content"] and "0-" not in first.tags["mlflow.note.content"]


def test_new_identity_supersedes_the_run_of_its_tier_and_seed_only(store, paths, search_runs):
    old, other = mirror_run(store, read_run(paths, AMP)), mirror_run(store, read_run(paths, BASELINE))
    write_log(paths.run_log("amp", 0), start_event(paths.root, "amp", 0, fingerprint="fedcba987654"))
    new = mirror_run(store, read_run(paths, AMP))
    superseded = {run_id: (run.data.tags["superseded"], run.info.run_name) for run_id, run in search_runs().items()}
    assert superseded == {
        old: ("true", "1-amp (superseded)"),
        other: ("false", "0-baseline"),
        new: ("false", "1-amp"),
    }
    # With the former code again, its run is restored.
    write_log(paths.run_log("amp", 0), start_event(paths.root, "amp", 0))
    assert mirror_run(store, read_training(paths.run_log("amp", 0), AMP)) == old
    current = {run_id: run.info.run_name for run_id, run in search_runs(current=True).items()}
    assert current == {other: "0-baseline", old: "1-amp"}


def test_changed_result_creates_a_new_run_and_model(store, paths, search_runs, search_models):
    old = mirror_run(store, read_run(paths, AMP))
    write_summary(paths.root, TIERS[:2], shift=0.5)
    new = mirror_run(store, read_run(paths, AMP))
    assert new != old and list(search_runs(current=True)) == [new]
    errors = {run_id: run.data.metrics["error/mpiigaze_deg"] for run_id, run in search_runs().items()}
    assert errors == {old: pytest.approx(4.93), new: pytest.approx(5.43)}
    history = store.client.get_metric_history(new, "curve/mpiigaze_maml_deg")
    assert [m.step for m in history] == [0, 1, 3, 5, 9]
    assert {m.source_run_id: m.tags["superseded"] for m in search_models()} == {old: "true", new: "false"}
    # The run log alone fits both runs: the current one remains current.
    assert mirror_run(store, read_training(paths.run_log("amp", 0), AMP)) == new
    write_summary(paths.root, TIERS[:2])
    assert mirror_run(store, read_run(paths, AMP)) == old
    assert {m.source_run_id: m.tags["superseded"] for m in search_models()} == {old: "false", new: "true"}


def test_run_is_mirrored_while_it_trains(store, paths, search_runs, search_models, monkeypatch):
    log = paths.run_log("amp", 0)
    mirror_run(store, read_run(paths, AMP))
    write_log(log, start_event(paths.root, "amp", 0, fingerprint="fedcba987654"), steps=8)
    whole = log.read_bytes()
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
    ((run_id, run),) = search_runs(current=True).items()
    assert run.info.status == "RUNNING"
    assert [m.step for m in store.client.get_metric_history(run_id, "train/loss")] == [400, 800, 1200]
    assert [m.tags["superseded"] for m in search_models()] == ["true"]  # that of the former training

    sent, log_batch = [], store.client.log_batch
    with monkeypatch.context() as counted:
        counted.setattr(store.client, "log_batch", lambda run_id, **k: (sent.append(k), log_batch(run_id, **k)))
        live.write_text("".join(lines[:8]))
        assert follower.look() == ["1-amp"]
    (batch,) = sent
    assert {m.step for m in batch["metrics"]} == {1600, 2000} and not batch["params"]

    live.unlink()
    log.write_bytes(whole)
    assert follower.look() == ["1-amp"]
    assert mirror_run(store, read_run(paths, AMP)) == run_id
    assert_mirrored(store, paths, [AMP])


def test_follower_reports_a_failing_store_and_tries_again(store, paths, monkeypatch, capsys):
    follower = Follower(store, paths, PLACES)
    with monkeypatch.context() as broken:
        broken.setattr(store.client, "search_runs", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("gone")))
        assert follower.look() == []
    assert "gone" in capsys.readouterr().err
    assert follower.look() == ["0-baseline", "1-amp"]


def test_shared_view_hides_superseded_runs_and_shows_results(store, paths):
    mirror_run(store, read_run(paths, AMP))
    share_view(store, paths.root.name)
    tag = store.client.get_experiment(store.experiment_id).tags[f"mlflow.sharedViewState.{paths.root.name}"]
    state = json.loads(tag)
    assert len(tag) < 5000
    assert state["searchFilter"] == f"tags.ablation = '{paths.root.name}' and tags.superseded = 'false'"
    errors = ("error/mpiigaze_deg", "error/gazecapture_deg", "error/mpiigaze_k9_deg")
    wanted = (*errors, "speed/images_per_s", "speed/step_ms", "memory/peak_gib")
    assert state["selectedColumns"] == [f"metrics.`{metric}`" for metric in wanted]
    assert (state["orderByKey"], state["orderByAsc"]) == ("tags.`mlflow.runName`", True)
    url = address(store, paths.root.name)
    assert url.startswith(f"http://127.0.0.1:5000/#/experiments/{store.experiment_id}/runs?")
    wanted = {f"viewStateShareKey={paths.root.name}", "compareRunsMode=CHART", "workflowType=machine_learning"}
    assert wanted <= set(url.split("?")[1].split("&"))


def test_shared_view_of_another_workload_has_no_columns_of_gaze(store, paths):
    """Regression: columns of gaze errors were empty for every run, and the score had none."""
    run = store.client.create_run(store.experiment_id, tags={"ablation": "ssd", "superseded": "false"}).info.run_id
    wanted = ["score/final", "speed/step_ms", "memory/peak_gib"]
    for name in [*wanted, "train/loss"]:
        store.client.log_metric(run, name, 1.0)
    share_view(store, "ssd")
    state = json.loads(store.client.get_experiment(store.experiment_id).tags["mlflow.sharedViewState.ssd"])
    assert state["selectedColumns"] == [f"metrics.`{name}`" for name in wanted]
    assert [section["name"] for section in state["compareRunSections"]] == ["score", "speed", "memory", "val", "train"]


def test_stage_mirrors_every_tier_and_seed(store, monkeypatch, capsys):
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
    found = store.client.search_runs([store.experiment_id], having({"ablation": "stage"}))
    assert {run.info.run_id for run in found} == set(seen[0]["runs"].values())
    assert seen[0]["invitation"] in capsys.readouterr().out
    assert "make ui" in seen[0]["invitation"] and seen[0]["address"] in seen[0]["invitation"]


def test_trainings_of_a_sweep_are_runs_and_the_first_has_its_page(store, paths, search_runs):
    places = run_places(["point00", "point01"], [0])
    for place, rate in zip(places, (0.01, 0.02), strict=True):
        start = start_event(paths.root, "baseline", 0)
        own = {"tier": place.tier, "config": start["config"] | {"train.base_lr": rate}, "config_hash": place.tier}
        write_log(paths.run_log(place.tier, 0), start | own)
    paths.sweep.mkdir()
    (paths.sweep / "index.html").write_text("points")
    (paths.sweep / "old.svg").write_text("goes")
    mirror_runs(store, read_sweep(paths, places))
    (paths.sweep / "old.svg").unlink()
    first, second = mirror_runs(store, read_sweep(paths, places))
    assert set(search_runs(current=True)) == {first, second}
    assert artifacts(store, first) == {"run.jsonl", "sweep/index.html"} and artifacts(store, second) == {"run.jsonl"}
    runs = [store.client.get_run(run).data for run in (first, second)]
    assert [run.params["train.base_lr"] for run in runs] == ["0.01", "0.02"]
    assert all("val/gaze_deg" in run.metrics and run.tags["stage"] == "train" for run in runs)


def test_network_of_a_run_is_a_logged_model(store, paths, search_models, monkeypatch):
    run_id = mirror_run(store, read_run(paths, AMP, pages_in=BASELINE))
    (model,) = search_models()
    outputs = store.client.get_run(run_id).outputs.model_outputs
    assert [output.model_id for output in outputs] == [model.model_id]
    assert (model.name, model.model_type) == ("1-amp", "gaze")
    assert model.params["engine.precision"] == "fp16" and "train.global_batch" not in model.params
    wanted = {"tier": "amp", "seed": "0", "superseded": "false", "git_commit": "1a2b3c4d5e6f"}
    assert wanted.items() <= model.tags.items()
    assert model.tags["checkpoint"] == str(paths.checkpoint("amp", 0))
    # It contains no weights, and MLflow's registry accepts it.
    assert [file.path for file in store.client.list_logged_model_artifacts(model.model_id)] == ["MLmodel"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)  # the registry itself uses it
    store.client.create_registered_model(paths.root.name)
    version = store.client.create_model_version(paths.root.name, f"models:/{model.model_id}", model_id=model.model_id)
    assert (version.status, version.source) == ("READY", f"models:/{model.model_id}")
