import contextlib
import multiprocessing.forkserver
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter

import pytest
from mirrored import assert_run
from ports import free_port
from tracking_tree import ROOT, TIERS, default_config, write_results, write_stage_config

from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.config.parameters import Tracking
from faze.tracking.mirror import mirror_run
from faze.tracking.run_record import read_run, run_places
from faze.tracking.store import artifact_root, bare, having, open_store, prepare_environment, resolve_uri


def test_address_is_absolute_and_the_config_precedes_the_environment(tmp_path, monkeypatch):
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


def test_telemetry_is_disabled_before_mlflow_is_imported(tmp_path):
    """When imported, MLflow would start a telemetry thread and look up its server."""
    code = f"""
import importlib.abc, os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from faze.config.parameters import Tracking
from faze.tracking import mirror, run_record, store
assert "mlflow" not in sys.modules, "mlflow is imported too early"
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


@pytest.mark.parametrize("scheme", ["http", "postgresql"])
def test_unreachable_store_fails_the_stage_soon_with_one_line(tmp_path, scheme):
    results = tmp_path / "results" / "away"
    write_results(results, TIERS[:1])
    mapping = default_config(results, uri=f"{scheme}://me:secret@127.0.0.1:{free_port()}")
    mapping["run"]["tiers"] = ["baseline"]
    out = results / "tracking" / "tracked.json"
    began = time.monotonic()
    command = [sys.executable, "-m", "faze", "track", "--config", write_stage_config(results, mapping)]
    command += ["--results", results, "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert time.monotonic() - began < 30  # MLflow itself would try for four minutes
    assert done.returncode == 1 and not out.exists()
    assert done.stderr.count("\n") == 1 and "secret" not in done.stderr
    assert f"MLflow store {scheme}://127.0.0.1" in done.stderr and "Connection refused" in done.stderr


def test_hanging_server_times_out(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(ValueError, match=r"http://127.0.0.1.*lost"):
            open_store(Tracking("faze", f"http://127.0.0.1:{silent.getsockname()[1]}"), tmp_path)
    assert time.monotonic() - began < 30


def large(files):
    """Return whether a file is large enough to contain tables; journals may disappear at any moment."""
    with contextlib.suppress(FileNotFoundError):
        return any(file.stat().st_size > 20_000 for file in files)


def test_kill_while_tables_are_created_leaves_no_broken_store(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from faze.config.parameters import Tracking
from faze.tracking.store import open_store
open_store(Tracking("faze", None), Path({str(tmp_path)!r}))
"""
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        while process.poll() is None and not large(tmp_path.glob(".mlflow.db.*.db*")):
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not (tmp_path / "mlflow.db").exists()
    store = open_store(Tracking("faze", None), tmp_path)
    assert store.client.search_runs([store.experiment_id]) == []


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return a folder of results with a store in it."""
    folder = tmp_path_factory.mktemp("store") / "results"
    open_store(Tracking("faze", None), folder)
    return folder


def test_moved_or_copied_results_are_reported(results, tmp_path):
    copied = shutil.copytree(results, tmp_path / "copied")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"moved or copied.*mlflow\.db.*--forcerun track"):
            open_store(Tracking("faze", None), copied)
        (results / "mlartifacts").mkdir(exist_ok=True)  # after a copy, the former folder still exists


@pytest.mark.parametrize("netloc", ["host:500000", "host:abc", "[::1", "ann:hush/hush@host:5000"])
def test_invalid_address_is_reported_without_a_part_of_the_password(netloc, tmp_path):
    """Regression: an invalid address caused a traceback."""
    with pytest.raises(UserError, match=r"tracking\.uri.*MLFLOW_TRACKING_URI") as caught:
        open_store(Tracking("faze", f"http://{netloc}"), tmp_path)
    assert "hush" not in str(caught.value) and caught.value.__suppress_context__


def test_deleted_experiment_is_reported(results):
    store = open_store(Tracking("doomed", None), results)
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(ValueError, match=r"'doomed'.*tracking\.experiment"):
        open_store(Tracking("doomed", None), results)


PROCESSES = 8


def mirror_concurrently(results, number, barrier):
    """Mirror one run as one of eight processes, which start when the store does not exist yet."""
    record = read_run(ResultPaths(results), run_places(TIERS, [0, 1])[number])
    barrier.wait()
    mirror_run(open_store(Tracking("new experiment", None), results.parent), record)


def test_eight_processes_on_a_new_store_lose_and_misfile_nothing(tmp_path):
    """Without the lock, MLflow corrupts the database, so that all processes fail, or it assigns runs to Default."""
    results = tmp_path / "results" / "race"
    paths = write_results(results, seeds=(0, 1), steps=5)
    # Forked from a server that has already imported mlflow, so that all reach the store at the same moment.
    prepare_environment()
    context = multiprocessing.get_context("forkserver")
    multiprocessing.forkserver._forkserver._stop()  # an earlier test's server has not imported it
    context.set_forkserver_preload(["mlflow.store.tracking.sqlalchemy_store"])
    barrier = context.Barrier(PROCESSES)
    jobs = [context.Process(target=mirror_concurrently, args=(results, n, barrier)) for n in range(PROCESSES)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * PROCESSES

    store = open_store(Tracking("new experiment", None), results.parent)
    names = Counter(e.name for e in store.client.search_experiments())
    assert names == {"Default": 1, "new experiment": 1}
    assert store.client.search_runs(["0"]) == []
    names = {run.info.run_name for run in store.client.search_runs([store.experiment_id])}
    assert names == {place.name for place in run_places(TIERS, [0, 1])[:PROCESSES]}
    for place in run_places(TIERS, [0, 1])[:PROCESSES]:
        record = read_run(paths, place)
        (run,) = store.client.search_runs([store.experiment_id], having(record.place_tags))
        assert_run(store, run, record)


@pytest.mark.parametrize("half", [True, False])
def test_damaged_database_is_to_be_removed(tmp_path, half):
    """Regression: the message promised that the command works once the store responds, but it always failed."""
    database, whole = tmp_path / "mlflow.db", tmp_path / "whole.db"
    open_store(Tracking("faze", f"sqlite:///{whole}"), tmp_path)
    content = whole.read_bytes()
    database.write_bytes(content[: len(content) // 2] if half else b"x" * 100)
    with pytest.raises(UserError, match=rf"Remove {database}; .*--forcerun track"):
        open_store(Tracking("faze", None), tmp_path)
