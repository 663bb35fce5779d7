"""A full disk is reported in one sentence, before the work starts if possible."""

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import raw_data
from test_preprocess import ROOT, write_config

from faze.data.preparation import shards
from faze.data.store.strips import StripStore
from faze.stages import preprocess

STRIP = 64 * 256 * 3


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
    monkeypatch.setattr(sys, "argv", ["preprocess", *map(str, arguments)])
    return preprocess.main()


def test_a_disk_that_is_too_small_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Shards and store need space for each strip twice, and for 1 % more; half of that is the least."""
    free = {"strips": 4.03}
    monkeypatch.setattr(shards.shutil, "disk_usage", lambda _: SimpleNamespace(free=free["strips"] * STRIP))
    monkeypatch.setattr(preprocess, "make_shards", None)
    assert run(tmp_path, tmp_path / "out", monkeypatch, frames=2) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith(f"preprocess: {tmp_path / 'out'}: 4 frames need 0.00 GiB here, but 0.00 GiB are free")
    for strips, warned in ((4.05, True), (8.07, True), (8.09, False)):
        free["strips"] = strips
        with pytest.raises(TypeError):  # the work starts
            again(tmp_path, tmp_path / "out", monkeypatch)
        assert ("this suffices only if many frames are rejected" in capsys.readouterr().err) == warned
    with pytest.raises(ValueError, match=r"ten need 10\.10 GiB here, but 5\.00 GiB are free: free some space"):
        monkeypatch.setattr(shards.shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 2**30))
        shards.check_disk_space(tmp_path, 10 * 2**30, "ten")


@pytest.mark.parametrize("frames", [100, 50])
def test_a_disk_that_fills_is_one_sentence_and_leaves_no_file(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, frames: int
) -> None:
    """The disk fills up at the second shard (100 frames per person) or when the store is joined (50 frames)."""
    monkeypatch.setattr(shards.shutil, "disk_usage", lambda _: SimpleNamespace(free=2**40))
    assert run(tmp_path, small_disk, monkeypatch, frames) == 1
    *before, sentence = capsys.readouterr().err.splitlines()
    assert not any(line.startswith(("Traceback", "Exception ignored")) for line in before)
    assert sentence.startswith(f"preprocess: {small_disk}: no space left on the disk")
    left = [path.name for path in small_disk.iterdir() if not path.name.endswith(".lock")]
    assert left == [".work.strips.h5"]
    finished = {shard.name.partition(".")[0] for shard in small_disk.glob(".work.strips.h5/*/*.npz")}
    assert len(finished) == (1 if frames == 100 else 2)
    subprocess.run(["mount", "-o", "remount,size=32m", small_disk], check=True)
    assert again(tmp_path, small_disk, monkeypatch) == 0  # finished work is not repeated
    assert f"{frames * len(finished)} of {2 * frames} frames were processed" in capsys.readouterr().err
    with StripStore(small_disk / "strips.h5") as strips:
        assert [strips.count(person) for person in strips.persons()] == [frames, frames]
        assert all(strips.verify(person) for person in strips.persons())
    with (small_disk / "rejects.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["person", "file_name", "reason"]]


def test_a_process_of_its_own_ends_with_the_sentence_too(small_disk: Path, tmp_path: Path) -> None:
    """When the interpreter exits, HDF5 tries again to close the files that it could not write."""
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=2, frames=50)
    (small_disk / "filler").write_bytes(b"\0" * 2**20)
    code = "import shutil, sys; from types import SimpleNamespace as S; shutil.disk_usage = lambda _: S(free=2**40)\n"
    code += "from faze.stages.preprocess import main; sys.exit(main())"
    arguments = ["--config", write_config(tmp_path, "preprocess", "mpiigaze"), "--raw", tmp_path / "raw"]
    arguments += ["--out", small_disk / "strips.h5", "--rejects", small_disk / "rejects.csv"]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stderr
    *before, sentence = done.stderr.splitlines()
    assert not any(line.startswith(("Traceback", "Exception ignored")) for line in before)
    assert "no space left on the disk" in sentence
    assert not (small_disk / "strips.h5").exists()


WRITE = """
import sys
import numpy as np
from faze.data.store.strips import PersonStrips, size_of, write_strips
strips, labels = np.zeros((1, 8, 32, 3), np.uint8), np.zeros((1, 4), np.float32)
people = [PersonStrips(f"p{i}", "test", ["x" * 100], strips, labels) for i in range(20)]
try:
    write_strips(sys.argv[1], "mpiigaze", people, size_of(20 * strips.size, 20, 20))
except OSError as error:
    sys.exit(f"errno {error.errno}")
"""


@pytest.mark.parametrize("free_pages", [0, 2, 4, 20, 400])
def test_a_store_that_has_no_room_ends_before_hdf5_has_a_part_in_it(small_disk: Path, free_pages: int) -> None:
    """HDF5 2.0 crashes (signal 11) when it closes a file whose small arrays it cannot write.

    Fails if the space is not reserved (signal 11), or if the surplus is not released.
    """
    (small_disk / "filler").write_bytes(b"\0" * (8 * 2**20 - 4096 * free_pages))
    done = subprocess.run(
        [sys.executable, "-c", WRITE, small_disk / "strips.h5"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if free_pages == 400:
        assert done.returncode == 0, done.stderr
        assert (small_disk / "strips.h5").stat().st_size < 100_000
    else:
        assert (done.returncode, done.stderr) == (1, "errno 28\n")
        assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_only_a_full_disk_is_called_one(tmp_path: Path) -> None:
    within_hdf5 = RuntimeError("Can't decrement id ref count (file write failed: errno = 28, error message = '...')")
    for full in (within_hdf5, OSError(28, "No space left on device"), OSError(122, "Disk quota exceeded")):
        with pytest.raises(ValueError, match="no space left on the disk"), shards.disk_may_fill(tmp_path):
            raise full
    for other in (RuntimeError("errno = 280, of another kind"), OSError(5, "Input/output error")):
        with pytest.raises(type(other)), shards.disk_may_fill(tmp_path):
            raise other


@pytest.mark.parametrize("kind", ["codes", "supplementary"])
@pytest.mark.parametrize("rows", [2000, 3], ids=["large", "small"])
def test_other_files_on_a_disk_that_fills(small_disk: Path, kind: str, rows: int) -> None:
    """This runs in a separate process, which HDF5 may crash. Regression: no space was reserved before writing."""
    code = f"""
import itertools, sys, numpy as np
from faze.data.store.codes import write_codes
from faze.data.store.supplementary import Supplementary, write_supplementary
rows = {rows}
codes = {{name: np.zeros((rows, *shape)) for name, shape in [("z_gaze", (2, 3)), ("gaze", (2,)), ("gaze_hat", (3,))]}}
annotation = Supplementary(["00001.jpg"] * rows, *(np.zeros((rows, width)) for width in (4, 5, 6, 3)))
try:
    if {kind!r} == "codes":
        write_codes(sys.argv[1], "mpiigaze", ((f"{{i:05d}}", "test", codes) for i in itertools.count()))
    else:
        write_supplementary(sys.argv[1], ((f"{{i:05d}}", annotation) for i in itertools.count()))
except OSError as error:
    print(error.filename, error.strerror)
"""
    arguments = [sys.executable, "-c", code, small_disk / "file.h5"]
    found = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout == f"{small_disk} No space left on device\n"
    assert found.stderr == ""
    assert list(small_disk.iterdir()) == []
