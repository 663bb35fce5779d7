"""Two writers of one output wait for each other."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from faze.base.files import whole_folder
from faze.base.output_lock import output_lock

HOLDER = """
import sys, time
from faze.base.output_lock import output_lock
with output_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold(path: Path, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, path, str(seconds)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_writer_says_for_whom_it_waits_and_then_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "checkpoint.pt"
    holder = hold(path, seconds=0.7)
    began = time.monotonic()
    with output_lock(path):
        assert time.monotonic() - began > 0.3
    assert holder.wait() == 0
    assert f"{path} is being written by process {holder.pid}: waiting" in capsys.readouterr().err


def test_lock_dies_with_a_killed_holder(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    holder = hold(path, seconds=60)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with output_lock(path), (tmp_path / ".checkpoint.pt.lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_killed_writers_left_of_every_output_goes(tmp_path: Path) -> None:
    """Seen red: the torn table of a killed adapt stayed beside its errors for ever, as only the first output's went."""
    outputs = [tmp_path / name for name in ("errors.parquet", "trace.parquet", "other.parquet", "f[1]*")]
    for path in outputs:
        os.close(tempfile.mkstemp(prefix=f".{path.name}.writing-", suffix=path.suffix, dir=tmp_path)[0])
    tempfile.mkdtemp(prefix=".trace.parquet.writing-", dir=tmp_path)
    errors, trace, other, odd = outputs
    with output_lock(errors, trace, None), output_lock(odd):
        pass
    (left,) = tmp_path.glob(".other.parquet.writing-*")
    assert {path.name for path in tmp_path.iterdir()} == {".errors.parquet.lock", ".f[1]*.lock", left.name}


def test_two_names_of_one_output_are_one(tmp_path: Path) -> None:
    """Where a folder is written, its lock is; seen red with the lock beside the link."""
    (tmp_path / "there" / "page").mkdir(parents=True)
    (tmp_path / "here").symlink_to("there/page")
    tempfile.mkdtemp(prefix=".page.writing-", dir=tmp_path / "there")
    with output_lock(tmp_path / "here"), (tmp_path / "there" / ".page.lock").open() as lock:
        assert {path.name for path in (tmp_path / "there").iterdir()} == {"page", ".page.lock"}
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_hidden_files_of_others_stay(tmp_path: Path) -> None:
    """Seen red: a page called env took .env.local with it, and a page the one called page.v2 that was being written."""
    (tmp_path / ".env.local").touch()
    (tmp_path / ".env.d").mkdir()
    with output_lock(tmp_path / "env.v2"), whole_folder(tmp_path / "env.v2") as longer:
        with output_lock(tmp_path / "env"), whole_folder(tmp_path / "env"):
            pass
        assert longer.is_dir()
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".lock"} == {
        *(".env.local", ".env.d", "env", "env.v2")
    }


def test_lock_is_free_again_after_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(ValueError, match="boom"), output_lock(path):
        raise ValueError("boom")
    with output_lock(path):
        pass
    assert capsys.readouterr().err == ""
