"""Stores of strips and codes, ours and the released code's, and the sentences about those that cannot be read."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from faze.base.errors import UserError
from faze.config.parameters import Fold
from faze.data.codes import GAZE_HEAD, CodeStore, write_codes
from faze.data.pairs import open_people
from faze.data.strips import read_store

RANDOM = np.random.default_rng(0)
SPLITS = ("test", "val", "train")
PEOPLE = {"00003": "train", "00001": "val", "00002": "test", "00004": "train"}


def fill(file: h5py.File, name: str, split: str | bytes = "", count: int = 3, **how: object) -> None:
    """Write a person as faze does, or with `how` as others do; without a split as the released code does."""
    group = file.create_group(name)
    group.create_dataset("pixels", data=RANDOM.integers(0, 256, (count, 8, 32, 3), np.uint8), **how)
    group["labels"] = RANDOM.normal(size=(count, 4))
    if split:
        group.attrs["split"] = split


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "strips.h5", "w") as file:
        file.attrs.update({"dataset": "gazecapture", "pixel_source": b"rendered by faze"})
        for number, (name, split) in enumerate(PEOPLE.items()):
            fill(file, name, split.encode() if number % 2 else split, 2 + number)
    return tmp_path / "strips.h5"


def test_a_store_is_read_as_written(path: Path) -> None:
    store = read_store(path)
    assert (store.dataset, store.pixel_source) == ("gazecapture", "rendered by faze")
    assert {person.name: person.split for person in store.people} == PEOPLE
    people = open_people(store, (8, 32))
    with h5py.File(path) as file:
        pixels, labels = (np.concatenate([file[name][key] for name in sorted(file)]) for key in ("pixels", "labels"))
    assert people.counts == [3, 4, 2, 5]
    np.testing.assert_array_equal(people.gather(torch.arange(14)), pixels)
    np.testing.assert_array_equal(people.labels, labels.astype(np.float32))


def test_a_store_of_the_released_code_is_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "MPIIGaze.h5", "w") as file:
        fill(file, "p00")
    store = read_store(tmp_path / "MPIIGaze.h5")
    assert (store.dataset, store.pixel_source) == ("MPIIGaze", "unknown")
    assert [person.name for person in store.of_split("train")] == ["p00"]
    assert read_store(tmp_path / "MPIIGaze.h5", default_split="").people[0].split == ""


def test_a_digest_identifies_people_and_their_data(path: Path) -> None:
    store = read_store(path)
    before, trained = store.digest("train", "val", "test"), store.digest("train")
    assert len({person.digest for person in store.people}) == 4
    for name in ("labels", "pixels"):
        with h5py.File(path, "r+") as file:
            file[f"00001/{name}"][0] += 1
        assert read_store(path).digest("train") == trained
        assert (now := read_store(path).digest("train", "val", "test")) != before
        before = now


@pytest.mark.parametrize("fold", [0, 1, 2])
def test_everybody_is_a_test_person_of_one_fold(path: Path, fold: int) -> None:
    names = [[person.name[-1] for person in read_store(path, Fold(number=fold, folds=3)).of_split(s)] for s in SPLITS]
    assert names == [[["1", "4"], ["2"], ["3"]], [["2"], ["3"], ["1", "4"]], [["3"], ["1", "4"], ["2"]]][fold]


def person(path: Path, **how: object) -> None:
    with h5py.File(path, "r+") as file:
        del file["00002"]
        fill(file, "00002", "test", **how)


def array(path: Path, name: str, shape: tuple[int, ...]) -> None:
    with h5py.File(path, "r+") as file:
        file.pop(name, None)
        file[name] = np.zeros(shape, np.uint8)


BAD = {
    "absent": (lambda path: path.unlink(), r"strips\.h5: cannot be read .*recreate it"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:9000]), r"strips\.h5: cannot be read .*truncated"),
    "not HDF5": (lambda path: path.write_text("strips"), r"strips\.h5: cannot be read .*recreate it"),
    "labels": (lambda path: array(path, "00002/labels", (3, 2)), r"person 00002: .*labels \(3, 2\), not uint8"),
    "grey": (lambda path: array(path, "00002/pixels", (4, 8, 32)), r"person 00002: .*\(4, 8, 32\).* write this"),
    "no group": (lambda path: array(path, "readme", ()), r"person readme: cannot be read"),
    "chunks": (lambda path: person(path, compression="lzf"), r"person 00002 are compressed .* layout strips"),
    "size": (lambda path: array(path, "00002/pixels", (4, 8, 48, 3)), r"00002, 8 x 48 px, are no multiple of model"),
    "few": (lambda path: person(path, count=1), r"no person in split test has 2 or more strips: .*data\.min_entries"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_store_is_one_sentence(path: Path, bad: str) -> None:
    spoil, words = BAD[bad]
    spoil(path)
    with pytest.raises(UserError, match=words):
        open_people(read_store(path), (8, 32), split="test", min_entries=2)


def test_more_folds_than_people_are_refused(path: Path) -> None:
    with pytest.raises(UserError, match="4 people cannot be in 5 folds: lower `folds`"):
        read_store(path, Fold(number=0, folds=5))


def test_codes_are_read_as_written(tmp_path: Path) -> None:
    shapes = {"z_app": (5,), "z_gaze": (2, 3), "z_head": (4, 3), "gaze": (2,), "head": (2,), "gaze_hat": (3,)}
    people = {
        name: {key: RANDOM.normal(size=(count, *shape)) for key, shape in shapes.items()}
        for name, count in (("p01", 3), ("p00", 2))
    }
    head = {name: RANDOM.normal(size=(3, 6)) for name in GAZE_HEAD}
    written = ((name, "test", arrays) for name, arrays in people.items())
    write_codes(tmp_path / "codes.h5", "mpiigaze", written, head, "rendered by faze", "abc")
    read = CodeStore(tmp_path / "codes.h5")
    assert (read.dataset, read.pixel_source, read.checkpoint) == ("mpiigaze", "rendered by faze", "abc")
    assert (read.persons(), read.persons("train"), read.split("p01")) == (["p00", "p01"], [], "test")
    for found, wanted in ((read.gaze_head, head), (read["p00"], people["p00"]), (read["p01"], people["p01"])):
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            assert found[name].dtype == np.float32
            np.testing.assert_array_equal(found[name], values.astype(np.float32))


def test_codes_of_the_released_code_are_read(golden_dir: Path) -> None:
    read = CodeStore(golden_dir / "meta_synth" / "gc_val_predictions.h5", default_split="val")
    assert (read.dataset, len(read.persons("val")), bool(read.gaze_head)) == ("gc_val_predictions", 10, False)
    assert read[read.persons()[0]]["z_gaze"].shape[1:] == (2, 3)
