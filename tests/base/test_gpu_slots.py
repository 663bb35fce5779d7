"""Each job has its own GPUs. The GPUs are made up: names in CUDA_VISIBLE_DEVICES, of which nothing but locks is wanted.

Seen red by breaking the code: a lock that is shared; locks that the command does not inherit; two that collect at once.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faze.base.errors import UserError
from faze.base.gpu_slots import check, devices

ROOT = Path(__file__).resolve().parents[2]
JOB = """
import os, sys
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
sys.stdin.read()
"""
Job = subprocess.Popen[str]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of the test's own, with three GPUs."""
    monkeypatch.setenv("FAZE_MACHINE_LOCK", str(tmp_path / "lock"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    return tmp_path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], Job]]:
    """start(gpus) -> a job that asks for so many, and ends when its input does; what it says is in words_of(job)."""
    with contextlib.ExitStack() as stack:

        def start(gpus: int) -> Job:
            command = [sys.executable, "-m", "faze.base.gpu_slots", str(gpus), sys.executable, "-c", JOB]
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            job = stack.enter_context(subprocess.Popen(command, cwd=ROOT, text=True, **pipes))
            stack.callback(job.kill)
            return job

        yield start


def gpus_of(job: Job) -> set[str]:
    assert job.stdout is not None
    return set(job.stdout.readline().strip().split(","))


def said(job: Job, beginning: str) -> str:
    """Wait for a line; before it, who starts with others may say that it waits for its turn."""
    return next(line for line in job.stderr if line.startswith(beginning))


def end(job: Job) -> None:
    job.stdin.close()
    assert job.wait(timeout=60) == 0


def test_jobs_have_gpus_of_their_own_and_one_more_waits_and_says_for_whom(start) -> None:
    jobs = [start(1) for _ in range(3)]
    assert sorted(name for job in jobs for name in gpus_of(job)) == ["0", "1", "2"]
    late = start(1)
    words = said(late, "waiting for GPUs: process ")
    assert all(f"process {job.pid} of user" in words for job in jobs)
    assert all(said(job, "on GPU ") for job in jobs)
    end(jobs[1])
    assert len(gpus_of(late)) == 1


def test_the_gpu_of_a_killed_job_is_free_at_once(start) -> None:
    whole = start(3)
    assert gpus_of(whole) == {"0", "1", "2"}
    whole.send_signal(signal.SIGKILL)
    whole.wait()
    assert gpus_of(start(3)) == {"0", "1", "2"}


def test_a_gpu_is_taken_as_long_as_anything_of_the_job_lives(start) -> None:
    """As the workers of a training that was killed live on for a moment, with their memory on the GPU."""
    holder = [sys.executable, "-m", "faze.base.gpu_slots", "3", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]
    started = subprocess.run(holder, cwd=ROOT, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, check=True)
    late = start(1)
    assert said(late, "waiting for GPUs: ")
    os.kill(int(started.stdout), signal.SIGKILL)
    assert len(gpus_of(late)) == 1


def test_two_that_want_more_than_half_do_not_wait_for_each_other(start) -> None:
    first = start(1)
    gpus_of(first)
    pair = [start(2), start(2)]  # two are free: one of them has both
    time.sleep(0.5)
    small = start(1)  # and does not pass by who waits longer
    end(first)
    ended = set()
    deadline = time.monotonic() + 60
    while len(ended) < 3:
        assert time.monotonic() < deadline
        for job in (*pair, small):
            if job not in ended and ready(job):
                assert len(gpus_of(job)) == (1 if job is small else 2)
                end(job)
                ended.add(job)


def ready(job: Job) -> bool:
    """Whether a job has its GPUs: it has said so."""
    return bool(select.select([job.stdout], [], [], 0.1)[0])


def test_who_waits_is_ended_by_sigterm_even_where_its_shell_ignores_it(start) -> None:
    gpus_of(start(3))
    command = f"trap '' TERM; exec {sys.executable} -m faze.base.gpu_slots 1 true"
    waiting = subprocess.Popen(["sh", "-c", command], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert waiting.stderr.readline().startswith("waiting for GPUs")
    waiting.terminate()
    assert waiting.wait(timeout=60) == -signal.SIGTERM
    waiting.stderr.close()


@pytest.mark.parametrize(
    ("named", "names"),
    [
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),
        ("3, 1", ["3", "1"]),
        ("GPU-8a,MIG-7/1/0,GPU-8a", ["GPU-8a", "MIG-7/1/0"]),
    ],
)
def test_gpus_are_those_that_cuda_would_see(named: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert devices() == names


def test_more_than_there_are_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    check(3)
    with pytest.raises(UserError, match=r"^4 GPUs are asked for, but there are 3 here \(CUDA_VISIBLE_DEVICES=0,1,2\)"):
        check(4)
    done = subprocess.run(
        [sys.executable, "-m", "faze.base.gpu_slots", "4", "true"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "ask for fewer" in done.stderr


def test_names_of_gpus_cannot_lead_elsewhere(machine: Path, start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "../../x")
    assert gpus_of(start(1)) == {"../../x"}
    assert sorted(path.name for path in machine.iterdir()) == ["lock.gpu-______x", "lock.gpus"]
