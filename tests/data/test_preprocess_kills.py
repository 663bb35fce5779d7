"""Killed repeatedly at random moments, preprocessing ends with the same bytes as an undisturbed run."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import raw_data
from test_preprocess import ROOT, write_config

pytestmark = pytest.mark.kills

KILLS = int(os.environ.get("FAZE_KILLS", "3"))
FRAMES, SHARDS = 700, 6  # of each of two people, and of both


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create two people with a few bad frames. The frames are links to a few files, since only decoding matters."""
    raw = tmp_path_factory.mktemp("kills") / "raw"
    raw_data.write_mpiifacegaze(raw, people=2, frames=5)
    for person in sorted(raw.iterdir()):
        names = [f"day01/{i:04d}.jpg" for i in range(FRAMES)]
        for i, name in enumerate(names[5:], start=5):
            os.link(person / names[i % 5], person / name)
        (person / names[300]).unlink()
        (person / f"{person.name}.txt").write_text("\n".join(map(raw_data.mpiifacegaze_line, names)) + "\n")
    return raw


def command(raw: Path, out: Path) -> list[str]:
    config = write_config(out, "preprocess", "mpiigaze")
    arguments = ["--config", config, "--raw", raw, "--threads", 2]
    arguments += ["--out", out / "strips.h5", "--rejects", out / "rejects.csv"]
    return [sys.executable, "-m", "faze", "preprocess", *map(str, arguments)]


def run(raw: Path, out: Path) -> float:
    """Run to the end, and return the time in seconds."""
    began = time.monotonic()
    done = subprocess.run(command(raw, out), cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"{2 * FRAMES - 2} strips of 2 people; 2 rejects" in done.stdout
    return time.monotonic() - began


def finished_shards(out: Path) -> set[str]:
    return {path.name for path in (out / ".work.strips.h5").glob("*/*.npz")}


def members(group: int) -> list[int]:
    """List the living processes in a process group."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def killed(raw: Path, out: Path, *, more_shards: int, delay_s: float, whole_group: bool) -> bool:
    """Start a run, kill it after `more` further shards are finished, and return whether it was still alive.

    With 0, kill the run once the shards' folder exists.
    """
    wanted = len(finished_shards(out)) + more_shards
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command(raw, out), cwd=ROOT, start_new_session=True, **pipes)
    work = out / ".work.strips.h5"
    while process.poll() is None and not (work.exists() and len(finished_shards(out)) >= wanted):
        time.sleep(0.005)
    time.sleep(delay_s)
    alive = process.poll() is None
    if alive:
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)
    process.wait()
    ended = time.monotonic() + 30
    while members(process.pid):
        assert time.monotonic() < ended, "the pool's processes outlive the one that they work for"
        time.sleep(0.02)
    return alive


def test_any_kills_and_a_last_run_give_the_bytes_of_an_undisturbed_run(raw: Path, tmp_path: Path) -> None:
    """Every other kill spares the processes of the pool, which must exit on their own.

    Regression: a shard was marked as finished before its strips were written; processes of the pool did not exit.
    """
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    undisturbed.mkdir()
    disturbed.mkdir()
    seconds = run(raw, undisturbed)
    moments, seen = random.Random(5), []
    for attempt in range(5 * KILLS):
        left = SHARDS - len(finished_shards(disturbed))
        # By what is seen on the disk, not by the clock: on a busy machine, a time says nothing. Every fourth kill falls
        # anywhere, as into the putting together.
        anywhere = attempt % 4 == 3
        moment = {
            "more_shards": 0 if anywhere else moments.randint(0, left // 2),
            "delay_s": moments.uniform(0, seconds) if anywhere else 0.0,
        }
        if killed(raw, disturbed, **moment, whole_group=attempt % 2 == 0):
            seen.append(len(finished_shards(disturbed)))
        else:  # it ended before: from the start again
            assert (disturbed / "strips.h5").read_bytes() == (undisturbed / "strips.h5").read_bytes()
            (disturbed / "strips.h5").unlink()
        if len(seen) == KILLS:
            break
    assert len(seen) == KILLS
    assert sum(0 < shards < SHARDS for shards in seen) >= max(1, KILLS // 4), seen  # they fell into the work
    for npz in sorted((disturbed / ".work.strips.h5").glob("*/*.npz"))[:1]:
        npz.unlink()  # a kill between the two files of a shard leaves its strips alone
    run(raw, disturbed)
    for name in ("strips.h5", "rejects.csv"):
        assert (disturbed / name).read_bytes() == (undisturbed / name).read_bytes()
    assert {path.name for path in disturbed.iterdir()} == {path.name for path in undisturbed.iterdir()}
