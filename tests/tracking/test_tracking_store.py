import multiprocessing.forkserver
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tracking_tree import ROOT, TIERS, default_config, write_results, write_stage_config

from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.config.parameters import Tracking
from faze.tracking.mirror import mirror_run
from faze.tracking.run_record import read_run, run_places
from faze.tracking.store import artifact_root, bare, open_store, prepare_environment, resolve_uri


def test_the_address_is_absolute_and_the_config_goes_before_the_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    results = tmp_path / "results"
    assert resolve_uri(None, results.relative_to(tmp_path)) == f"sqlite:///{results}/mlflow.db"
    assert artifact_root(resolve_uri(None, results), results) == f"file://{results}/mlartifacts"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server:5000")
    assert resolve_uri(None, results) == "http://server:5000"
    assert artifact_root("http://server:5000", results) is None
    assert artifact_root("postgresql+psycopg2://db/x", results) == f"file://{results}/mlartifacts"
    assert resolve_uri("sqlite:///other.db", results) == f"sqlite:///{tmp_path}/other.db"


def test_passwords_are_not_shown():
    assert bare("postgresql://me:secret@db.org:5432/faze") == "postgresql://db.org:5432/faze"
    assert bare("http://db.org/x@y") == "http://db.org/x@y"


def test_mlflow_is_told_to_be_silent_before_it_is_imported(tmp_path):
    """A telemetry thread would start, and look its server up, at the import."""
    code = f"""
import importlib.abc, os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.config.parameters import Tracking
from faze.tracking import follower, mirror, run_record, store, view
assert "mlflow" not in sys.modules, "mlflow is imported before it is needed"
class Look(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "mlflow":
            print({{k: os.environ.get(k) for k in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK")}})
sys.meta_path.insert(0, Look())
store.open_store(Tracking("faze", None), Path({str(tmp_path)!r}))
from mlflow.telemetry import get_telemetry_client
assert get_telemetry_client() is None
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW", "DO_NOT", "CI"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'MLFLOW_DISABLE_TELEMETRY': 'true', 'DO_NOT_TRACK': 'true'}\n"


def closed_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "postgresql"])
def test_a_store_that_does_not_answer_fails_the_stage_in_one_sentence_and_soon(tmp_path, scheme):
    results = tmp_path / "results" / "away"
    write_results(results, TIERS[:1])
    mapping = default_config(results, uri=f"{scheme}://me:secret@127.0.0.1:{closed_port()}")
    mapping["run"]["tiers"] = ["baseline"]
    out = results / "tracking" / "tracked.json"
    began = time.monotonic()
    done = track(results, write_stage_config(results, mapping), out)
    assert time.monotonic() - began < 30  # MLflow itself would try for four minutes
    assert done.returncode == 1 and not out.exists()
    assert done.stderr.count("\n") == 1 and "secret" not in done.stderr
    assert f"MLflow store {scheme}://127.0.0.1" in done.stderr and "Connection refused" in done.stderr
    assert "Nothing is lost" in done.stderr


def track(results, config, out):
    command = [sys.executable, "-m", "faze", "track", "--config", config, "--results", results, "--out", out]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_a_server_that_hangs_is_given_up_within_its_timeout(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(ValueError, match="MLflow store http://127.0.0.1.*Nothing is lost"):
            open_store(Tracking("faze", f"http://127.0.0.1:{silent.getsockname()[1]}"), tmp_path)
    assert time.monotonic() - began < 30


def size(file: Path) -> int:
    """Its bytes; none if it has gone, as a journal does."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def test_a_kill_while_the_tables_are_made_leaves_no_broken_store(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.config.parameters import Tracking
from faze.tracking.store import open_store
open_store(Tracking("faze", None), Path({str(tmp_path)!r}))
"""
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        while not any(size(file) > 20_000 for file in tmp_path.glob(".mlflow.db.*.db*")):
            assert process.poll() is None
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "mlflow.db").exists()
    store = open_store(Tracking("faze", None), tmp_path)
    assert store.client.search_runs([store.experiment_id]) == []


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder of results with a store in it."""
    folder = tmp_path_factory.mktemp("store") / "results"
    open_store(Tracking("faze", None), folder)
    return folder


def test_moved_or_copied_results_are_told(results, tmp_path):
    copied = shutil.copytree(results, tmp_path / "copied")
    with pytest.raises(ValueError, match="were the results moved or copied.*Remove mlflow.db"):
        open_store(Tracking("faze", None), copied)


@pytest.mark.parametrize("netloc", ["host:500000", "host:abc", "[::1", "ann:hush/hush@host:5000"])
def test_what_is_no_address_is_told_without_a_part_of_a_password(netloc, tmp_path):
    """Seen red: a traceback."""
    with pytest.raises(UserError, match="the address of the MLflow store, .* is none") as told:
        open_store(Tracking("faze", f"http://{netloc}"), tmp_path)
    assert "hush" not in str(told.value) and told.value.__suppress_context__


def test_a_deleted_experiment_is_told(results):
    store = open_store(Tracking("doomed", None), results)
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(ValueError, match="'doomed' is deleted.*tracking.experiment"):
        open_store(Tracking("doomed", None), results)


PROCESSES = 8


def mirror_at_once(results, number, barrier):
    """One of eight processes that all meet a store that does not exist yet."""
    record = read_run(ResultPaths(results), run_places(TIERS, [0, 1])[number])
    barrier.wait()
    mirror_run(open_store(Tracking("new experiment", None), results.parent), record)


def test_eight_processes_at_once_on_a_fresh_store_lose_nothing_and_misfile_nothing(tmp_path):
    """MLflow alone breaks the database, so that all of them fail, or files their runs under Default."""
    results = tmp_path / "results" / "race"
    paths = write_results(results, seeds=(0, 1), steps=5)
    # Forked from a server that has mlflow loaded already, so that all reach the store at the same moment.
    prepare_environment()
    context = multiprocessing.get_context("forkserver")
    multiprocessing.forkserver._forkserver._stop()  # that of an earlier test has not loaded it
    context.set_forkserver_preload(["mlflow.store.tracking.sqlalchemy_store"])
    barrier = context.Barrier(PROCESSES)
    jobs = [context.Process(target=mirror_at_once, args=(results, n, barrier)) for n in range(PROCESSES)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * PROCESSES

    store = open_store(Tracking("new experiment", None), results.parent)
    names = Counter(e.name for e in store.client.search_experiments())
    assert names == {"Default": 1, "new experiment": 1}
    assert store.client.search_runs(["0"]) == []
    runs = {run.info.run_name: run for run in store.client.search_runs([store.experiment_id])}
    wanted = run_places(TIERS, [0, 1])[:PROCESSES]
    assert sorted(runs) == [place.name for place in wanted]
    for place in wanted:
        run = runs[place.name]
        held = [
            (m.key, m.step, m.value, m.timestamp)
            for key in run.data.metrics
            for m in store.client.get_metric_history(run.info.run_id, key)
        ]
        assert sorted(held) == sorted(tuple(p) for p in read_run(paths, place).metrics)
        assert run.data.tags["superseded"] == "false" and run.info.status == "FINISHED"
        assert sorted(i.dataset.name for i in run.inputs.dataset_inputs) == ["gazecapture", "mpiigaze"]
        held = {a.path for a in store.client.list_artifacts(run.info.run_id)}
        assert held == {"run.jsonl", "walks", "report", "data"}


@pytest.mark.parametrize("kept", [None, 100])
def test_a_damaged_database_is_to_be_removed(tmp_path, kept):
    """Seen red: the same command was said to help as soon as the store answers, and failed for ever."""
    database = tmp_path / "mlflow.db"
    content = sqlite_database(tmp_path / "whole.db")
    database.write_bytes(content[: len(content) // 2] if kept is None else b"x" * kept)
    with pytest.raises(UserError, match=rf"(malformed|not a database)\. Remove {database}; .*--forcerun track. *"):
        open_store(Tracking("faze", None), tmp_path)


def sqlite_database(path: Path) -> bytes:
    """A database of MLflow's."""
    open_store(Tracking("faze", f"sqlite:///{path}"), path.parent)
    return path.read_bytes()
