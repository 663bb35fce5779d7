"""The machine's lock between benchmarks and other jobs, inherited variables, and limits of a container."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faze.base import machine
from faze.base.errors import UserError
from faze.base.machine import check_environment, gpus, machine_lock, recorded_variables

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
                message = other.stderr.readline()
                assert message.startswith("waiting for ") and str(lock) in message
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
        began = time.monotonic()
    assert time.monotonic() - began < 1


def test_a_process_of_another_launcher_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*machine.SINGLE, machine.LAUNCHER):
        monkeypatch.delenv(name, raising=False)
    check_environment()
    monkeypatch.setenv("WORLD_SIZE", "1")
    check_environment()
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(UserError, match=r"RANK=3 .*launcher"):
        check_environment()
    monkeypatch.setenv(machine.LAUNCHER, "1")
    check_environment()


@pytest.mark.parametrize("name", ["NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE", "NCCL_ALGO", "LD_PRELOAD"])
def test_variables_that_change_numbers_or_speed_are_recorded(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "x")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # every job sets its own
    assert f"{name}=x" in recorded_variables() and "OMP_NUM_THREADS" not in recorded_variables()


@pytest.mark.parametrize(("visible", "count"), [("", 0), ("0", 1), ("0,2", 2), ("GPU-1a,GPU-2b", 2), ("-1", 0)])
def test_visible_gpus_are_counted_without_torch(monkeypatch: pytest.MonkeyPatch, visible: str, count: int) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == count
