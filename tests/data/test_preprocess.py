"""The stage: from raw folders to strips, for any number of processes; bad frames and full disks are reported."""

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest
import raw_data
from data_sets import entries
from joblib import delayed
from numpy.typing import NDArray
from stage_runs import call_stage, defaults

from faze.base.errors import UserError
from faze.data.preparation import normalise
from faze.data.readers.supplementary import write_supplementary
from faze.data.worker_processes import worker_processes


def run(
    folder: Path, dataset: str = "laptop", threads: int = 1, raw: str = "raw", entry: dict | None = None, **changes
) -> int:
    """Run the stage on FOLDER/RAW and return the exit code; `entry` contains changes of the data set's entry."""
    overrides = {"preprocess": {"datasets": entries(**{dataset: entry or {}}), **changes}}
    supplementary = folder / "supplementary.h5" if dataset == "phone" and not (entry or {}).get("path") else None
    outputs = {"out": folder / "out" / "strips.h5", "rejects": folder / "out" / "rejects.csv"}
    given = {"raw": folder / raw, "supplementary": supplementary, "threads": threads}
    return call_stage("preprocess", folder, overrides, config=defaults(), dataset=dataset, **given, **outputs)


def rejects(folder: Path) -> list[list[str]]:
    with (folder / "out" / "rejects.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["person", "file_name", "reason"]
    return rows


def read_store(folder: Path) -> dict[str, dict[str, NDArray]]:
    """Return arrays and attributes of each person."""
    with h5py.File(folder / "out" / "strips.h5") as file:
        return {
            name: {key: array[()] for key, array in group.items()} | dict(group.attrs) for name, group in file.items()
        }


@pytest.mark.parametrize(
    ("listed", "splits"),
    [
        (None, ["train", "val", "test"]),
        ({"test": ["00002"], "train": ["00003"]}, ["test", "train", "test"]),  # 00004 states test
    ],
)
def test_gazecapture_and_its_strips_keep_their_splits(tmp_path: Path, listed: dict | None, splits: list[str]) -> None:
    raw_data.write_gazecapture(tmp_path / "raw", tmp_path / "supplementary.h5", splits=("train", "val", "test"))
    (tmp_path / "splits.json").write_text(json.dumps(listed), encoding="utf-8-sig")  # some editors add a mark
    entry = {"splits": str(tmp_path / "splits.json")} if listed else {}
    assert run(tmp_path, "phone", 2, entry=entry) == 0 and rejects(tmp_path) == []
    found = read_store(tmp_path)
    ours = (tmp_path / "out/strips.h5").rename(tmp_path / "ours.h5").read_bytes()
    assert run(tmp_path, "phone", raw="ours.h5", entry={"layout": "strips", "path": str(tmp_path)}) == 0
    assert (tmp_path / "out/strips.h5").read_bytes() == ours
    assert list(found) == ["00002", "00003", "00004"] and [person["split"] for person in found.values()] == splits
    for name, person in found.items():
        assert (person["label_source"], person["device"]) == ("supplementary", "iPad Air")
        assert person["file_name"].tolist() == [f"{name}/frames/0000{i}.jpg".encode() for i in range(3)]
        assert person["frame_index"].tolist() == [0, 1, 2]


def halve(image: Path) -> None:
    cv2.imwrite(str(image), cv2.imread(str(image), cv2.IMREAD_REDUCED_COLOR_2))


DAMAGES = {
    "truncated JPEG": lambda image: os.truncate(image, 4000),
    "empty file": lambda image: os.truncate(image, 0),
    "not an image": lambda image: image.write_text("<html>"),
    "No such file or directory": Path.unlink,
    "the 160 x 120 frame does not match its camera": halve,
}
BAD_LINES = {
    "listed twice": raw_data.mpiifacegaze_line("day01/0006.jpg"),
    "path is outside the data folder": raw_data.mpiifacegaze_line("../../x.jpg"),
    "head pose is not finite": "day01/0009.jpg 1 2",
}


def test_bad_frames_are_listed_and_the_others_are_kept(tmp_path: Path) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=1, frames=7, images=7)
    assert run(tmp_path) == 0
    before = read_store(tmp_path)["p00"]
    for number, damage in enumerate(DAMAGES.values()):
        damage(tmp_path / f"raw/p00/day01/{number:04d}.jpg")
    with (tmp_path / "raw/p00/p00.txt").open("a") as file:
        print(*BAD_LINES.values(), sep="\n", file=file)
    assert run(tmp_path) == 0
    for (person, _, reason), words in zip(rejects(tmp_path), [*DAMAGES, *BAD_LINES], strict=True):
        assert person == "p00" and words in reason
    after = read_store(tmp_path)["p00"]
    for key in ("frame_index", "file_name", "labels", "pixels"):
        np.testing.assert_array_equal(after[key], before[key][5:])


def test_people_without_strips_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    raw_data.write_gazecapture(tmp_path / "raw", tmp_path / "supplementary.h5", splits=("train", "val", "test"))
    (tmp_path / "raw/00002/appleFace.json").write_text('{"IsValid": [1]}')
    shutil.rmtree(tmp_path / "raw/00003")
    (tmp_path / "raw/00005").mkdir()
    shutil.copytree(tmp_path / "raw/00004", tmp_path / "raw/00006")
    with h5py.File(tmp_path / "supplementary.h5", "r+") as file:
        for name, array in file["00004"].items():
            file[f"00006/{name}"] = array[:0]
    assert run(tmp_path, "phone") == 0
    assert "phone: 3 strips of 1 people; 4 rejects" in capsys.readouterr().out
    found = {person: reason for person, file, reason in rejects(tmp_path) if not file}
    assert "appleFace.json" in found["00002"] and "info.json" in found["00005"]
    assert "00003" in found and found["00006"] == "no annotated frame" and list(read_store(tmp_path)) == ["00004"]


def test_nothing_usable_is_one_sentence_and_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", frames=2)
    for frame in (tmp_path / "raw").glob("*/*/*.jpg"):
        frame.write_bytes(b"")
    assert run(tmp_path) == 1
    assert "no frame is usable: empty file (4 times)" in capsys.readouterr().err
    assert run(tmp_path, entry={"splits": "stated"}) == 1
    assert "set `splits` of this data set to test, or to a JSON file" in capsys.readouterr().err
    assert run(tmp_path, raw="raw/p00/p00.txt") == 1 and "contains no folders p00" in capsys.readouterr().err
    for content in ("{", "[]", '{"tset": []}', '{"test": ["p00"], "val": ["p00"]}'):
        (tmp_path / "splits.json").write_text(content)
        assert run(tmp_path, entry={"splits": str(tmp_path / "splits.json")}) == 1
        assert "splits.json: cannot be read" in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".strips.h5.lock"]  # the next run tries all frames


def test_a_strip_around_another_point_has_its_labels(tmp_path: Path) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=1)
    labels = []
    for center_mm in ([0, 0, 0], [0, 50, 0]):
        assert run(tmp_path, center_mm=center_mm) == 0
        labels.append(read_store(tmp_path)["p00"]["labels"])
    turned_deg = -np.degrees(np.arctan(50 / raw_data.TRANSLATION_MM[2]))  # of the line to the camera, at the head
    assert np.degrees(labels[1] - labels[0])[:, 2] == pytest.approx(turned_deg, abs=0.3)


def test_bytes_do_not_depend_on_processes_or_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=3, frames=5)
    (tmp_path / "raw/p02/day01/0001.jpg").unlink()
    written = []
    for threads, frames in ((1, 2000), (1, 2), (3, 2)):
        monkeypatch.setattr(normalise, "FRAMES", frames)
        assert run(tmp_path, threads=threads) == 0
        written.append([(tmp_path / "out" / name).read_bytes() for name in ("strips.h5", "rejects.csv")])
    assert written[0] == written[1] == written[2]


def test_a_killed_worker_is_one_sentence() -> None:
    with pytest.raises(UserError, match="run the same command again"), worker_processes(2) as parallel:
        parallel(delayed(os._exit)(1) for _ in range(2))


# Strips instead of frames

RANDOM = np.random.default_rng(0)
PIXELS = {name: RANDOM.integers(0, 256, (count, 64, 256, 3), np.uint8) for name, count in (("1", 3), ("2", 30))}
LABELS = {name: RANDOM.normal(0, 0.2, (len(pixels), 4)) for name, pixels in PIXELS.items()}


def write_released(path: Path, pixels: dict[str, NDArray] = PIXELS, split: str = "") -> None:
    """Write a file as the released code does: with lzf, in chunks of one sample."""
    with h5py.File(path, "w") as file:
        for name in pixels:
            shape = pixels[name].shape[1:]
            file.create_dataset(f"{name}/pixels", data=pixels[name], chunks=(1, *shape), compression="lzf")
            file.create_dataset(f"{name}/labels", data=LABELS[name], chunks=(1, 4), compression="lzf")
            if split:
                file[name].attrs["split"] = np.bytes_(split)  # as HDF5 tools write it


def copy(folder: Path, raw: str = "released.h5", splits: str = "test", **changes: object) -> int:
    return run(folder, raw=raw, entry={"layout": "strips", "path": str(folder), "splits": splits}, **changes)


def test_strips_are_copied(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_released(tmp_path / "released.h5", split="val")
    assert copy(tmp_path) == 0 and rejects(tmp_path) == []
    assert "laptop: 33 strips of 2 people; 0 rejects" in capsys.readouterr().out
    for name, person in read_store(tmp_path).items():
        np.testing.assert_array_equal(person["pixels"], PIXELS[name])
        np.testing.assert_array_equal(person["labels"], LABELS[name].astype(np.float32))
        assert person["frame_index"].tolist() == list(range(len(PIXELS[name])))
        assert (person["split"], person["label_source"]) == ("test", "stored")
    assert copy(tmp_path, splits="stated") == 0 and {p["split"] for p in read_store(tmp_path).values()} == {"val"}


@pytest.mark.parametrize(
    ("write", "changes", "words"),
    [
        (lambda path: None, {}, "released.h5: cannot be read"),
        (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(90)), {}, "released.h5: cannot be read"),
        (lambda path: h5py.File(path, "w").create_dataset("1/pixels", data=PIXELS["1"]), {}, "released.h5"),
        (write_released, {"width_px": 128}, "not uint8 (3, 64, 128, 3) as configured"),
        (write_released, {"splits": "stated"}, "set `splits` of this data set to test, or to a JSON file"),
        (lambda path: write_released(path, {"1": PIXELS["1"] / 255}), {}, "the pixels of 1 are float64"),
    ],
)
def test_a_file_that_is_no_strips_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture, write: Callable, changes: dict, words: str
) -> None:
    write(tmp_path / "released.h5")
    assert copy(tmp_path, **changes) == 1
    (sentence,) = capsys.readouterr().err.splitlines()
    assert words in sentence and not (tmp_path / "out/strips.h5").exists()


# Full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 8 MiB, which has room for 160 strips, where the outputs are written."""
    folder = tmp_path / "out"
    folder.mkdir()
    mount = shutil.which("mount")
    if not mount or subprocess.run([mount, "-t", "tmpfs", "-o", "size=8m", "faze", folder], check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize(("frames", "threads"), [(100, 1), (100, 2), (50, 1)])
def test_a_disk_that_fills_is_one_sentence(
    small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture, frames: int, threads: int
) -> None:
    """The disk fills up at the second part (100 frames per person) or when the store is written (50 frames)."""
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=2, frames=frames)
    assert run(tmp_path, threads=threads) == 1
    *before, sentence = capsys.readouterr().err.splitlines()
    assert not any(line.startswith(("Traceback", "Exception ignored")) for line in before)
    assert sentence.startswith(f"faze preprocess: {small_disk}") and sentence.endswith("No space left on device")
    assert [path.name for path in small_disk.iterdir() if path.suffix != ".lock"] == [".work.strips.h5"]
    parts = list(small_disk.glob(".work.strips.h5/*/*"))
    assert len(parts) == {100: 1, 50: 2}[frames] or threads == 2
    for part in parts:  # which are not made again
        with np.load(part) as finished:
            shutil.rmtree(tmp_path / "raw" / finished["file_name"][0].decode()[:9])
    subprocess.run(["mount", "-o", "remount,size=32m", small_disk], check=True)
    assert run(tmp_path, threads=threads) == 0 and rejects(tmp_path) == []
    assert [len(person["pixels"]) for person in read_store(tmp_path).values()] == [frames, frames]


def test_hdf5_files_that_do_not_fit_are_one_sentence(
    small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Regression: the file of strips was called unreadable, since the space for its compressed size was reserved."""
    with h5py.File(tmp_path / "released.h5", "w") as file:
        file.create_dataset("2/pixels", (170, 64, 256, 3), np.uint8, chunks=(1, 64, 256, 3))
        file["2/labels"] = np.zeros((170, 4))
    assert copy(tmp_path) == 1
    assert f"{small_disk}/strips.h5: No space left on device" in capsys.readouterr().err
    annotation = raw_data.annotation(tmp_path, [f"00002/{i}" for i in range(60_000)])
    with pytest.raises(OSError, match="No space left on device"):  # Regression: HDF5 crashed
        write_supplementary(small_disk / "supplementary.h5", [annotation])
    assert [path.name for path in small_disk.iterdir()] == [".strips.h5.lock"]
