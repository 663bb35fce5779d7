"""Outputs are complete or absent, whatever ends their writer; files of strangers are refused in one sentence."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faze.base.errors import UserError
from faze.base.files import reading, whole_file, whole_folder

WRITE = """
import sys, time
from faze.base.files import {kind}

with {kind}("{path}") as temporary:
    {write}
    print("written", flush=True)
    time.sleep(600)
"""


def write_file(path: Path, text: str = "new") -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text)


def write_folder(path: Path, text: str = "new") -> None:
    with whole_folder(path) as temporary:
        (temporary / text).write_text(text)


def test_outputs_replace_former_ones_when_they_are_complete(tmp_path: Path) -> None:
    write_file(tmp_path / "deep/er/file.txt", "old")
    write_file(tmp_path / "deep/er/file.txt")
    assert (tmp_path / "deep/er/file.txt").read_text() == "new"
    write_folder(tmp_path / "folder", "old")
    write_folder(tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "folder"]


@pytest.mark.parametrize(("context", "write"), [(whole_file, write_file), (whole_folder, write_folder)])
def test_a_failing_writer_leaves_the_former_output(context, write, tmp_path: Path) -> None:
    write(tmp_path / "output")
    with pytest.raises(KeyError), context(tmp_path / "output"):
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["output"]
    output = tmp_path / "output"
    assert output.read_text() == "new" if output.is_file() else (output / "new").exists()


@pytest.mark.parametrize(("kind", "write", "again"), [
    ("whole_file", "temporary.write_text('half')", write_file),
    ("whole_folder", "(temporary / 'half').write_text('half')", write_folder),
])  # fmt: skip
def test_what_a_killed_writer_left_goes_with_the_next_one(kind: str, write: str, again, tmp_path: Path) -> None:
    output = tmp_path / "output.h5"
    command = [sys.executable, "-c", WRITE.format(kind=kind, write=write, path=output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    assert not output.exists() and len(list(tmp_path.iterdir())) == 1
    again(output)
    assert [path.name for path in tmp_path.iterdir()] == ["output.h5"]


def test_a_full_disk_names_the_output(tmp_path: Path) -> None:
    path = tmp_path / "output.h5"
    with pytest.raises(OSError) as failed, whole_file(path) as temporary:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert (failed.value.filename, failed.value.strerror) == (str(path), "No space left on device")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("content", "words"), [
    (b"\xff\xfe\x00", "utf-8"),
    (None, "No such file"),
])  # fmt: skip
def test_a_file_of_a_stranger_is_refused_in_one_sentence(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.csv"
    if content is not None:
        path.write_bytes(content)
    sentence = rf"manifest.csv: cannot be read \(.*{words}.*\): save it as UTF-8"
    with pytest.raises(UserError, match=sentence), reading(path, "save it as UTF-8"):
        path.read_text(encoding="utf-8")
