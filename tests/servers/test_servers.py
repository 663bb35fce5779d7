"""`track` with a team's MLflow, through every failure of such servers: nothing is lost or duplicated."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from mirrored import assert_mirrored, points, values_of
from tracking_tree import ROOT, default_config, write_results, write_stage_config

from faze.base.result_paths import ResultPaths
from faze.config.parameters import Tracking
from faze.tracking.run_record import read_run, run_places
from faze.tracking.store import Store, open_store

TIERS = ("baseline", "amp")
PLACES = run_places(TIERS, [0])


def ablation(folder: Path, name: str, uri: str, experiment: str) -> ResultPaths:
    """Write results without training, and the configuration that sends them to the server."""
    paths = write_results(folder / "results" / name, TIERS)
    mapping = default_config(paths.root, uri=uri, experiment=experiment)
    mapping["run"] |= {"tiers": list(TIERS), "seeds": [0]}
    write_stage_config(paths.root, mapping)
    return paths


def start(paths: ResultPaths, **environment: str) -> subprocess.Popen:
    tracking = paths.root / "tracking"
    arguments = ["--config", tracking / "track.config.yaml", "--results", paths.root, "--out", tracking / "out.json"]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW", "AWS"))}
    return subprocess.Popen(
        [sys.executable, "-m", "faze", "track", *map(str, arguments)],
        cwd=ROOT,
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def track(paths: ResultPaths, **environment: str) -> tuple[int, str]:
    process = start(paths, **environment)
    sentence = process.communicate()[1]
    return process.returncode, sentence


def assert_tracked(paths: ResultPaths, **environment: str) -> None:
    code, told = track(paths, **environment)
    assert (code, told) == (0, ""), told


def assert_one_sentence(told: tuple[int, str], uri: str) -> None:
    code, sentence = told
    assert code == 1, sentence
    assert sentence.count("\n") == 1, sentence
    assert sentence.startswith(f"faze track: MLflow store {uri}: ")
    assert "Nothing is lost" in sentence and "the same command" in sentence


def opened(uri: str, paths: ResultPaths, experiment: str) -> Store:
    return open_store(Tracking(experiment, uri), paths.root.parent)


@pytest.fixture
def proxy(team):
    from services import proxy_to

    with proxy_to(team.server.port) as before:
        yield before


def test_eight_ablations_at_once_as_if_from_eight_machines(team, proxy, tmp_path):
    """Each ablation has its own temporary folder, so that no machine-wide lock separates them, as on a cluster.

    All find at the same moment that the experiment does not exist.
    """
    all_paths = [ablation(tmp_path, f"at_once_{n}", proxy.uri, "eight") for n in range(8)]
    together, asked = threading.Barrier(8), iter(range(8))

    def meet(method: str, path: str) -> bool:
        if "experiments/get-by-name" in path and next(asked, None) is not None:
            together.wait(timeout=300)
        return False

    proxy.loses = meet
    for turn in range(2):
        processes = []
        for paths in all_paths:
            temporary = paths.root / "tmp"
            temporary.mkdir(exist_ok=True)
            processes.append(start(paths, TMPDIR=str(temporary)))
        told = [process.communicate()[1] for process in processes]
        assert [process.returncode for process in processes] == [0] * 8, told
        store = opened(team.server.uri, all_paths[0], "eight")
        assert [e.name for e in store.client.search_experiments()].count("eight") == 1, turn
        for paths in all_paths:
            assert_mirrored(store, paths, PLACES)
    assert len(store.client.search_runs([store.experiment_id])) == 8 * len(TIERS)
    assert not [run for run in store.client.search_runs(["0"]) if "ablation" in run.data.tags]


@pytest.mark.parametrize("call", [1, 3, 6, 9, 14, 25, 36])
def test_the_server_is_killed_in_the_middle(team, proxy, tmp_path, call):
    paths = ablation(tmp_path, f"killed_{call}", proxy.uri, "killed")
    proxy.at_call(call, team.server.kill)
    try:
        told = track(paths)
        assert_one_sentence(told, proxy.uri)
        assert len(proxy.calls) >= call
    finally:
        proxy.before = lambda number: None
        team.server.kill()
        team.server.start()
    assert not (paths.root / "tracking" / "out.json").exists()
    assert_tracked(paths)
    assert_mirrored(opened(team.server.uri, paths, "killed"), paths, PLACES)


@pytest.mark.parametrize("call", [2, 5, 8, 11, 20])
def test_the_database_is_restarted_in_the_middle(team, proxy, tmp_path, call):
    """All connections break; unfinished work is rolled back, and MLflow's own retry may succeed."""
    paths = ablation(tmp_path, f"restarted_{call}", proxy.uri, "restarted")
    proxy.at_call(call, team.database.restart)
    told = track(paths)
    if told != (0, ""):
        assert_one_sentence(told, proxy.uri)
    assert len(proxy.calls) >= call
    team.database.recovered()
    assert_tracked(paths)
    assert_mirrored(opened(team.server.uri, paths, "restarted"), paths, PLACES)


def test_a_database_that_stays_away_is_one_sentence(team, proxy, tmp_path):
    paths = ablation(tmp_path, "away", proxy.uri, "away")
    proxy.at_call(7, team.database.kill)
    try:
        assert_one_sentence(track(paths), proxy.uri)
    finally:
        team.database.start()
        team.database.recovered()
    assert_tracked(paths)
    assert_mirrored(opened(team.server.uri, paths, "away"), paths, PLACES)


@pytest.mark.parametrize(
    "lost",
    [
        "experiments/create",
        "runs/create",
        "runs/log-inputs",
        "logged-models",
        "runs/log-batch",
        "outputs",
        "artifacts/",
    ],
)
def test_a_request_whose_answer_is_lost_acts_once(team, proxy, tmp_path, lost):
    """The server acts on the request, the connection breaks, and MLflow's client repeats the request."""
    name = "lost_" + "".join(filter(str.isalpha, lost))
    paths, left = ablation(tmp_path, name, proxy.uri, name), [1]
    proxy.loses = lambda method, path: (
        method != "GET" and lost in path and "search" not in path and bool(left and left.pop())
    )
    told = track(paths)
    assert not left, proxy.calls
    sent = [path for method, path in proxy.calls if method != "GET" and lost in path and "search" not in path]
    assert len(sent) == len(PLACES) + 1 or lost not in ("runs/create", "outputs", "log-inputs"), proxy.calls
    store = opened(team.server.uri, paths, name)
    if lost == "outputs":  # the one request that MLflow refuses the second time
        assert_one_sentence(told, proxy.uri)
    else:
        assert told == (0, "")
        assert_mirrored(store, paths, PLACES)
    replaced = store.client.search_runs([store.experiment_id], "tags.superseded = 'true'")
    assert len(replaced) == (lost == "runs/create")
    assert_tracked(paths)
    assert_mirrored(store, paths, PLACES)


def test_a_slow_server_takes_its_time_and_nothing_else(team, proxy, tmp_path):
    """Each call takes a second, and eight run at a time. The second time, there is almost nothing to send."""
    paths = ablation(tmp_path, "slow", proxy.uri, "slow")
    proxy.delay_s = 1.0
    began = time.monotonic()
    assert_tracked(paths)
    took, calls = time.monotonic() - began, len(proxy.calls)
    assert_mirrored(opened(team.server.uri, paths, "slow"), paths, PLACES)
    assert took < 0.75 * calls, (took, calls)
    del proxy.calls[:]
    assert_tracked(paths)
    assert len(proxy.calls) <= 6, proxy.calls


@pytest.fixture
def full_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if not mount or subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "faze", folder], check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_the_disk_of_the_servers_artifacts_is_full(postgres, tmp_path, full_disk):
    """All values are still stored. Once there is space, the same command stores the files, too."""
    from services import Mlflow

    server = Mlflow(tmp_path / "log", postgres.uri, f"file://{full_disk}")
    try:
        paths = ablation(tmp_path, "full", server.uri, "full")
        film = paths.walks("amp", 0) / "gaze_p00.mp4"
        film.write_bytes(os.urandom(3 << 20))
        assert_one_sentence(track(paths), server.uri)
        store = opened(server.uri, paths, "full")
        runs = {run.info.run_name: run for run in store.client.search_runs([store.experiment_id])}
        for place in PLACES:
            run = runs[place.name]
            assert points(store, run.info.run_id) == sorted(tuple(p) for p in values_of(read_run(paths, place)))
            assert run.info.status == "RUNNING"  # not all of it is there
        subprocess.run(["mount", "-o", "remount,size=32m", full_disk], check=True)
        assert_tracked(paths)
        assert_mirrored(store, paths, PLACES)
        held = store.client.download_artifacts(runs["1-amp"].info.run_id, "walks/gaze_p00.mp4", str(tmp_path))
        assert Path(held).read_bytes() == film.read_bytes()
    finally:
        server.kill()


ADMIN = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": "a-long-password"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Start a server that requires a user name and a password and has a separate database."""
    from services import Mlflow

    folder = tmp_path_factory.mktemp("guarded")
    (folder / "auth.ini").write_text(
        "[mlflow]\ndefault_permission = READ\n"
        f"database_uri = sqlite:///{folder}/users.db\nadmin_username = admin\nadmin_password = a-long-password\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    database = f"sqlite:///{folder}/mlflow.db"
    environment = {"MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"), "MLFLOW_FLASK_SERVER_SECRET_KEY": "made-up"}
    server = Mlflow(folder / "log", database, f"file://{folder}/files", "--app-name", "basic-auth", **environment)
    yield server
    server.kill()


def test_who_is_known_is_let_in(guarded, tmp_path, monkeypatch):
    for key, value in ADMIN.items():
        monkeypatch.setenv(key, value)
    paths = ablation(tmp_path, "let_in", guarded.uri, "guarded")
    assert_tracked(paths, **ADMIN)
    assert_tracked(paths, **ADMIN)
    assert_mirrored(opened(guarded.uri, paths, "guarded"), paths, PLACES)


def test_user_and_password_of_the_address_are_used_and_not_shown(guarded, tmp_path, monkeypatch):
    uri = guarded.uri.replace("//", "//admin:a-long-password@")
    paths = ablation(tmp_path, "by_address", uri, "guarded")
    assert_tracked(paths)
    assert "a-long-password" not in (paths.root / "tracking" / "out.json").read_text()
    assert_mirrored(opened(uri, paths, "guarded"), paths, PLACES)


@pytest.mark.parametrize(
    ("user", "environment"),
    [
        ("", {}),
        ("admin:wrong-secret@", {}),
        ("", {"MLFLOW_TRACKING_USERNAME": "nobody", "MLFLOW_TRACKING_PASSWORD": "wrong-secret"}),
        ("", {"MLFLOW_TRACKING_TOKEN": "wrong-secret"}),
    ],
    ids=["none", "address", "password", "token"],
)
def test_who_is_not_known_is_told_in_one_sentence(guarded, tmp_path, user, environment):
    paths = ablation(tmp_path, "unknown", guarded.uri.replace("//", f"//{user}"), "guarded")
    told = track(paths, **environment)
    assert_one_sentence(told, guarded.uri)
    assert "it does not know this user or password" in told[1] and "MLFLOW_TRACKING_USERNAME" in told[1]
    assert "wrong-secret" not in told[1]


def test_who_may_only_read_is_told_in_one_sentence(guarded, tmp_path, monkeypatch):
    import requests

    for key, value in ADMIN.items():
        monkeypatch.setenv(key, value)
    paths = ablation(tmp_path, "reader", guarded.uri, "guarded")
    opened(guarded.uri, paths, "guarded")  # the administrator's experiment
    reader = {"username": "reader", "password": "another-long-one"}
    requests.post(f"{guarded.uri}/api/2.0/mlflow/users/create", json=reader, auth=tuple(ADMIN.values()), timeout=30)
    user = {"MLFLOW_TRACKING_USERNAME": "reader", "MLFLOW_TRACKING_PASSWORD": "another-long-one"}
    told = track(paths, **user)
    assert_one_sentence(told, guarded.uri)
    assert "this user may not write" in told[1]
