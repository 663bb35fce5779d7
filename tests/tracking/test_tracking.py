"""MLflow as a mirror of run logs and results, through its own client."""

import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faze.base.run_log import read_run
from faze.config.parameters import Tracking
from faze.tracking import MlflowClient, Outcome, Place, Store, data_set, places

TIME = 1_800_000_000.0  # of the start of the first training
TRAINED = ("train/loss", "val/gaze_deg")
CONFIG = {"engine.device": "cpu", "model.blocks": 4, "train.pairs": 800, "control": None}
RESULTS = {
    "metrics": {
        "error/mpiigaze_deg": 4.5,
        "error/mpiigaze_own_deg": 5.5,
        "speed/step_ms": 20.0,
        "error/mpiigaze_k9_deg": 3.5,
        "score/none": None,
    },
    "curves": {"mpiigaze_maml": [[0, 4.5], [1, None], [9, 3.5]]},
}
BASELINE, AMP = places(["baseline", "amp"], [0])


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Create MLflow's tables once, which takes a second."""
    path = tmp_path_factory.mktemp("database") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def store(database, tmp_path):
    shutil.copy(database, tmp_path)
    return Store(Tracking(experiment="faze", uri=None), tmp_path)


def write_log(path: Path, place: Place, steps: int = 3, end: bool = True, start: float = TIME) -> Path:
    first = {"event": "start", "stage": "train", "name": "demo", "tier": place.tier, "seed": place.seed}
    first |= {"config": CONFIG, "config_hash": "c0ffee", "fingerprint": "0123", "time": start}
    first |= {"machine": {"processor": "A CPU", "commit": "1a2b"}}
    switch = {"event": "switch", "switch": "precision", "wanted": "fp16", "acted": "fp32", "reason": "no kernels"}
    events = [first, switch | {"time": start}]
    for step in range(1, steps + 1):
        values = dict.fromkeys(TRAINED, 10.0 / step) | {"train/nan": None}
        events.append({"event": "metrics", "step": 100 * step, "time": start + step, "values": values})
    events += [{"event": "end", "seconds": 9.0, "time": start + 9}] * end
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return path


def outcome(log: Path, change: float = 0.0) -> Outcome:
    video = log.with_name("gaze.mp4")
    video.write_bytes(b"video")
    metrics = RESULTS["metrics"] | {"error/mpiigaze_deg": 4.5 + change}
    data_sets = [
        data_set("mpiigaze", "d1", log, {"people": 3, "train_people": 2}),
        data_set("mpiigaze_own", "d2", log, {}),
    ]
    files = {"run.jsonl": log, "walks/gaze.mp4": video}
    return Outcome(RESULTS | {"metrics": metrics}, "report/index.html", files, data_sets, log.with_name("net.pt"))


@pytest.fixture
def mirror(store, tmp_path):
    """Return a function that mirrors a finished run of tier amp, whose files are written first."""

    def call(change=0.0, start=TIME, seed_place=AMP):
        log = write_log(tmp_path / "amp/run.jsonl", seed_place, start=start)
        return store.mirror(read_run(log), seed_place, outcome(log, change))

    return call


def files_of(store, run_id, folder=""):
    found = store.client.list_artifacts(run_id, folder)
    return {one.path for one in found if not one.is_dir}.union(
        *(files_of(store, run_id, one.path) for one in found if one.is_dir)
    )


def content(store, run_id):
    """Return everything that MLflow contains of a run."""
    run = store.client.get_run(run_id)
    values = [one for key in run.data.metrics for one in store.client.get_metric_history(run_id, key)]
    models = store.client.search_logged_models([store.experiment_id], f"source_run_id = '{run_id}'")
    return {
        "run": (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time),
        "values": sorted((one.key, one.step, one.value, one.timestamp) for one in values),
        "params": run.data.params,
        "tags": run.data.tags,
        "files": files_of(store, run_id),
        "inputs": sorted(
            (one.dataset.name, one.dataset.digest, one.tags[0].value) for one in run.inputs.dataset_inputs
        ),
        "models": [(one.name, str(one.status), one.params, one.tags) for one in models],
        "linked": sorted((one.key, one.value, one.dataset_digest) for model in models for one in model.metrics),
        "outputs": [one.model_id for one in run.outputs.model_outputs],
    }


def shown_runs(store):
    """Return the names of the runs in the shared view, by id."""
    store.share_view("demo")
    tag = store.client.get_experiment(store.experiment_id).tags["mlflow.sharedViewState.demo"]
    found = store.client.search_runs([store.experiment_id], json.loads(tag)["searchFilter"])
    return {run.info.run_id: run.info.run_name for run in found}


def test_names_and_colours_follow_the_tiers():
    found = places(["a", "b"], [0, 1], ["seed"])
    assert [one.name for one in found] == ["0-a-s0", "0-a-s1", "1-b-s0", "1-b-s1", "control-seed"]
    assert found[0].color == found[1].color == found[4].color != found[2].color


def test_run_contains_everything_in_its_files(store, mirror, tmp_path):
    found = content(store, mirror())
    ms = round(1000 * TIME)
    assert found["run"] == ("1-amp", "FINISHED", ms, ms + 9000)
    trained = [(key, 100 * step, 10.0 / step, ms + 1000 * step) for key in TRAINED for step in (1, 2, 3)]
    results = [
        ("error/mpiigaze_deg", 0, 4.5),
        ("error/mpiigaze_own_deg", 0, 5.5),
        ("error/mpiigaze_k9_deg", 0, 3.5),
        ("speed/step_ms", 0, 20.0),
    ]
    results += [("curve/mpiigaze_maml_deg", 0, 4.5), ("curve/mpiigaze_maml_deg", 9, 3.5)]
    assert found["values"] == sorted(trained + [(*one, ms + 3000) for one in results])
    assert found["params"] == {"engine.device": "cpu", "model.blocks": "4", "train.pairs": "800", "control": "null"}
    wanted = {"ablation": "demo", "tier": "amp", "seed": "0", "stage": "train", "superseded": "false"}
    wanted |= {"config_hash": "c0ffee", "code_fingerprint": "0123", "git_commit": "1a2b", "device": "A CPU"}
    wanted |= {"mlflow.runColor": AMP.color, "switch.precision": "inactive: no kernels"}
    assert wanted.items() <= found["tags"].items()
    note = found["tags"]["mlflow.note.content"]
    assert "error/mpiigaze_deg **4.5**" in note and "no kernels" in note and "report/index.html" in note
    assert found["files"] == {"run.jsonl", "walks/gaze.mp4"}
    assert found["inputs"] == [("mpiigaze", "d1", "training"), ("mpiigaze_own", "d2", "testing")]
    ((name, status, params, tags),) = found["models"]
    assert (name, status, len(found["outputs"])) == ("1-amp", "READY", 1)
    assert params == {"engine.device": "cpu", "model.blocks": "4"}
    assert tags["checkpoint"] == str(tmp_path / "amp/net.pt") and tags["superseded"] == "false"
    assert found["linked"] == [
        ("error/mpiigaze_deg", 4.5, "d1"),
        ("error/mpiigaze_k9_deg", 3.5, "d1"),
        ("error/mpiigaze_own_deg", 5.5, "d2"),
        ("speed/step_ms", 20.0, None),
    ]


def test_second_mirror_changes_nothing(store, mirror, tmp_path):
    run_id = mirror()
    before = content(store, run_id)
    assert mirror() == run_id
    other = Store(Tracking(experiment="faze", uri=None), tmp_path)
    assert other.mirror(read_run(tmp_path / "amp/run.jsonl"), AMP) == run_id  # its log alone
    assert content(store, run_id) == before
    assert list(shown_runs(store)) == [run_id]


def test_failed_mirror_is_completed_in_the_same_run(store, mirror, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(store.client, "log_inputs", lambda *_: (_ for _ in ()).throw(ConnectionResetError("gone")))
        with pytest.raises(ValueError, match="gone.*again"):
            mirror()
    (run_id,) = shown_runs(store)
    assert mirror() == run_id
    assert len(content(store, run_id)["values"]) == 12 and content(store, run_id)["files"]


@pytest.mark.parametrize("changed", [{"change": 1.0}, {"start": TIME + 60}], ids=["results", "training"])
def test_replaced_run_stays_and_is_not_shown(store, mirror, changed):
    old = mirror()
    before = content(store, old)
    new = mirror(**changed)
    assert shown_runs(store) == {new: "1-amp"}
    after = content(store, old)
    tags = {"superseded": "true", "superseded_by": new, "mlflow.runName": "1-amp (earlier, 1a2b)"}
    assert after["tags"] == before["tags"] | tags
    assert after["models"][0][3]["superseded"] == "true"
    assert after["run"][1:] == before["run"][1:] and after["values"] == before["values"]
    assert len(content(store, new)["values"]) == 12


def test_records_are_found_by_their_runs_tags(store, tmp_path):
    log = write_log(tmp_path / "amp/run.jsonl", AMP)
    for number in (1, 2):  # two results of the same training
        record = {"time": TIME + number, "tier": "amp"}
        found = outcome(log, change=number)._replace(record=record, checkpoint=None)
        run_id = store.mirror(read_run(log), AMP, found)
    assert [(record["time"] - TIME, record["run_name"]) for record in store.records(ablation="demo", tier="amp")] == [
        (2, "1-amp"),
        (1, "1-amp (earlier, 1a2b)"),
    ]
    assert store.records()[0]["run"] == run_id and not store.records(tier="baseline")


def test_words_that_people_typed_stay(store, mirror):
    run_id = mirror()
    store.client.update_run(run_id, name="the good one")
    store.client.set_tag(run_id, "mlflow.note.content", "see page 3")
    mirror(seed_place=AMP._replace(name="2-amp"))
    tags = content(store, run_id)["tags"]
    assert (tags["mlflow.runName"], tags["mlflow.note.content"]) == ("the good one", "see page 3")


def test_words_that_nobody_changed_are_updated(store, mirror):
    run_id = mirror()
    for name in ("2-amp", "3-amp"):
        assert mirror(seed_place=AMP._replace(name=name)) == run_id
        assert content(store, run_id)["run"][0] == name


def test_renamed_experiment_is_found_and_a_deleted_one_is_reported(store, tmp_path):
    store.client.rename_experiment(store.experiment_id, "my thesis")
    assert Store(Tracking(experiment="faze", uri=None), tmp_path).experiment_id == store.experiment_id
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(ValueError, match=r"'faze' was deleted.*tracking\.experiment"):
        Store(Tracking(experiment="faze", uri=None), tmp_path)


def test_run_is_followed_while_it_trains(store, tmp_path):
    """A training that is killed and resumed repeats values, at other times."""
    log = tmp_path / "amp/run.jsonl"
    run_id = store.mirror(read_run(write_log(log, AMP, steps=2, end=False)), AMP)
    assert content(store, run_id)["run"][1] == "RUNNING"
    for steps, end in ((1, False), (3, True)):
        assert store.mirror(read_run(write_log(log, AMP, steps, end)), AMP) == run_id
    found = content(store, run_id)
    assert found["run"][1] == "FINISHED" and not found["models"] and not found["files"]
    assert [one[1] for one in found["values"]] == [100, 200, 300] * len(TRAINED)
    assert store.mirror(read_run(log), AMP, outcome(log)) == run_id


def test_shared_view_has_results_as_columns(store, mirror):
    mirror()
    address = store.share_view("demo", port=1234)
    assert address.startswith(f"http://127.0.0.1:1234/#/experiments/{store.experiment_id}/runs?viewStateShareKey=demo")
    tags = store.client.get_experiment(store.experiment_id).tags
    state = json.loads(tags["mlflow.sharedViewState.demo"])
    names = ("error/mpiigaze_deg", "error/mpiigaze_k9_deg", "error/mpiigaze_own_deg", "speed/step_ms")
    assert state["selectedColumns"] == [f"metrics.`{name}`" for name in names]


@pytest.mark.parametrize("by_variable", [True, False])
def test_unreachable_server_is_reported_in_one_sentence(tmp_path, monkeypatch, by_variable):
    uri, began = "http://ann:secret@127.0.0.1:9", time.monotonic()
    if by_variable:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:9.*refused.*tracking\.uri") as caught:
        Store(Tracking(experiment="faze", uri=None if by_variable else uri), tmp_path)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("bad", ["not a database", None], ids=["damaged", "folder"])
def test_broken_store_is_reported_in_one_sentence(tmp_path, bad):
    if bad:
        (tmp_path / "mlflow.db").write_text(bad * 1000)
    uri = None if bad else f"{tmp_path}/mlruns"
    with pytest.raises(ValueError, match=re.escape(uri or str(tmp_path))):
        Store(Tracking(experiment="faze", uri=uri), tmp_path)


def open_and_mirror(folder: Path, number: int) -> None:
    place = Place(f"tier{number}", 0, f"{number}", "#000000")
    log = write_log(folder / f"{number}/run.jsonl", place)
    Store(Tracking(experiment="race", uri=None), folder).mirror(read_run(log), place)


def test_fresh_store_is_created_once(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    racing = [spawn.Process(target=open_and_mirror, args=(tmp_path, number)) for number in range(2)]
    for process in racing:
        process.start()
    for process in racing:
        process.join()
    assert [process.exitcode for process in racing] == [0] * 2
    store = Store(Tracking(experiment="race", uri=None), tmp_path)
    runs = store.client.search_runs([store.experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["0", "1"]
    assert len(store.client.search_experiments()) == 2  # MLflow's own and this one


def test_nothing_is_reported_over_the_network():
    code = "import faze.tracking, mlflow.telemetry as t; print(t.get_telemetry_client())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "None"


def test_snippets_of_the_page_on_servers_find_current_runs(store, mirror):
    mirror(change=-2.0)
    mirror()
    page = Path(__file__).parents[2] / "docs/how-to/team-server.md"
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    environment = os.environ | {"MLFLOW_TRACKING_URI": store.uri}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert re.search(r"tags\.ablation.*\n *demo +0 ", done.stdout)
    assert re.findall(r"(\S+) degrees: amp of demo, (\S+)", done.stdout)[0][0] == "3.50"
    assert done.stdout.count(" degrees: ") == 1
