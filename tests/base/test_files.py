"""Outputs are whole or absent, and two writers of one output wait for each other."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faze.base.files import sole_writer, whole_file, whole_folder

HOLDER = """
import sys, time
from faze.base.files import sole_writer
with sole_writer(sys.argv[1]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold(path: Path, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, path, str(seconds)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_appears_at_the_end_with_its_suffix_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.csv"
    with whole_file(path) as temporary:
        assert temporary.suffix == ".csv"
        temporary.write_text("x")
        assert not path.exists()
    assert path.read_text() == "x"
    assert path.stat().st_mode & 0o777 == 0o644
    assert names(path.parent) == ["a.csv"]


def test_failed_writer_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"), whole_file(path) as temporary:
        temporary.write_text("half")
        raise OSError("disk full")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.csv"]


def test_folder_replaces_the_old_one_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "walks"
    path.mkdir()
    (path / "stale.mp4").touch()
    with whole_folder(path) as temporary:
        (temporary / "new.mp4").touch()
        assert names(path) == ["stale.mp4"]
    assert names(path) == ["new.mp4"]
    assert path.stat().st_mode & 0o777 == 0o755


def test_failed_folder_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "walks"
    path.mkdir()
    (path / "old.mp4").touch()
    with pytest.raises(ValueError, match="boom"), whole_folder(path) as temporary:
        (temporary / "new.mp4").touch()
        raise ValueError("boom")
    assert names(path) == ["old.mp4"]
    assert names(tmp_path) == ["walks"]


def test_second_writer_says_for_whom_it_waits_and_then_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "checkpoint.pt"
    holder = hold(path, seconds=0.7)
    began = time.monotonic()
    with sole_writer(path):
        assert time.monotonic() - began > 0.3
    assert holder.wait() == 0
    assert f"{path} is being written by process {holder.pid}: waiting" in capsys.readouterr().err


def test_lock_dies_with_a_killed_holder(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    holder = hold(path, seconds=60)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with sole_writer(path), (tmp_path / ".checkpoint.pt.lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_lock_is_free_again_after_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(ValueError, match="boom"), sole_writer(path):
        raise ValueError("boom")
    with sole_writer(path):
        pass
    assert capsys.readouterr().err == ""
