"""A training that is killed at any write and repeated ends with the same weights and a complete log.

The kill ends the process at once, before each write in turn: log line, checkpoint, rename, copy, removal of the work
folder. As in the workflow, the second run finds no outputs.
"""

import itertools
import os
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from stage_runs import call_stage
from stores import PersonStrips, write_strips

from faze.base.run_log import RunLog, read_events

pytestmark = [pytest.mark.kills, pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")]

PATIENCE = 200  # more writes than a training has
KILLED = 137  # exit status


class Kills:
    """A patch that ends the process at one of its writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = PATIENCE
        writes = [(RunLog, "event"), (torch, "save"), (os, "replace"), (os, "unlink")]
        for where, name in [*writes, (shutil, "copyfile"), (shutil, "rmtree")]:
            monkeypatch.setattr(where, name, self._around(getattr(where, name)))
        monkeypatch.setattr(Path, "replace", lambda path, target: os.replace(path, target))

    def _around(self, write: Callable) -> Callable:
        def written(*args, **kwargs):
            self.left -= 1
            if not self.left:
                os._exit(KILLED)
            return write(*args, **kwargs)

        return written


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], tuple[Path, Path]]:
    """Return a function that trains in a folder of this name."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (6, 32, 128, 3), dtype=np.uint8)
    labels = random.normal(0, 0.2, (6, 4)).astype(np.float32)
    people = [PersonStrips(split, split, pixels, labels) for split in ("train", "val")]
    write_strips(tmp_path / "strips.h5", "made-up", people)
    small = {"growth": 2, "decoder_channels": 2, "z_app": 2, "z_head": 2}
    plan = {"pairs": 16, "global_batch": 8, "log_every_pairs": 8, "checkpoint_every_pairs": 8}
    changes = {"model": small, "train": plan, "tiers": {"baseline": {"device": "cpu"}}}

    def once(name: str) -> tuple[Path, Path]:
        out, log = tmp_path / name / "checkpoint.pt", tmp_path / name / "run.jsonl"
        assert call_stage("train", tmp_path, changes, data=tmp_path / "strips.h5", out=out, run_log=log) == 0
        return out, log

    return once


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["model"]


def told(log: Path) -> list[tuple]:
    """Return the log's events about the run and its progress, without times."""
    events = [event for event in read_events(log) if event["event"] in ("start", "switch", "metrics")]
    return [(e["event"], e.get("step"), e.get("switch"), e.get("values", {}).get("train/loss")) for e in events]


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


def test_a_kill_at_any_write_costs_neither_weights_nor_log(run, tmp_path, monkeypatch):
    out, log = run("undisturbed")
    wanted, lines = weights(out), told(log)
    kills = Kills(monkeypatch)
    for number in itertools.chain(range(1, 10), range(10, PATIENCE, 4)):  # the first writes differ most
        kills.left, folder = number, tmp_path / str(number)
        status = exit_status(lambda: run(str(number)))  # noqa: B023
        kills.left = PATIENCE
        if status != KILLED:
            break
        assert (folder / "run.jsonl").exists() or not (folder / "checkpoint.pt").exists(), number
        for name in ("checkpoint.pt", "run.jsonl"):
            (folder / name).unlink(missing_ok=True)
        out, log = run(str(number))
        assert all(torch.equal(value, wanted[name]) for name, value in weights(out).items()), number
        assert told(log) == lines, number
        assert {path.name for path in folder.iterdir() if path.suffix != ".lock"} == {"checkpoint.pt", "run.jsonl"}
    assert status == 0 and number > 20
