"""A full disk is reported in one sentence, before the work starts if possible."""

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import raw_data
from test_preprocess import ROOT, write_config

from faze.__main__ import main
from faze.data.store.strips import StripStore


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 8 MiB, which has room for 160 strips."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if not mount or subprocess.run([mount, "-t", "tmpfs", "-o", "size=8m", "faze", folder], check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def run(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, frames: int) -> int:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=2, frames=1)
    for person in sorted((tmp_path / "raw").iterdir()):
        names = [f"day01/{i:04d}.jpg" for i in range(frames)]
        for name in names[1:]:
            os.link(person / names[0], person / name)
        (person / f"{person.name}.txt").write_text("\n".join(map(raw_data.mpiifacegaze_line, names)) + "\n")
    return again(tmp_path, out, monkeypatch)


def again(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    arguments = ["--config", write_config(tmp_path, "preprocess", "mpiigaze"), "--raw", tmp_path / "raw"]
    arguments += ["--threads", 1, "--out", out / "strips.h5", "--rejects", out / "rejects.csv"]
    monkeypatch.setattr(sys, "argv", ["faze", "preprocess", *map(str, arguments)])
    return main()


@pytest.mark.parametrize("frames", [100, 50])
def test_a_disk_that_fills_is_one_sentence_and_leaves_no_file(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, frames: int
) -> None:
    """The disk fills up at the second shard (100 frames per person) or when the store is joined (50 frames)."""
    assert run(tmp_path, small_disk, monkeypatch, frames) == 1
    *before, sentence = capsys.readouterr().err.splitlines()
    assert not any(line.startswith(("Traceback", "Exception ignored")) for line in before)
    assert sentence.startswith(f"faze preprocess: {small_disk}: no space left on the disk")
    left = [path.name for path in small_disk.iterdir() if not path.name.endswith(".lock")]
    assert left == [".work.strips.h5"]
    finished = {shard.name.partition(".")[0] for shard in small_disk.glob(".work.strips.h5/*/*.npz")}
    assert len(finished) == (1 if frames == 100 else 2)
    subprocess.run(["mount", "-o", "remount,size=32m", small_disk], check=True)
    assert again(tmp_path, small_disk, monkeypatch) == 0  # finished work is not repeated
    assert f"{frames * len(finished)} of {2 * frames} frames were processed" in capsys.readouterr().err
    with StripStore(small_disk / "strips.h5") as strips:
        assert [strips.count(person) for person in strips.persons()] == [frames, frames]
    with (small_disk / "rejects.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["person", "file_name", "reason"]]


@pytest.mark.parametrize("kind", ["codes", "supplementary"])
@pytest.mark.parametrize("rows", [2000, 3], ids=["large", "small"])
def test_other_files_on_a_disk_that_fills(small_disk: Path, kind: str, rows: int) -> None:
    """This runs in a separate process, which HDF5 may crash. Regression: no space was reserved before writing."""
    code = f"""
import itertools, sys, numpy as np
from pathlib import Path
from faze.data.codes import write_codes
from faze.data.store.supplementary import Supplementary, write_supplementary
rows = {rows}
codes = {{"z_app": np.zeros((rows, 400)), "z_gaze": np.zeros((rows, 2, 3))}}
annotation = Supplementary(["00001.jpg"] * rows, *(np.zeros((rows, width)) for width in (4, 5, 6, 3)))
try:
    if {kind!r} == "codes":
        write_codes(Path(sys.argv[1]), "mpiigaze", ((f"{{i:05d}}", "test", codes) for i in range(6000 // rows)))
    else:
        write_supplementary(sys.argv[1], ((f"{{i:05d}}", annotation) for i in itertools.count()))
except OSError as error:
    print(error.filename, error.strerror)
"""
    arguments = [sys.executable, "-c", code, small_disk / "file.h5"]
    found = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout == f"{small_disk}/file.h5 No space left on device\n"
    assert found.stderr == ""
    assert list(small_disk.iterdir()) == []
