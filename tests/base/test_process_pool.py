"""Pools of worker processes: results in order, and no worker outlives a killed stage."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from faze.data.process_pool import worker_processes

SCRIPT = """
from test_process_pool import nothing, wait_forever
from faze.data.process_pool import worker_processes

if __name__ == "__main__":
    with worker_processes(1, nothing) as pool:
        pool.submit(wait_forever).result()
"""


def nothing() -> None:
    """Start a worker without any setting."""


def wait_forever() -> None:
    Path("worker").write_text(f"{os.getpid()} {os.getppid()}\n")
    time.sleep(600)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_run_in_order_in_processes_of_their_own() -> None:
    with worker_processes(2, nothing) as pool:
        assert list(pool.map(abs, range(-9, 0))) == list(range(9, 0, -1))
        assert pool.submit(os.getpid).result() != os.getpid()


def test_workers_and_their_server_end_with_a_killed_stage(tmp_path: Path) -> None:
    (tmp_path / "stage.py").write_text(SCRIPT)
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1])])
    stage = subprocess.Popen([sys.executable, "stage.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path})
    started = tmp_path / "worker"
    patience = time.monotonic() + 60
    while not (started.exists() and started.read_text().endswith("\n")) and time.monotonic() < patience:
        time.sleep(0.05)
    processes = [int(word) for word in started.read_text().split()]
    stage.send_signal(signal.SIGKILL)
    stage.wait()
    while any(map(is_running, processes)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not any(map(is_running, processes))
