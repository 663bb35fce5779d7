"""Stored data is read back bit for bit, released files can be opened, and invalid files are named."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from faze.data.codes import GAZE_HEAD, CodeStore, write_codes
from faze.data.pairs import stored_rows
from faze.data.store.strips import PersonStrips, StripStore, write_strips
from faze.data.store.supplementary import (
    Supplementary,
    read_supplementary,
    supplementary_persons,
    write_supplementary,
)

RANDOM = np.random.default_rng(0)


def person(person_id: str, split: str, count: int) -> PersonStrips:
    return PersonStrips(
        person_id,
        split,
        [f"{person_id}/Straße {i}.jpg" for i in range(count)],
        RANDOM.integers(0, 256, (count, 8, 32, 3), dtype=np.uint8),
        RANDOM.normal(size=(count, 4)).astype(np.float32),
    )


HEAD_SHAPES = [(64, 6), (64,), (3, 64), (3,)]


def codes(count: int) -> dict[str, NDArray]:
    shapes = {"z_app": (5,), "z_gaze": (2, 3), "z_head": (4, 3), "gaze": (2,), "head": (2,), "gaze_hat": (3,)}
    return {name: RANDOM.normal(size=(count, *shape)).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def people() -> list[PersonStrips]:
    return [person("00003", "train", 4), person("00001", "val", 2), person("00002", "train", 1)]


@pytest.fixture
def path(tmp_path: Path, people: list[PersonStrips]) -> Path:
    write_strips(tmp_path / "strips.h5", "gazecapture", iter(people))
    return tmp_path / "strips.h5"


def test_strips_are_read_as_written(path: Path, people: list[PersonStrips]) -> None:
    with StripStore(path) as strips:
        assert strips.dataset == "gazecapture"
        assert strips.persons() == ["00001", "00002", "00003"]
        assert strips.persons("train") == ["00002", "00003"]
        for written in people:
            name = written.person_id
            assert (strips.split(name), strips.count(name)) == (written.split, len(written.pixels))
            assert strips.file_names(name) == written.file_names
            np.testing.assert_array_equal(strips.pixels(name), written.pixels)
            np.testing.assert_array_equal(strips.labels(name), written.labels)


@pytest.mark.parametrize(
    "index", [2, -1, np.int64(0), slice(1, 3), [3, 0, 3], np.array([1]), np.array([True, False, False, True]), []]
)
def test_strips_are_indexed_as_numpy_does(path: Path, people: list[PersonStrips], index: object) -> None:
    with StripStore(path) as strips:
        np.testing.assert_array_equal(strips.pixels("00003", index), people[0].pixels[index])
        with pytest.raises(IndexError):
            strips.pixels("00003", 4)


def test_the_released_code_reads_our_strips(path: Path, people: list[PersonStrips]) -> None:
    """The released code opens the file in this way to read single entries."""
    with h5py.File(path, "r", libver="latest", swmr=True) as file:
        np.testing.assert_array_equal(file["00003"]["pixels"][2, :], people[0].pixels[2])
        np.testing.assert_array_equal(file["00003"]["labels"][2, :], people[0].labels[2])


def test_strips_of_the_released_code_open(tmp_path: Path) -> None:
    pixels, labels = RANDOM.integers(0, 256, (3, 64, 256, 3), np.uint8), RANDOM.normal(size=(3, 4))
    with h5py.File(tmp_path / "MPIIGaze.h5", "w") as file:
        file.create_dataset("p00/pixels", data=pixels, chunks=(1, 64, 256, 3), compression="lzf")
        file.create_dataset("p00/labels", data=labels, chunks=(1, 4), compression="lzf")
    with StripStore(tmp_path / "MPIIGaze.h5") as strips:
        assert (strips.dataset, strips.persons("train"), strips.file_names("p00")) == ("MPIIGaze", ["p00"], None)
        assert strips.labels("p00").dtype == np.float32
        np.testing.assert_array_equal(strips.labels("p00"), labels.astype(np.float32))
        np.testing.assert_array_equal(strips.pixels("p00", [2, 1]), pixels[[2, 1]])


def test_codes_are_read_as_written(tmp_path: Path) -> None:
    written = {"p01": codes(3), "p00": codes(2)}
    write_codes(tmp_path / "codes.h5", "mpiigaze", ((name, "test", arrays) for name, arrays in written.items()))
    read = CodeStore(tmp_path / "codes.h5")
    assert (read.dataset, read.persons(), read.persons("train"), read.split("p01")) == (
        "mpiigaze",
        ["p00", "p01"],
        [],
        "test",
    )
    for name, arrays in written.items():
        assert read[name].keys() == arrays.keys()
        for key, array in arrays.items():
            assert read[name][key].dtype == np.float32
            np.testing.assert_array_equal(read[name][key], array)
    with h5py.File(tmp_path / "codes.h5") as file:
        assert (file.attrs["schema"], file["p01"].attrs["split"]) == (b"codes", b"test")
        assert {name: sorted(file[name]) for name in file} == {name: sorted(codes) for name, codes in written.items()}
        for key, array in written["p01"].items():
            np.testing.assert_array_equal(file[f"p01/{key}"], array)


def test_the_gaze_head_comes_with_the_codes_and_is_no_person(tmp_path: Path) -> None:
    shapes = dict(zip(GAZE_HEAD, HEAD_SHAPES, strict=True))
    head = {name: RANDOM.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    write_codes(tmp_path / "codes.h5", "mpiigaze", [("p00", "test", codes(2))], head)
    read = CodeStore(tmp_path / "codes.h5")
    assert read.persons() == ["p00"]
    assert read.gaze_head.keys() == head.keys()
    for name, array in head.items():
        assert read.gaze_head[name].dtype == np.float32
        np.testing.assert_array_equal(read.gaze_head[name], array)
    with h5py.File(tmp_path / "codes.h5") as file:
        np.testing.assert_array_equal(file.attrs["gaze1.weight"], head["gaze1.weight"])
    write_codes(tmp_path / "codes.h5", "mpiigaze", [("p00", "test", codes(2))])
    assert CodeStore(tmp_path / "codes.h5").gaze_head is None


def test_codes_of_the_released_code_open(golden_dir: Path) -> None:
    read = CodeStore(golden_dir / "meta_synth" / "gc_val_predictions.h5", default_split="val")
    assert read.gaze_head is None
    assert read.dataset == "gc_val_predictions"
    assert len(read.persons("val")) == 10
    assert read[read.persons()[0]]["z_gaze"].shape[1:] == (2, 3)


def test_the_supplementary_annotation_is_read_as_written(tmp_path: Path) -> None:
    written = Supplementary(["00001/frames/00000.jpg", "b"], *(RANDOM.normal(size=(2, n)) for n in (4, 5, 6, 3)))
    other = Supplementary(["00000.jpg"], *(np.zeros((1, n)) for n in (4, 5, 6, 3)))
    write_supplementary(tmp_path / "s.h5", [("00002", other), ("00001", written)])
    assert list(supplementary_persons(tmp_path / "s.h5").items()) == [("00001", 2), ("00002", 1)]
    read = read_supplementary(tmp_path / "s.h5", "00001")
    assert read.file_names == written.file_names
    for name in ("camera_parameters", "distortion_parameters", "head_pose", "gaze_target_mm"):
        np.testing.assert_array_equal(getattr(read, name), getattr(written, name))
    with h5py.File(tmp_path / "s.h5") as file:  # the names that the published files have
        assert set(file["00001"]) == {
            "3d_gaze_target",
            "camera_parameters",
            "distortion_parameters",
            "file_name",
            "head_pose",
        }
        assert file["00001/file_name"][:].tolist() == [b"00001/frames/00000.jpg", b"b"]
        np.testing.assert_array_equal(file["00001/3d_gaze_target"], written.gaze_target_mm)
        np.testing.assert_array_equal(file["00001/head_pose"], written.head_pose)


def edit(path: Path, change: Callable[[h5py.File], object]) -> None:
    with h5py.File(path, "r+") as file:
        change(file)


def replace(name: str, data: NDArray) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = data

    return change


def test_strips_of_several_sizes_cannot_be_rows_of_one_table(path: Path) -> None:
    edit(path, replace("00001/pixels", np.zeros((2, 1, 32, 3), np.uint8)))
    with StripStore(path) as strips, pytest.raises(ValueError, match="1 x 32 of person 00001, 8 x 32 of"):
        stored_rows(strips, path, strips.persons()).read(torch.tensor([0, 3]))


@pytest.mark.parametrize("source", [None, "rendered by faze", "GazeCapture"])
def test_the_source_of_the_pixels_is_kept(tmp_path: Path, source: str | None) -> None:
    given = {} if source is None else {"pixel_source": source}
    write_strips(tmp_path / "strips.h5", "gazecapture", [person("00001", "train", 2)], **given)
    write_codes(tmp_path / "codes.h5", "gazecapture", [("p00", "test", codes(2))], **given)
    with StripStore(tmp_path / "strips.h5") as strips:
        assert strips.pixel_source == CodeStore(tmp_path / "codes.h5").pixel_source == (source or "unknown")
