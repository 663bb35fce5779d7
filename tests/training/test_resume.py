"""A training run that is killed in any way at any time ends with the weights of an undisturbed one."""

import contextlib
import random
import signal
import time
from pathlib import Path

import pytest
from stage_training import Training, assert_same_end, kill_group, wait_for, write_store

from faze.base.run_log import read_events

pytestmark = pytest.mark.kills

# Kills itself in the middle of writing its second checkpoint.
TORN_WRITE = """
import os, pathlib, signal, sys
from faze.__main__ import main
count, whole = 0, pathlib.Path.write_bytes
def torn(path, content):
    global count
    count += "checkpoint.pt" in path.name
    whole(path, content if count < 2 else content[: len(content) // 2])
    if count == 2:
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.write_bytes = torn
sys.argv.insert(1, "train")
sys.exit(main())
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_store(tmp_path_factory.mktemp("data") / "gazecapture.h5")


@pytest.fixture(scope="module", params=["baseline", "ddp"])
def undisturbed(request, data, tmp_path_factory) -> tuple[str, Training]:
    training = Training(tmp_path_factory.mktemp(request.param), data, request.param)
    training.finish()
    return request.param, training


def test_killed_training_ends_as_the_undisturbed_one(undisturbed, data, tmp_path):
    tier, whole = undisturbed
    lines = random.Random(tier).randint(1, 5)  # of the log's ten
    for attempt in range(5):  # on a busy machine, a kill may come too late
        (tmp_path / str(attempt)).mkdir()
        training = Training(tmp_path / str(attempt), data, tier)
        process = training.start()
        wait_for(training.work, process)
        while logged(training) < lines and process.poll() is None:
            time.sleep(0.005)
        kill_group(process)
        if training.work.exists():
            break
    assert training.work.exists() and not training.out.exists(), "nothing is tested"
    assert "resumed after" in training.finish()
    resumed = [event["step"] for event in read_events(training.log) if event["event"] == "resume"]
    assert resumed and min(resumed) > 0
    assert_same_end(training, whole)


def logged(training: Training) -> int:
    """Return the number of log lines with metrics of a running training."""
    with contextlib.suppress(FileNotFoundError):
        return (training.work.parent / "run.jsonl").read_text().count('"event": "metrics"')
    return 0


def test_kill_while_writing_a_checkpoint_leaves_the_one_before(undisturbed, data, tmp_path):
    tier, whole = undisturbed
    if tier == "ddp":
        pytest.skip("the writer is the same first process; torchrun starts the module itself, not this program")
    training = Training(tmp_path, data, tier)
    process = training.start(("-c", TORN_WRITE))
    _, words = process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL, words
    assert not training.out.exists()
    assert "resumed after 32 pairs" in training.finish()
    assert_same_end(training, whole)


@pytest.mark.parametrize("changed", ["configuration", "strips"])
def test_another_training_does_not_resume(changed, tmp_path):
    """Regression: re-created strips with the same labels were accepted, since only labels were compared."""
    store = write_store(tmp_path / "gazecapture.h5")
    training = Training(tmp_path, store, "baseline")
    process = training.start()
    wait_for(training.work, process)
    kill_group(process)
    if changed == "configuration":
        training = Training(tmp_path, store, "baseline", head_lr=0.002)
    else:
        write_store(store, seed=1)
    words = training.finish()
    assert "from the beginning" in words and "resumed" not in words


def test_a_loss_that_diverges_is_one_sentence(data, tmp_path):
    process = Training(tmp_path, data, "baseline", base_lr=1.0e18).start()
    _, words = process.communicate(timeout=120)
    assert process.returncode == 1 and "the loss is not finite after" in words and "Traceback" not in words
    assert not (tmp_path / "checkpoint.pt").exists()
