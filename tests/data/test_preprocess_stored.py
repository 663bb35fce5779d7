"""Strips that are already normalised, in the released layout or ours, instead of raw frames."""

import csv
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_preprocess import write_config

from faze.__main__ import main
from faze.data.store.strips import PersonStrips, StripStore, write_strips

RANDOM = np.random.default_rng(0)
PIXELS = {f"0000{i}": RANDOM.integers(0, 256, (n, 64, 256, 3), np.uint8) for i, n in ((1, 3), (2, 300), (3, 1))}
LABELS = {person: RANDOM.normal(0, 0.2, (len(pixels), 4)) for person, pixels in PIXELS.items()}


def write_released(path: Path, splits: dict[str, str] | None = None) -> None:
    """Write a file as the released code does: with lzf, in chunks of one sample."""
    with h5py.File(path, "w") as file:
        for person, pixels in PIXELS.items():
            file.create_dataset(f"{person}/pixels", data=pixels, chunks=(1, 64, 256, 3), compression="lzf")
            file.create_dataset(f"{person}/labels", data=LABELS[person], chunks=(1, 4), compression="lzf")
            if splits:
                file[person].attrs["split"] = splits[person]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that runs the stage on tmp_path/released.h5 and returns the exit code."""

    def run(
        dataset: str, raw: str = "released.h5", splits: str | None = None, layout: str = "strips", **changes: object
    ) -> int:
        entry = {"layout": layout, "path": str(tmp_path)} | ({"splits": splits} if splits else {})
        arguments = ["--config", write_config(tmp_path, "preprocess", dataset, entry, preprocess=changes)]
        arguments += ["--raw", tmp_path / raw, "--out", tmp_path / "strips.h5", "--rejects", tmp_path / "rejects.csv"]
        monkeypatch.setattr(sys, "argv", ["faze", "preprocess", *map(str, arguments)])
        return main()

    return run


def rejects(folder: Path) -> list[list[str]]:
    with (folder / "rejects.csv").open(newline="") as file:
        return list(csv.reader(file))[1:]


def test_released_strips_are_taken_as_they_are(tmp_path: Path, run: Callable, capsys: pytest.CaptureFixture) -> None:
    write_released(tmp_path / "released.h5")
    assert run("mpiigaze") == 0
    assert "mpiigaze: 304 strips of 3 people; 0 rejects" in capsys.readouterr().out
    assert rejects(tmp_path) == []
    with StripStore(tmp_path / "strips.h5") as strips:
        assert (strips.dataset, strips.persons("test")) == ("mpiigaze", list(PIXELS))
        for person, pixels in PIXELS.items():
            np.testing.assert_array_equal(strips.pixels(person), pixels)
            np.testing.assert_array_equal(strips.labels(person), LABELS[person].astype(np.float32))
            np.testing.assert_array_equal(strips.frame_index(person), np.arange(len(pixels)))
            assert set(strips.label_sources(person)) == {"stored"}
            assert strips.file_names(person) is None
            assert strips.location(person)


def test_the_files_own_splits_are_kept(tmp_path: Path, run: Callable) -> None:
    write_released(tmp_path / "released.h5", {"00001": "train", "00002": "val", "00003": "test"})
    assert run("gazecapture") == 0
    with StripStore(tmp_path / "strips.h5") as strips:
        assert [strips.persons(split) for split in ("train", "val", "test")] == [["00001"], ["00002"], ["00003"]]


def test_a_list_of_splits_tells_what_the_file_does_not(tmp_path: Path, run: Callable) -> None:
    write_released(tmp_path / "released.h5")
    lists = {"train": ["00002", "00009"], "val": ["00001"], "test": []}
    (tmp_path / "split.json").write_text(json.dumps(lists))
    assert run("gazecapture", splits=str(tmp_path / "split.json")) == 0
    with StripStore(tmp_path / "strips.h5") as strips:
        assert [strips.persons(split) for split in ("train", "val", "test")] == [["00002"], ["00001"], []]
    assert rejects(tmp_path) == [
        ["00003", "", "not in the list of splits"],
        ["00009", "", "listed in the splits, but not in the file of strips"],
    ]


def test_everyone_is_a_test_person_if_the_entry_says_so(tmp_path: Path, run: Callable) -> None:
    write_released(tmp_path / "released.h5", {"00001": "train", "00002": "val", "00003": "test"})
    assert run("mpiigaze", splits="test") == 0
    assert rejects(tmp_path) == []
    with StripStore(tmp_path / "strips.h5") as strips:
        assert strips.persons("test") == strips.persons() == list(PIXELS)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "00001: set `splits` of this data set to test, or to a JSON file"),
        ("{", "split.json"),
    ],
)
def test_no_way_to_know_the_splits_is_one_sentence(
    tmp_path: Path, run: Callable, capsys: pytest.CaptureFixture, text: str | None, sentence: str
) -> None:
    write_released(tmp_path / "released.h5")
    if text is not None:
        (tmp_path / "split.json").write_text(text)
    assert run("gazecapture", splits=text and str(tmp_path / "split.json")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(sentence, line), line
    assert not (tmp_path / "strips.h5").exists()


def test_what_our_own_file_knows_is_kept(tmp_path: Path, run: Callable) -> None:
    names = [b"\xff.jpg".decode("utf-8", "surrogateescape"), "b.jpg", "a.jpg"]
    by_sample = np.array([[7, 3, 9], [0, 2, 1], [1, 0, 2]])  # frame index, label source, validity
    known = PersonStrips("00001", "val", names, PIXELS["00001"], LABELS["00001"], "iPad", *by_sample)
    write_strips(tmp_path / "ours.h5", "gazecapture", [known], pixel_source="GazeCapture")
    assert run("gazecapture", raw="ours.h5") == 0
    assert (tmp_path / "strips.h5").read_bytes() == (tmp_path / "ours.h5").read_bytes()


def test_a_file_that_is_no_strips_is_named(tmp_path: Path, run: Callable, capsys: pytest.CaptureFixture) -> None:
    write_strips(
        tmp_path / "ours.h5", "gazecapture", [PersonStrips("1", "val", None, PIXELS["00003"], LABELS["00003"])]
    )
    (tmp_path / "torn.h5").write_bytes((tmp_path / "ours.h5").read_bytes()[:3000])
    assert run("mpiigaze", raw="torn.h5") == 1
    assert "torn.h5: not a readable HDF5 file" in capsys.readouterr().err
    assert run("mpiigaze", raw="absent.h5") == 1
    assert "absent.h5: no such file" in capsys.readouterr().err
    write_released(tmp_path / "released.h5")
    assert run("mpiigaze", width_px=128, height_px=32) == 1
    reason = r"no frame is usable: strips of 64 x 256 px, not the configured 32 x 128 px (H x W) (3 times)"
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "strips.h5").exists()
