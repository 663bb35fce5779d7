"""Killed repeatedly at random moments, preprocessing ends with the same bytes as an undisturbed run."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import raw_data
from processes import family, kill, living, until
from stage_runs import ROOT, write_config

pytestmark = pytest.mark.kills

KILLS = int(os.environ.get("FAZE_KILLS", "3"))
PEOPLE, FRAMES = 6, 250


def start(raw: Path, out: Path) -> subprocess.Popen:
    words = ["--config", write_config(out, "preprocess", dataset="laptop"), "--raw", raw, "--threads", 2]
    words += ["--out", out / "strips.h5", "--rejects", out / "rejects.csv"]
    command = [sys.executable, "-m", "faze", "preprocess", *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def finish(raw: Path, out: Path) -> None:
    printed, _ = start(raw, out).communicate(timeout=300)
    assert f"{PEOPLE * FRAMES - 1} strips of {PEOPLE} people; 1 rejects" in printed


def finished_parts(out: Path) -> int:
    return len([path for path in out.glob(".work.strips.h5/*/*.npz") if not path.name.startswith(".")])


def start_and_kill(raw: Path, out: Path, wanted: int, delay_s: float, is_alone: bool) -> int:
    """Kill a run once so many parts are finished, with its worker processes or without, and return their number."""
    process = start(raw, out)

    def works() -> bool:
        return finished_parts(out) >= wanted and len(family(process.pid)) > 3

    until(lambda: works() or process.poll() is not None, "work")
    time.sleep(delay_s)
    everybody, parts = family(process.pid), finished_parts(out)
    if is_alone:
        process.send_signal(signal.SIGKILL)
    else:
        kill(everybody)
    process.wait()
    until(lambda: not living(everybody), "the end of the worker processes", seconds=20)
    (out / "strips.h5").unlink(missing_ok=True)  # written before the kill
    return parts


def test_kills_and_a_last_run_give_the_bytes_of_an_undisturbed_run(tmp_path: Path) -> None:
    """Every other kill spares the worker processes, which must end on their own, although they have jobs.

    Regression: a part was marked as finished before its strips were written; idle workers waited forever.
    """
    raw, undisturbed, disturbed = tmp_path / "raw", tmp_path / "undisturbed", tmp_path / "disturbed"
    raw_data.write_mpiifacegaze(raw, PEOPLE, FRAMES)
    (raw / "p01/day01/0200.jpg").unlink()
    moments, seen = random.Random(5), []
    finish(raw, undisturbed)
    for attempt in range(KILLS):
        wanted = PEOPLE if attempt % 4 == 3 else moments.randint(0, PEOPLE - 2)  # PEOPLE: the store is being written
        seen.append(start_and_kill(raw, disturbed, wanted, moments.uniform(0, 0.2), attempt % 2 == 0))
    assert any(0 < parts < PEOPLE for parts in seen), seen  # they fell into the work
    finish(raw, disturbed)
    for name in ("strips.h5", "rejects.csv"):
        assert (disturbed / name).read_bytes() == (undisturbed / name).read_bytes()
    assert {path.name for path in disturbed.iterdir()} == {path.name for path in undisturbed.iterdir()}
