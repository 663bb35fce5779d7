"""A fork server: what its forks are given, and how they end.

A module that it imports puts a probe in faze's place, which says what it finds and waits if told to.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from faze.benchmark.fork_server import ForkServer

from faze.base.errors import UserError
from faze.benchmark.processes import Command, fork_servers
from faze.benchmark.tier_steps import tier_config
from faze.config.parameters import Engine
from faze.engine.parallel import rank_environments

Start = Callable[[], ForkServer]

PROBE = """
import json, os, runpy, sys, threading, time

def run_module(name, **_):
    if sys.argv[1] == "wait":
        time.sleep(600)
    if sys.argv[1] == "fail":
        raise OSError("the probe fails")
    environment = {key: os.environ.get(key) for key in ("RANK", "OF_SERVER")}
    print(json.dumps([name, sys.argv[1:], environment, threading.active_count(), os.getppid()]))
    sys.exit(None if sys.argv[1] == "good" else "words at the end")

runpy.run_module = run_module
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server within the test, whose output is then captured."""
    (tmp_path / "probe.py").write_text(PROBE)
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(ForkServer(["probe"], {"PYTHONPATH": paths, "OF_SERVER": "its own"}))


def engine(**changes: object) -> Engine:
    return replace(tier_config([], "baseline").engine, **changes)


def test_forks_are_faze_with_arguments_and_environment_of_their_own(start: Start, capfd: pytest.CaptureFixture) -> None:
    server = start()
    for rank in range(3):  # one after the other, as they print to one place
        assert server.fork(["good", str(rank)], {"RANK": str(rank)}).ended(30)
    found = list(map(json.loads, capfd.readouterr().out.splitlines()))
    parent = found[0][4]
    assert found == [
        ["faze", ["good", str(rank)], {"RANK": str(rank), "OF_SERVER": "its own"}, 1, parent] for rank in range(3)
    ]
    assert parent != os.getpid() and "OF_SERVER" not in os.environ


def test_a_fork_that_fails_says_why_and_the_server_goes_on(start: Start, capfd: pytest.CaptureFixture) -> None:
    server = start()
    assert server.fork(["fail"], {}).ended(30)
    assert "OSError: the probe fails" in capfd.readouterr().err
    assert server.fork(["good"], {}).ended(30)
    assert json.loads(capfd.readouterr().out)[1] == ["good"]


def test_a_fork_is_ended(start: Start) -> None:
    fork = start().fork(["wait"], {})
    assert not fork.ended(0.2)
    began = time.monotonic()
    fork.end()
    assert time.monotonic() - began < 30


def test_a_server_that_cannot_start_or_was_killed_is_said_in_a_sentence(start: Start) -> None:
    server = start()
    os.kill(server._process.pid, signal.SIGKILL)
    with pytest.raises(UserError, match="cannot start; why not stands above"):
        server.fork(["good"], {})
    with ForkServer(["no_such_module"], {}) as other, pytest.raises(UserError, match="cannot start"):
        other.fork(["good"], {})


def test_each_allocator_has_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr("faze.benchmark.processes.ForkServer", lambda _, its: _Noted(its, started))
    commands = [Command((), None), Command((), engine()), Command((), engine(allocator="keep"))]
    with fork_servers(commands) as servers:
        assert sorted(servers) == [False, True]
    assert started[0] == {} and "glibc.malloc" in started[1]["GLIBC_TUNABLES"]
    with fork_servers(commands[:2]) as servers:
        assert list(servers) == [False]


def test_ranks_are_told_what_torchrun_would_tell_them() -> None:
    assert rank_environments(engine(parallel="single")) == [{}]
    first, second = rank_environments(engine(parallel="ddp", processes=2, device="cpu"))
    assert (first["RANK"], second["RANK"], first["WORLD_SIZE"], second["LOCAL_WORLD_SIZE"]) == ("0", "1", "2", "2")
    assert first["MASTER_PORT"] == second["MASTER_PORT"] and int(first["MASTER_PORT"]) > 0
    assert len(rank_environments(engine(parallel="ddp", processes=1, device="cpu"))) == 1


class _Noted:
    def __init__(self, environment: dict, started: list) -> None:
        started.append(dict(environment))

    def __enter__(self) -> "_Noted":
        return self

    def __exit__(self, *_: object) -> None:
        pass
