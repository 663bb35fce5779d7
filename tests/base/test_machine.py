"""The machine's lock between benchmarks and other jobs, and its GPUs."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faze.base.machine import gpus, machine_lock

HOLD = "from faze.base.machine import machine_lock\nwith machine_lock({}):\n    print('held', flush=True)\n    input()"


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAZE_MACHINE_LOCK", str(tmp_path / "lock"))
    return tmp_path / "lock"


def start(exclusive: bool) -> subprocess.Popen:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", HOLD.format(exclusive)], **pipes)


@pytest.mark.parametrize(("first", "second", "waits"), [
    (False, False, False), (False, True, True), (True, False, True), (True, True, True),
])  # fmt: skip
def test_a_benchmark_runs_beside_nothing(lock: Path, first: bool, second: bool, waits: bool) -> None:
    with start(first) as one:
        assert one.stdout.readline() == "held\n"
        with start(second) as other:
            if waits:
                assert select.select([other.stdout, other.stderr], [], [])[0] == [other.stderr]
                message = other.stderr.readline()
                assert message.startswith("waiting for ") and str(lock) in message
                assert not select.select([other.stdout], [], [], 0.2)[0]
                one.send_signal(signal.SIGKILL)  # the kernel releases the lock
            assert other.stdout.readline() == "held\n"
            assert other.communicate("\n")[1] == ""
        one.kill()


def test_other_users_share_the_lock(lock: Path) -> None:
    """Their umask may be 077, and they cannot write to the file."""
    umask = os.umask(0o077)
    try:
        with machine_lock(exclusive=True):
            assert lock.stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(umask)
    lock.chmod(0o444)
    with machine_lock(exclusive=True):
        pass


@pytest.mark.parametrize(("visible", "count"), [("", 0), ("0", 1), ("0,2", 2), ("GPU-1a,GPU-2b", 2), ("-1", 0)])
def test_visible_gpus_are_counted_without_torch(monkeypatch: pytest.MonkeyPatch, visible: str, count: int) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == count
