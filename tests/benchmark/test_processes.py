"""The benchmark's processes: how they start, answer, fail and end."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import probe_processes
import pytest
from probe_processes import probe
from processes import family, living, until

from faze.base.errors import UserError
from faze.benchmark.processes import ForkServer, Job, TierProcesses, benchmark_processes
from faze.benchmark.tier_steps import tier_config
from faze.config.parameters import Engine
from faze.engine.parallel import rank_environments

PROBES = Path(probe_processes.__file__).parent


def engine(**changes: object) -> Engine:
    return tier_config([], "baseline")[1].model_copy(update=changes)


@pytest.fixture(autouse=True)
def importable_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROBES), *filter(None, sys.path)]))


def test_processes_are_fresh_forks_in_the_order_of_their_ranks() -> None:
    ranks = Job(probe, engine(parallel="ddp", processes=2, device="cpu"))
    jobs = {"ddp": ranks, "one": Job(probe)}
    with ForkServer({"OF_SERVER": "its own"}) as server:
        with benchmark_processes({False: server}, jobs) as (ddp, one):
            first, second = ddp.ask("describe")
            (other,) = one.ask("describe")
        assert not living({process["pid"] for process in (first, second, other)})  # join waited for them
    assert (first["RANK"], second["RANK"], other["RANK"]) == ("0", "1", None)
    for process in (first, second, other):
        assert (process["OF_SERVER"], process["threads"], process["parent"]) == ("its own", 1, first["parent"])
    assert len({process["pid"] for process in (first, second, other)}) == 3
    assert first["parent"] != os.getpid() and "OF_SERVER" not in os.environ


@pytest.mark.parametrize("start", ["at once", "in a request"])
def test_a_process_that_exits_is_reported_in_one_sentence(start: str, capfd: pytest.CaptureFixture) -> None:
    """The exit is reported even while another process of the tier waits for the exited one."""
    job = Job(partial(probe, fails=start), engine(parallel="ddp", processes=2, device="cpu"))
    with ForkServer({}) as server:
        tier = TierProcesses("some tier", server.start(job))
        with pytest.raises(UserError, match="some tier"):
            tier.receive_description()
            tier.ask("fail")
        assert "faze benchmark: rank 1 fails" in capfd.readouterr().err
        other = TierProcesses("other", server.start(Job(probe)))  # the server continues
        other.receive_description()


def test_no_process_outlives_its_server() -> None:
    with ForkServer({}) as server:
        tier = TierProcesses("busy", server.start(Job(probe)))
        tier.receive_description()
        pid = tier.ask("describe")[0]["pid"]
        threading.Thread(target=lambda: pytest.raises(UserError, tier.ask, "sleep"), daemon=True).start()
        time.sleep(0.2)
        began = time.monotonic()
    assert time.monotonic() - began < 30 and not living({pid})


def test_ranks_have_the_environment_of_torchrun() -> None:
    assert rank_environments(engine(parallel="single")) == [{}]
    first, second = rank_environments(engine(parallel="ddp", processes=2, device="cpu"))
    for rank, environment in (("0", first), ("1", second)):
        assert environment == {
            **{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": first["MASTER_PORT"]},
        }
    assert int(first["MASTER_PORT"]) > 0
    assert len(rank_environments(engine(parallel="ddp", processes=1, device="cpu"))) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_benchmark_leaves_no_process(number: signal.Signals) -> None:
    """Regression: the fork server printed a traceback on Ctrl-C."""
    program = """
from probe_processes import probe
from faze.benchmark.processes import Job, benchmark_processes, fork_servers
jobs = {"busy": Job(probe)}
try:
    with fork_servers(jobs.values()) as servers, benchmark_processes(servers, jobs) as (tier,):
        print("started", flush=True)
        tier.ask("sleep")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen([sys.executable, "-c", program], **streams) as process:
        assert process.stdout.readline() == "started\n"
        started = family(process.pid)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)  # a terminal interrupts the group
        out, err = process.communicate(timeout=60)
        until(lambda: not living(started), "the end of all processes", seconds=60)
    assert len(started) == 3 and "Traceback" not in err
    assert out == ("interrupted\n" if number == signal.SIGINT else "")
