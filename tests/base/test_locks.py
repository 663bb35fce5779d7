"""Locks on outputs, the machine and GPUs: which processes wait or are refused, and what a killed holder leaves.

The GPUs are fake: names in CUDA_VISIBLE_DEVICES that are locked but never used. Checked by breaking the code: a lock
that is shared, locks that a command does not inherit, two jobs that collect GPUs at once, a stage without a lock.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import family, living

from faze.base.errors import UserError
from faze.base.files import whole_folder
from faze.base.locks import POLL_S, check_gpus, gpus, machine_exclusive, machine_shared, output_lock
from faze.stages import train

ROOT = Path(__file__).resolve().parents[2]
HOLDER = """
import sys, time
from faze.base import locks
with getattr(locks, sys.argv[1])(*sys.argv[3:]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""
JOB = 'import os, sys; print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True); sys.stdin.read()'
TAKE = (sys.executable, "-m", "faze.base.locks")
Process = subprocess.Popen[str]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a private machine lock and three GPUs."""
    monkeypatch.setenv("FAZE_MACHINE_LOCK", str(tmp_path / "machine.lock"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    return tmp_path / "machine.lock"


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Return start(*command), which starts a process with pipes; it is killed when the test ends."""
    with contextlib.ExitStack() as stack:

        def start(*command: object) -> Process:
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            process = stack.enter_context(subprocess.Popen(list(map(str, command)), cwd=ROOT, text=True, **pipes))
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def hold(start) -> Callable[..., Process]:
    """Return hold(lock, seconds, path), which starts a process that holds the lock."""

    def hold(lock: str, seconds: float = 60, *path: Path) -> Process:
        process = start(sys.executable, "-c", HOLDER, lock, seconds, *path)
        assert process.stdout.readline() == "held\n"
        return process

    return hold


def kill(process: Process) -> None:
    process.kill()
    process.wait()


def refusal() -> str:
    with pytest.raises(UserError, match="in use") as refused, machine_exclusive():
        pass
    return str(refused.value)


@pytest.mark.parametrize(("lock", "waiter"), [("output_lock", output_lock), ("machine_exclusive", machine_shared)])
def test_the_second_waits_and_names_the_first(lock, waiter, hold, tmp_path, capsys):
    path = [tmp_path / "checkpoint.pt"] if lock == "output_lock" else []
    holder = hold(lock, 1, *path)
    with waiter(*path):
        assert holder.wait() == 0
    reason = f"waiting to write {path[0]}" if path else "waiting for a benchmark to end"
    assert capsys.readouterr().err == f"{reason} (held by process {holder.pid})\n"


def test_the_output_of_a_killed_or_failed_writer_is_free(hold, tmp_path, capsys):
    kill(hold("output_lock", 60, tmp_path / "checkpoint.pt"))
    with pytest.raises(ZeroDivisionError), output_lock(tmp_path / "checkpoint.pt"):
        raise ZeroDivisionError
    with output_lock(tmp_path / "checkpoint.pt"):
        pass
    assert capsys.readouterr().err == ""


def test_what_killed_writers_left_of_every_output_goes(tmp_path):
    """Regression: after a killed adapt, only its first output's incomplete file was removed; another table stayed."""
    outputs = [tmp_path / name for name in ("errors.parquet", "trace.parquet", "other.parquet", "f[1]*")]
    for path in outputs:
        os.close(tempfile.mkstemp(prefix=f".{path.name}.writing-", suffix=path.suffix, dir=tmp_path)[0])
    tempfile.mkdtemp(prefix=".trace.parquet.writing-", dir=tmp_path)
    errors, trace, other, odd = outputs
    with output_lock(errors, trace, None), output_lock(odd):
        pass
    (left,) = tmp_path.glob(".other.parquet.writing-*")
    assert {path.name for path in tmp_path.iterdir()} == {".errors.parquet.lock", ".f[1]*.lock", left.name}


def test_two_names_of_one_output_are_one(hold, tmp_path, capsys):
    """A folder's lock is in its parent folder. Fails if the lock is created beside a link to the folder."""
    (tmp_path / "there" / "page").mkdir(parents=True)
    (tmp_path / "here").symlink_to("there/page")
    tempfile.mkdtemp(prefix=".page.writing-", dir=tmp_path / "there")
    holder = hold("output_lock", 1, tmp_path / "here")
    assert {path.name for path in (tmp_path / "there").iterdir()} == {"page", ".page.lock"}
    with output_lock(tmp_path / "there" / "page"):
        assert str(holder.pid) in capsys.readouterr().err


def test_hidden_files_of_others_stay(tmp_path):
    """Regression: writing a page called env removed .env.local, and one called page removed the unfinished page.v2."""
    (tmp_path / ".env.local").touch()
    (tmp_path / ".env.d").mkdir()
    with output_lock(tmp_path / "env.v2"), whole_folder(tmp_path / "env.v2") as longer:
        with output_lock(tmp_path / "env"), whole_folder(tmp_path / "env"):
            pass
        assert longer.is_dir()
    left = {path.name for path in tmp_path.iterdir() if path.suffix != ".lock"}
    assert left == {".env.local", ".env.d", "env", "env.v2"}


def test_a_second_benchmark_is_refused_at_once_until_the_first_is_gone(hold, machine):
    holder = hold("machine_exclusive")
    began = time.monotonic()
    sentence = refusal()
    assert time.monotonic() - began < 1
    assert f"process {holder.pid}, {sys.executable} -c" in sentence and str(machine) in sentence
    assert sentence.isprintable()  # of a command line, nothing reaches the terminal but print
    kill(holder)
    with machine_exclusive():
        assert int(machine.read_text()) == os.getpid()


def test_trainings_share_the_machine_and_each_refuses_a_benchmark(hold, tmp_path):
    holders = [hold("machine_shared"), hold("machine_shared")]
    for holder in holders:
        assert any(f"process {living.pid}," in refusal() for living in holders if living.poll() is None)
        kill(holder)
    with machine_exclusive():
        assert not list(tmp_path.glob("*.shared-*"))


def test_every_user_can_lock_whatever_the_umask_of_the_first(machine):
    before = os.umask(0o077)
    try:
        with machine_shared():
            files = [machine, *machine.parent.glob("*.shared-*")]
            assert [path.stat().st_mode & 0o777 for path in files] == [0o666, 0o666]
    finally:
        os.umask(before)


def test_a_file_behind_a_link_is_left_alone(machine, tmp_path):
    (tmp_path / "precious").write_text("words")
    machine.symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match=r"machine.lock .*remove it"), machine_exclusive():
        pass
    machine.unlink()
    machine.hardlink_to(tmp_path / "precious")
    with machine_exclusive():
        pass
    assert (tmp_path / "precious").read_text() == "words"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_in_one_sentence(make, machine):
    make(machine)
    with pytest.raises(UserError, match=r"machine.lock .*remove it"), machine_exclusive():
        pass


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        *(("", "another process"), ("not a number\n", "another process"), ("\x1b[2J", "another process")),
        ("9" * 5000, f"process {'9' * 20}"),
    ],
)
def test_what_others_wrote_into_it_breaks_nothing(text, holder, hold, machine):
    hold("machine_exclusive")
    machine.write_text(text)
    assert f"{machine} is held by {holder}): wait" in refusal() and "\x1b" not in refusal()


@pytest.mark.parametrize("lock", ["machine_exclusive", "machine_shared", None])
def test_the_benchmark_refuses_and_writes_nothing(lock, hold, run_stage, tmp_path, monkeypatch, capfd):
    """A benchmark is refused while another job runs, or if a debugging mode would slow it down."""
    if lock:
        named = f"process {hold(lock).pid}"
    else:
        monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
        named = "CUDA_LAUNCH_BLOCKING"
    out = tmp_path / "new" / "benchmark.json"
    assert run_stage("benchmark", data=tmp_path / "none.h5", threads=1, out=out) == 1
    (sentence,) = capfd.readouterr().err.splitlines()
    assert named in sentence and not out.parent.exists()


def test_a_benchmark_is_refused_beside_a_training_stage(tmp_path):
    with train.writing(tmp_path / "checkpoint.pt", tmp_path / "run.jsonl"):
        assert f"process {os.getpid()}" in refusal()
    with machine_exclusive():
        pass


@pytest.mark.parametrize(("rank", "local_rank", "holds"), [(1, 1, False), (2, 0, True)])
def test_on_each_machine_the_first_process_of_a_training_holds_the_lock(
    rank, local_rank, holds, tmp_path, machine, monkeypatch
):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    with train.writing(tmp_path / "checkpoint.pt", tmp_path / "run.jsonl"):
        assert machine.exists() == holds


@pytest.fixture
def job(start) -> Callable[[int], Process]:
    """Return job(gpus), which starts a job that requests GPUs, prints those that it gets, and ends with its input."""
    return lambda wanted: start(*TAKE, wanted, sys.executable, "-c", JOB)


def gpus_of(job: Process) -> set[str]:
    return set(job.stdout.readline().strip().split(","))


def line_of(job: Process, beginning: str) -> str:
    """Wait for a line with this beginning; a job may first report that it is waiting for others."""
    return next(line for line in job.stderr if line.startswith(beginning))


def end(job: Process) -> None:
    job.stdin.close()
    assert job.wait(timeout=60) == 0


def test_jobs_have_gpus_of_their_own_and_one_more_waits(job):
    jobs = [job(1) for _ in range(3)]
    taken = [gpus_of(job) for job in jobs]
    assert sorted(name for names in taken for name in names) == ["0", "1", "2"]
    late = job(1)
    message = line_of(late, "waiting for a free GPU (held by process ")
    assert all(f"process {job.pid}" in message for job in jobs)
    assert [{line_of(job, "on GPU ").split()[-1]} for job in jobs] == taken
    end(jobs[1])
    assert gpus_of(late) == taken[1]


def test_the_gpus_of_a_killed_job_are_free_at_once(job):
    whole = job(3)
    assert gpus_of(whole) == {"0", "1", "2"}
    members = family(whole.pid)
    kill(whole)
    assert not living(members)  # nothing of it still uses them
    after = job(3)
    assert gpus_of(after) == {"0", "1", "2"}
    assert after.stderr.readline() == "on GPU 0, 1, 2\n"  # without waiting


def test_a_gpu_is_taken_as_long_as_anything_of_the_job_lives(job):
    """The workers of a killed run continue for a moment, and their memory stays on the GPU."""
    holder = [*TAKE, "3", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]
    started = subprocess.run(holder, cwd=ROOT, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, check=True)
    late = job(1)
    assert line_of(late, "waiting for a free GPU")
    os.kill(int(started.stdout), signal.SIGKILL)
    assert len(gpus_of(late)) == 1


def test_two_that_want_more_than_half_do_not_wait_for_each_other(job):
    first = job(1)
    gpus_of(first)
    pair = [job(2), job(2)]  # two are free: one of them has both
    time.sleep(0.5)
    small = job(1)
    end(first)
    waiting, deadline = {*pair, small}, time.monotonic() + 60
    while waiting:
        assert time.monotonic() < deadline
        for one in list(waiting):
            if select.select([one.stdout], [], [], 0.1)[0]:
                assert len(gpus_of(one)) == (1 if one is small else 2)
                end(one)
                waiting.remove(one)


def test_only_one_job_collects_gpus(job):
    """The first to wait has one GPU of two. Fails if the next one takes the GPU that is freed: both would wait."""
    holders = [job(1), job(1)]
    assert all(map(gpus_of, holders))
    first = job(2)
    line_of(first, "waiting for a free GPU")
    others = [job(2), job(2)]
    assert all(line_of(other, "waiting for a free GPU") for other in others)
    first.send_signal(signal.SIGSTOP)
    end(holders[0])
    time.sleep(3 * POLL_S)
    first.send_signal(signal.SIGCONT)
    assert select.select([first.stdout], [], [], 30)[0], "a GPU was taken from under the first job"
    assert len(gpus_of(first)) == 2


def test_a_waiting_job_is_ended_by_sigterm_even_if_its_shell_ignores_it(job, start):
    gpus_of(job(3))
    waiting = start("sh", "-c", f"trap '' TERM; exec {' '.join(TAKE)} 1 true")
    assert line_of(waiting, "waiting for a free GPU")
    waiting.terminate()
    assert waiting.wait(timeout=60) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        *(("", []), ("-1", []), ("0,-1,1", ["0"]), ("3, 1", ["3", "1"])),
        ("GPU-8a,MIG-7/1/0,GPU-8a", ["GPU-8a", "MIG-7/1/0"]),
    ],
)
def test_gpus_are_those_that_cuda_would_see(visible, names, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == names


def test_more_gpus_than_there_are_is_one_sentence():
    check_gpus(3)
    with pytest.raises(UserError, match=r"4 .* 3 .*CUDA_VISIBLE_DEVICES=0,1,2"):
        check_gpus(4)
    done = subprocess.run([*TAKE, "4", "true"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "request fewer" in done.stderr


def test_names_of_gpus_cannot_lead_elsewhere(machine, job, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "../../x")
    assert gpus_of(job(1)) == {"../../x"}
    names = ["machine.lock.gpu-______x", "machine.lock.gpus"]
    assert sorted(path.name for path in machine.parent.iterdir()) == names
