"""A run that is asked to stop writes a checkpoint after its step, reports it, and resumes like an undisturbed one.

Regression: the checkpoint did not contain the sums for the next log line, which was therefore the mean of fewer steps;
if one of two processes was killed, both failed without a message.
"""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from ports import answers, free_port
from stage_training import ROOT, Training, assert_same_end, children, wait_for, write_store

from faze import __main__ as cli
from faze.base.preemption import PREEMPTED, Preempted
from faze.base.run_log import read_events
from faze.engine.parallel import LAUNCHER
from faze.stages import train as stage
from faze.training import loop

pytestmark = pytest.mark.kills

BATCH, PAIRS = 16, 320
FAR = {"log_every_pairs": 5 * BATCH, "validate_every_pairs": PAIRS, "checkpoint_every_pairs": PAIRS}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("data") / "gazecapture.h5")


@pytest.fixture(scope="module", params=["baseline", "ddp"])
def undisturbed(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    training = Training(tmp_path_factory.mktemp(request.param), data, request.param, **FAR)
    training.finish()
    return training


def logged(training: Training) -> int:
    log = training.work.parent / "run.jsonl"
    return sum(event["event"] == "metrics" for event in read_events(log)) if log.exists() else 0


def stop(training: Training, number: signal.Signals, whom: Callable[[subprocess.Popen], list[int]]) -> str:
    """Send a signal once something is logged; return the training's output."""
    process = training.start()
    while not logged(training):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    for target in whom(process):
        with contextlib.suppress(ProcessLookupError):  # those that were told before take it along
            os.kill(target, number)
    _, words = process.communicate(timeout=120)
    assert process.returncode == PREEMPTED, (process.returncode, words)
    assert "Traceback" not in words
    assert not training.out.exists()
    return words


@pytest.mark.parametrize(
    ("undisturbed", "number"),
    [("baseline", signal.SIGTERM), ("baseline", signal.SIGUSR2), ("ddp", signal.SIGTERM)],
    indirect=["undisturbed"],
)
def test_a_training_that_is_asked_to_go_resumes_without_a_difference(number, undisturbed, data, tmp_path):
    """The signal arrives between two checkpoints and two log lines; for ddp, torchrun passes it on."""
    tier = "ddp" if undisturbed.out.parent.name.startswith("ddp") else "baseline"
    training = Training(tmp_path, data, tier, **FAR)
    words = stop(training, number, lambda process: [process.pid])
    assert words.count(f"faze train: stopped by {number.name} after") == 1
    assert f"of {PAIRS} pairs" in words and "run the same command again" in words
    assert training.work.exists()
    assert "resumed after" in training.finish()
    assert_same_end(training, undisturbed)


@pytest.mark.parametrize("undisturbed", ["ddp"], indirect=True)
def test_one_of_several_processes_is_asked_and_all_stop_at_the_same_step(undisturbed, data, tmp_path):
    training = Training(tmp_path, data, "ddp", **FAR)
    words = stop(training, signal.SIGUSR1, lambda process: children(process.pid)[-1:])
    assert words.count("faze train: stopped by ") == 1
    training.finish()
    assert_same_end(training, undisturbed)


def test_a_signal_to_every_process_of_a_job_is_as_one(undisturbed, data, tmp_path):
    """SLURM sends the signal to torchrun, its processes, and the loader processes."""
    tier = "ddp" if undisturbed.out.parent.name.startswith("ddp") else "baseline"
    training = Training(tmp_path, data, tier, sections={"data": {"workers": 1, "memory_gib": 0.0}}, **FAR)

    def family(process: subprocess.Popen) -> list[int]:
        found = [process.pid]
        for member in found:
            found += children(member)
        return found

    stop(training, signal.SIGTERM, family)
    training.finish()
    assert_same_end(training, undisturbed)


def test_ctrl_c_is_no_traceback_and_the_same_command_goes_on(undisturbed, data, tmp_path):
    """The signal reaches every process, and those of ddp twice. Regression: each printed two tracebacks."""
    tier = "ddp" if undisturbed.out.parent.name.startswith("ddp") else "baseline"
    training = Training(tmp_path, data, tier, **FAR)
    process = training.start()
    wait_for(tmp_path / ".checkpoint.pt.lock", process)  # it comes up: what was red, and never too late
    for each in [process.pid, *children(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGINT)
    _, words = process.communicate(timeout=120)
    # Python ends itself by the signal where that came amid a text that it executes; a shell says 130 of both.
    assert process.returncode in (128 + signal.SIGINT, -signal.SIGINT), words
    assert "Traceback" not in words and "faze train: interrupted" in words
    training.finish()
    assert_same_end(training, undisturbed)


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (Preempted("stopped by SIGTERM"), 75)])
def test_a_second_signal_while_a_lock_is_cleaned_up_is_no_traceback(stop, code, monkeypatch, capsys):
    """Regression: filelock then raises both errors as a group, which showed a traceback."""
    group = BaseExceptionGroup("lock", [OSError("closed"), BaseExceptionGroup("inner", [stop])])

    def interrupted() -> int:
        raise group

    monkeypatch.setattr("sys.argv", ["faze", "benchmark"])
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(main=interrupted))
    assert cli.main() == code
    assert capsys.readouterr().err.startswith("faze benchmark: " + (str(stop) or "interrupted"))


WAITING = """
import os, signal, sys, time
from faze.base import preemption
preemption.AGAIN_S, preemption.UNANSWERED_S = 0.5, {unanswered}
preemption.install_handlers()
preemption.defer()
try:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)  # a copy
    {then}
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)
except preemption.Preempted as stopped:
    print(stopped)
else:
    print("went on")
"""


@pytest.mark.parametrize(("unanswered", "then", "seconds"), [
    (30, "pass", (1.0, 15)),  # by the next signal
    (0.2, "time.sleep(30)", (0.2, 15)),  # by none
    (0.2, "preemption.received_signal(); time.sleep(0.5); sys.exit(print('went on'))", (0.5, 15)),
])  # fmt: skip
def test_a_wait_that_no_step_ends_heeds_a_second_signal_or_its_time(unanswered, then, seconds):
    """Regression: a training that waited for a loader process noted every SIGTERM and went on waiting."""
    program = WAITING.format(unanswered=unanswered, then=then)
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    least, most = seconds
    assert least <= time.monotonic() - began < most and ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == (
        "went on" if "sys.exit" in then else "stopped by SIGTERM while it was waiting; run the same command again"
    )


def test_ctrl_c_that_python_loses_is_heard_after_the_step():
    """Regression: one run in several hundred, interrupted in a finaliser, continued to its end with exit code 0."""
    lost = """
import os, signal
from faze.base.preemption import install_handlers, received_signal
class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
install_handlers()
Finalised()
print("lost")
received_signal()
"""
    ended = subprocess.run([sys.executable, "-c", lost], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "lost\n" and "Exception ignored in" in ended.stderr
    assert ended.returncode == -signal.SIGINT and "in received_signal" in ended.stderr


def test_who_comes_up_when_torchrun_was_killed_already_ends_at_once(data, tmp_path):
    """Regression: an orphaned process mistook its new parent for torchrun, and held all its locks for hours."""
    training = Training(tmp_path, data, "ddp")
    killed = subprocess.Popen(["true"])
    killed.wait()
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", LAUNCHER: str(killed.pid)}
    command = [sys.executable, "-m", "faze", "train", *training.arguments]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ | rank | meeting, timeout=120)
    assert ended.returncode == 1 and not training.out.exists()


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGINT, 128 + signal.SIGINT, "faze train: interrupted"),
        (signal.SIGTERM, PREEMPTED, "faze train: stopped by SIGTERM before its first step"),
    ],
    ids=["SIGINT", "SIGTERM"],
)
def test_who_waits_for_a_process_that_is_gone_still_heeds_signals(number, code, words, data, tmp_path):
    """Regression: after one of two starting processes had ended, the other waited for it and ignored all signals."""
    port = free_port()
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), LAUNCHER: str(os.getpid())}
    process = Training(tmp_path, data, "ddp").start(environment=rank | meeting)
    while not answers(port):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    os.kill(process.pid, number)
    try:
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code and words in said and "Traceback" not in said


def test_before_its_first_step_a_training_ends_at_once(data, tmp_path):
    training = Training(tmp_path, data, "baseline")
    process = training.start()
    wait_for(tmp_path / ".checkpoint.pt.lock", process)  # so that it heeds signals
    process.send_signal(signal.SIGTERM)
    _, words = process.communicate(timeout=60)
    assert process.returncode == PREEMPTED, words
    assert "faze train: stopped by SIGTERM before its first step" in words.splitlines()[-1]


def test_who_waits_for_another_writer_can_be_asked_to_go(data, tmp_path):
    """Regression: the signal was only recorded, so the process kept waiting for the other writer."""
    first, second = (Training(tmp_path, data, "baseline") for _ in range(2))
    holder = first.start()
    wait_for(first.work, holder)
    os.killpg(holder.pid, signal.SIGSTOP)
    waiting = second.start()
    assert "held by process" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(timeout=30) == PREEMPTED
    os.killpg(holder.pid, signal.SIGCONT)
    os.killpg(holder.pid, signal.SIGKILL)
    holder.communicate()


def test_a_signal_that_comes_when_all_is_written_ends_nothing(data, tmp_path):
    """Regression: a signal during Python's exit ended the process, and the workflow lost the written results."""
    training = Training(tmp_path, data, "baseline", pairs=BATCH)
    late = """
import os, signal, sys
import faze.__main__
class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        print("late")
late = Late()
sys.argv[1:1] = ["train"]
sys.exit(faze.__main__.main())
"""
    command = [sys.executable, "-c", late, *training.arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and ended.stdout.endswith("late\n") and training.out.exists(), ended.stderr


@pytest.mark.parametrize("undisturbed", ["ddp"], indirect=True)
@pytest.mark.parametrize("when", ["while it comes up", "after some steps"])
def test_a_process_that_is_killed_is_one_sentence(when, undisturbed, data, tmp_path):
    """Regression: if one process was killed at the start, torchrun stopped the others and returned their exit code."""
    training = Training(tmp_path, data, "ddp", **FAR)
    process = training.start()
    wait_for(tmp_path / ".checkpoint.pt.lock", process)
    while when == "after some steps" and not logged(training):
        time.sleep(0.02)
    os.kill(children(process.pid)[-1], signal.SIGKILL)
    _, words = process.communicate(timeout=120)
    assert process.returncode == 1, words
    assert re.search("process 1 .* killed by SIGKILL.* same command", words), words
    assert "Traceback" not in words
    training.finish()
    assert_same_end(training, undisturbed)


def test_stopped_at_any_step_it_ends_with_the_same_weights_and_log(data, tmp_path, monkeypatch):
    plan = {"pairs": 7 * BATCH, "log_every_pairs": 3 * BATCH, "validate_every_pairs": 2 * BATCH}

    def train(name: str) -> Training:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        training = Training(folder, data, "baseline", **plan, checkpoint_every_pairs=PAIRS)
        monkeypatch.setattr(sys, "argv", ["train", *training.arguments])
        assert stage.main() == 0
        return training

    undisturbed = train("undisturbed")
    for steps in range(1, 7):
        calls = itertools.count(1)
        with monkeypatch.context() as patch, pytest.raises(Preempted, match=f"after {BATCH * steps} of 112 pairs"):
            patch.setattr(loop, "received_signal", lambda: "SIGTERM" if next(calls) >= steps else None)  # noqa: B023
            train(str(steps))
        assert_same_end(train(str(steps)), undisturbed)
