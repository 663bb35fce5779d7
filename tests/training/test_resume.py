"""A training that is killed, however and whenever, ends with the weights of one that was not."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from faze.base.run_log import read_events
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import read_yaml
from faze.data.store.strips import PersonStrips, write_strips

ROOT = Path(__file__).resolve().parents[2]

# Kills itself in the middle of writing its second checkpoint.
TORN_WRITE = """
import os, signal, sys
import torch
from faze.stages import train
count, whole = 0, torch.save
def torn(state, path):
    global count
    count += 1
    whole(state, path)
    if count == 2:
        os.truncate(path, os.path.getsize(path) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
torch.save = torn
sys.exit(train.main())
"""


def write_store(path: Path, seed: int = 0) -> Path:
    """Strips of three people; the seed decides their pixels, not their labels."""
    pixels, labels = np.random.default_rng(seed), np.random.default_rng(0)

    def person(number: int, split: str) -> PersonStrips:
        strips = pixels.integers(0, 256, (12, 64, 256, 3), dtype=np.uint8)
        targets = labels.normal(0, 0.2, (12, 4)).astype(np.float32)
        return PersonStrips(f"{number:05d}", split, [f"{i}.jpg" for i in range(12)], strips, targets)

    write_strips(path, "gazecapture", [person(1, "train"), person(2, "train"), person(3, "val")])
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_store(tmp_path_factory.mktemp("data") / "gazecapture.h5")


class Training:
    """One training in a folder of its own."""

    def __init__(self, folder: Path, data: Path, tier: str, **train) -> None:
        self.out, self.log = folder / "checkpoint.pt", folder / "run.jsonl"
        self.work = folder / "train.work" / "checkpoint.pt"
        values = read_yaml(ROOT / "config" / "config.yaml")
        values["tiers"]["baseline"]["device"] = "cpu"
        values["model"]["growth"] = 2
        values["train"] |= {"pairs": 320, "log_every_pairs": 32, "validate_every_pairs": 160}
        values["train"] |= {"checkpoint_every_pairs": 32} | train
        path = folder / "train.config.yaml"
        path.write_text("\n".join(to_lines(resolve(values, "train", tier, 0))) + "\n")
        self._arguments = ["--config", path, "--data", data, "--threads", "2", "--out", self.out, "--run-log", self.log]

    def start(self, program: tuple[str, ...] = ("-m", "faze", "train")) -> subprocess.Popen:
        command = [sys.executable, *program, *map(str, self._arguments)]
        return subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )

    def finish(self) -> str:
        process = self.start()
        _, words = process.communicate(timeout=240)
        assert process.returncode == 0, words
        return words

    def weights(self) -> dict[str, torch.Tensor]:
        return torch.load(self.out, weights_only=True)["model"]


def kill_group(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for(path: Path, process: subprocess.Popen) -> None:
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)


@pytest.fixture(scope="module", params=["baseline", "ddp"])
def undisturbed(request, data, tmp_path_factory) -> tuple[str, Training]:
    training = Training(tmp_path_factory.mktemp(request.param), data, request.param)
    training.finish()
    return request.param, training


def assert_same_end(training: Training, undisturbed: Training) -> None:
    for name, value in undisturbed.weights().items():
        assert torch.equal(training.weights()[name], value), name

    def values(log: Path) -> list[tuple]:
        kept = [e for e in read_events(log) if e["event"] == "metrics"]
        return [(e["step"], {k: v for k, v in e["values"].items() if k != "train/images_per_s"}) for e in kept]

    assert values(training.log) == values(undisturbed.log)  # no gap, nothing twice
    assert not training.work.parent.exists()


def test_killed_training_ends_as_the_undisturbed_one(undisturbed, data, tmp_path):
    tier, whole = undisturbed
    training = Training(tmp_path, data, tier)
    process = training.start()
    wait_for(training.work, process)
    time.sleep(random.Random(tier).uniform(0, 1.0))
    kill_group(process)
    if not training.out.exists():
        assert "resumed after" in training.finish()
        resumed = [event["step"] for event in read_events(training.log) if event["event"] == "resume"]
        assert resumed and min(resumed) > 0
    assert_same_end(training, whole)


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


def test_rerun_waits_for_an_orphan_and_takes_what_it_wrote(undisturbed, data, tmp_path):
    """The orphan is held until the re-run has met it, which loads torch for longer than the training lasts.

    Not torchrun's, whose processes have groups of their own: it may have ended meanwhile.
    """
    tier, whole = undisturbed
    training = Training(tmp_path, data, tier)
    orphan = training.start()
    wait_for(training.work, orphan)
    if tier == "baseline":
        os.killpg(orphan.pid, signal.SIGSTOP)
    again, words = training.start(), ""
    try:
        while tier == "baseline" and "is being written" not in words and (line := again.stderr.readline()):
            words += line
    finally:
        os.killpg(orphan.pid, signal.SIGCONT)
    words += again.stderr.read()
    assert again.wait(240) == 0, words
    orphan.communicate(timeout=60)
    if tier == "baseline":
        assert f"{training.out} is being written by process" in words
    assert "pairs/s" not in words  # it did not train again
    assert_same_end(training, whole)


@pytest.mark.parametrize("changed", ["configuration", "strips"])
def test_another_training_does_not_resume(changed, tmp_path):
    """Seen red: strips made anew with the same labels, since these alone were compared."""
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
    assert "begins anew" in words and "resumed" not in words


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"global_batch": 12},
            "train.global_batch 12 is not a multiple of 1 processes, replicas or accumulated parts x loss.chunk_pairs",
        ),
        ({"base_lr": 1.0e18}, "the loss is not a number after"),
    ],
)
def test_what_cannot_train_is_one_sentence(change, sentence, data, tmp_path):
    process = Training(tmp_path, data, "baseline", **change).start()
    _, words = process.communicate(timeout=120)
    assert process.returncode == 1
    assert sentence in words
    assert "Traceback" not in words
    assert not (tmp_path / "checkpoint.pt").exists()
