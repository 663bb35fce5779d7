"""A training run that is killed at any write and repeated ends with the same weights and a complete log.

The kill ends the process immediately, without cleaning up, before each write in turn: log line, checkpoint, rename,
copy, removal of the work folder. As in the workflow, the second run finds no outputs.

Regression: after a kill between the renames of log and checkpoint, the second run's log lost its start; if the
checkpoint were renamed first, it would have no log.
"""

import itertools
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from faze.base.run_log import RunLog, read_events
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml
from faze.data.store.strips import PersonStrips, write_strips
from faze.engine import machine
from faze.stages import train
from faze.training.resume import WorkFolder

pytestmark = pytest.mark.kills

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 200  # more writes than a training has


KILLED = 137  # exit status


class Kills:
    """A patch that ends the process at one of its writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = PATIENCE
        for where, name in (
            (RunLog, "event"),
            (torch, "save"),
            (os, "replace"),
            (os, "unlink"),
            (shutil, "copyfile"),
            (shutil, "rmtree"),
        ):
            monkeypatch.setattr(where, name, self._around(getattr(where, name)))
        monkeypatch.setattr(Path, "replace", lambda path, target: os.replace(path, target))

    def _around(self, write: Callable) -> Callable:
        def written(*args, **kwargs):
            self.left -= 1
            if not self.left:
                os._exit(KILLED)
            return write(*args, **kwargs)

        return written


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("store") / "strips.h5"
    pixels = random.integers(0, 256, (6, 32, 128, 3), dtype=np.uint8)
    labels = random.normal(0, 0.2, (6, 4)).astype(np.float32)
    write_strips(path, "made-up", [PersonStrips(split, split, ["f"] * 6, pixels, labels) for split in ("train", "val")])
    return path


@pytest.fixture
def run(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Path, Path]]:
    """Return a function that trains in a folder of this name; with `share`, it reuses another tier's run."""
    small = {"growth": 2, "decoder_channels": 2, "z_app": 2, "z_head": 2}
    plan = {"pairs": 16, "global_batch": 8, "log_every_pairs": 8, "checkpoint_every_pairs": 8}
    values = merge(read_yaml(ROOT / "config" / "config.yaml"), {"model": small, "train": plan})
    values["tiers"] = {"baseline": values["tiers"]["baseline"] | {"device": "cpu"}, "idle": {"cudnn_benchmark": True}}
    config = tmp_path / "train.yaml"

    def once(name: str, tier: str = "baseline", share: bool = False) -> tuple[Path, Path]:
        config.write_text("\n".join(to_lines(resolve(values, "train", tier, 0))) + "\n")
        out, log = tmp_path / name / "checkpoint.pt", tmp_path / name / "run.jsonl"
        arguments = {"config": config, "data": store, "out": out, "run-log": log}
        arguments |= {"output-cache": tmp_path / "output_cache"} if share else {}
        monkeypatch.setattr(sys, "argv", ["train", *(f"--{key}={value}" for key, value in arguments.items())])
        assert train.main() == 0
        return out, log

    return once


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["model"]


def told(log: Path) -> list[tuple]:
    """Return the log's events about the run and its progress, without times."""
    kinds = ("start", "switch", "reused_from", "metrics")
    events = [event for event in read_events(log) if event["event"] in kinds]
    return [
        (event["event"], event.get("step"), event.get("switch"), event.get("values", {}).get("train/loss"))
        for event in events
    ]


def exit_status(work: Callable[[], object]) -> int:
    """Run `work` in a fork of this process, and return the fork's exit status."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # nothing of this may return to the tests
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("what", [("baseline", False), ("idle", True)], ids=["trained", "reused"])
def test_a_kill_at_any_write_costs_neither_weights_nor_log(what, run, tmp_path, monkeypatch):
    """This includes a reused run, starting with the first write of the lock and of the copies."""
    if what == ("idle", True):
        run("donor", "baseline", True)
    out, log = run("undisturbed", *what)
    wanted, lines = weights(out), told(log)
    assert [line[0] for line in lines].count("start") == 1
    assert [line[0] for line in lines].count("reused_from") == (what == ("idle", True))
    kills = Kills(monkeypatch)
    for number in itertools.chain(range(1, 10), range(10, PATIENCE, 3)):  # the first writes differ most
        kills.left, folder = number, tmp_path / str(number)
        status = exit_status(lambda: run(str(number), *what))  # noqa: B023
        kills.left = PATIENCE
        if status != KILLED:
            break
        assert (folder / "run.jsonl").exists() or not (folder / "checkpoint.pt").exists(), number
        for name in ("checkpoint.pt", "run.jsonl"):
            (folder / name).unlink(missing_ok=True)
        out, log = run(str(number), *what)
        assert all(torch.equal(value, wanted[name]) for name, value in weights(out).items()), number
        assert told(log) == lines, number
        assert {path.name for path in folder.iterdir() if path.suffix != ".lock"} == {"checkpoint.pt", "run.jsonl"}
    assert status == 0 and number > 20


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_checkpoint_whose_log_lost_its_end_is_not_resumed_from(run, tmp_path, monkeypatch, capfd):
    """The files are as after a machine crash. Regression: training resumed, and its log lacked the lost events."""
    wanted = told(run("undisturbed")[1])
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", lambda *_: os._exit(KILLED))
        assert exit_status(lambda: run("cut")) == KILLED
    log = tmp_path / "cut" / "train.work" / "run.jsonl"
    assert (log.parent / "checkpoint.pt").exists()
    os.truncate(log, 10)
    assert told(run("cut")[1]) == wanted
    error = capfd.readouterr().err
    assert "run.jsonl: " in error and "checkpoint" in error


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_training_that_was_elsewhere_says_so_and_nobody_takes_it_over(run, tmp_path, monkeypatch, capfd):
    """The run moves to another machine and back. Regression: the other machine's work was recorded as this one's."""
    facts, save = machine.describe(), WorkFolder.save
    before = f"processor another one (before: {facts['processor']})"
    for processor, pairs in ((facts["processor"], 8), ("another one", 16)):

        def save_and_die(*given, last=pairs):
            save(*given)
            if given[-2].pairs == last:
                os._exit(KILLED)

        with monkeypatch.context() as patch:
            patch.setattr(machine, "describe", lambda processor=processor: facts | {"processor": processor})
            patch.setattr(WorkFolder, "save", save_and_die)
            assert exit_status(lambda: run("moved", share=True)) == KILLED
    _, log = run("moved", share=True)
    events = read_events(log)
    assert [event["moved"] for event in events if event["event"] == "resume"] == [before, ""]
    words = f"baseline, seed 0: changed after 8 pairs: {before}"
    assert [event["text"] for event in events if event["event"] == "note"] == [words]
    assert f"train: {words}" in capfd.readouterr().err
    assert not list((tmp_path / "output_cache").glob("*.json"))
    run("at once", share=True)
    assert list((tmp_path / "output_cache").glob("*.json"))
