"""A measured run has the machine to itself, or does not start and says who has it.

Seen red by breaking the code: a lock that shares where it should exclude; a file made without fchmod; an open that
follows links; plates of the dead that count; a stage that does not ask; a release that does not clear.
"""

import getpass
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faze.base import machine_lock
from faze.base.machine_lock import machine_alone, machine_shared
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import read_yaml
from faze.stages import benchmark, train

ROOT = Path(__file__).resolve().parents[2]
HOLDER = """
import sys, time
from faze.base import machine_lock
with getattr(machine_lock, sys.argv[1])(sys.argv[2]):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of the test's own."""
    path = tmp_path / "machine.lock"
    monkeypatch.setenv("FAZE_MACHINE_LOCK", str(path))
    return path


@pytest.fixture
def hold():
    """hold(kind, what) -> a process that has the machine, in the name of `what`."""
    started = []

    def start(kind: str, what: str, seconds: float = 60) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDER, kind, what, str(seconds)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def refusal() -> str:
    with pytest.raises(ValueError, match="not free") as refused, machine_alone("a second benchmark"):
        pass
    return str(refused.value)


def test_second_measured_run_is_refused_at_once_and_told_by_whom(hold) -> None:
    holder = hold("machine_alone", "the benchmark /a/b.json")
    began = time.monotonic()
    sentence = refusal()
    assert time.monotonic() - began < 1
    assert f"process {holder.pid} of user {getpass.getuser()} runs the benchmark /a/b.json since 2" in sentence
    assert "wait for its end, or stop it" in sentence and "\n" not in sentence


def test_free_after_a_killed_holder_whose_name_is_then_forgotten(hold, lock: Path) -> None:
    holder = hold("machine_alone", "the first")
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with machine_alone("the second"):
        (plate,) = map(json.loads, lock.read_text().splitlines())
        assert (plate["process"], plate["what"]) == (os.getpid(), "the second")
    assert lock.read_text() == ""


def test_trainings_share_the_machine_and_a_benchmark_names_those_that_live(hold) -> None:
    first, second = hold("machine_shared", "the first training"), hold("machine_shared", "the second training")
    sentence = refusal()
    assert f"process {first.pid} " in sentence and f"process {second.pid} " in sentence
    first.kill()
    first.wait()
    sentence = refusal()
    assert "the first training" not in sentence and "the second training" in sentence
    second.kill()
    second.wait()
    with machine_alone("a benchmark"):
        pass


def test_training_waits_for_a_benchmark_and_says_for_whom(hold, capsys: pytest.CaptureFixture[str]) -> None:
    holder = hold("machine_alone", "the benchmark /a/b.json", seconds=0.7)
    with machine_shared("a training"):
        assert holder.wait() == 0
    assert f"waiting for a measured run to end: process {holder.pid} of user" in capsys.readouterr().err


def test_every_user_can_lock_whatever_the_umask_of_the_first(lock: Path) -> None:
    before = os.umask(0o077)
    try:
        with machine_alone("a benchmark"):
            assert lock.stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)


def to_symlink(path: Path, other: Path) -> None:
    path.symlink_to(other)


def to_hard_link(path: Path, other: Path) -> None:
    path.hardlink_to(other)


@pytest.mark.parametrize("link", [to_symlink, to_hard_link])
def test_a_file_of_someone_behind_a_link_is_left_alone(link, lock: Path, tmp_path: Path) -> None:
    other = tmp_path / "precious"
    other.write_text("words")
    link(lock, other)
    with pytest.raises(ValueError, match=r"machine.lock, which faze locks .* remove it"), machine_alone("a benchmark"):
        pass
    assert other.read_text() == "words"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_in_one_sentence(make, lock: Path) -> None:
    make(lock)
    with pytest.raises(ValueError, match=r"machine.lock, which faze locks"), machine_alone("a benchmark"):
        pass


@pytest.mark.parametrize("words", ["", "not JSON\n", "[]\n", '{"process": 1}\n', '{"process": "x", "user": 1}\n'])
def test_what_others_wrote_into_it_breaks_nothing(words: str, hold, lock: Path) -> None:
    hold("machine_alone", "the benchmark")
    lock.write_text(words)
    assert "a process that has not written its name" in refusal()


def test_what_others_wrote_into_it_cannot_reach_the_terminal(hold) -> None:
    hold("machine_alone", "red \x1b[31m, a new\nline")
    assert "runs red ?[31m, a new?line since" in refusal()


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Of a benchmark without data: one that starts ends with other words."""
    values = read_yaml(ROOT / "config" / "config.yaml")
    path = tmp_path / "benchmark.yaml"
    path.write_text("\n".join(to_lines(resolve(values, "benchmark"))) + "\n")
    out = tmp_path / "new" / "benchmark.json"
    return ["--config", str(path), "--data", str(tmp_path / "none.h5"), "--threads", "1", "--out", str(out)]


@pytest.mark.parametrize("kind", ["machine_alone", "machine_shared"])
def test_the_benchmark_refuses_and_writes_nothing(
    kind: str, arguments, hold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    holder = hold(kind, "another run")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments])
    assert benchmark.main() == 1
    (sentence,) = capfd.readouterr().err.splitlines()
    assert f"process {holder.pid} of user" in sentence and "another run" in sentence
    assert sorted(tmp_path.rglob("*")) == before


def test_the_benchmark_refuses_debugging_before_it_starts_anything(
    arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments])
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert benchmark.main() == 1
    (sentence,) = capfd.readouterr().err.splitlines()
    assert "switch off CUDA_LAUNCH_BLOCKING=1" in sentence
    assert not (tmp_path / "new").exists()


def test_a_benchmark_is_refused_beside_a_training_stage(tmp_path: Path) -> None:
    with train.writing(tmp_path / "checkpoint.pt", tmp_path / "run.jsonl"):
        assert f"runs the training {tmp_path / 'checkpoint.pt'} since" in refusal()
    with machine_alone("a benchmark"):
        pass


@pytest.mark.parametrize(("rank", "local_rank", "holds"), [(1, 1, False), (2, 0, True)])
def test_on_each_machine_the_first_process_of_a_training_stands_for_all(
    rank: int, local_rank: int, holds: bool, tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    with train.writing(tmp_path / "checkpoint.pt", tmp_path / "run.jsonl"):
        assert lock.exists() == holds


def test_an_interrupt_as_the_lock_is_taken_is_no_traceback(lock: Path) -> None:
    """Between two lines of its holder, so that the file closes first. Seen red."""
    with machine_lock.opened(str(lock)) as file:
        clearing = machine_lock._cleared(file)
        clearing.__enter__()
    clearing.gen.close()
