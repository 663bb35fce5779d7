"""Stores of strips and codes."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from stores import PersonStrips, write_strips

from faze.base.errors import UserError
from faze.config.parameters import Fold
from faze.data.codes import GAZE_HEAD, CodeStore, write_codes
from faze.data.pairs import open_people
from faze.data.strips import read_store

RANDOM = np.random.default_rng(0)
SPLITS = ("test", "val", "train")
PEOPLE = {"00003": "train", "00001": "val", "00002": "test", "00004": "train"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    people = [
        PersonStrips(name, split, RANDOM.integers(0, 256, (n, 8, 32, 3), np.uint8), RANDOM.normal(size=(n, 4)))
        for n, (name, split) in enumerate(PEOPLE.items(), start=2)
    ]
    write_strips(tmp_path / "strips.h5", "gazecapture", people, "rendered by faze")
    return tmp_path / "strips.h5"


def test_a_digest_identifies_people_and_their_data(path: Path) -> None:
    store = read_store(path)
    assert (store.dataset, store.pixel_source) == ("gazecapture", "rendered by faze")
    assert {person.name: person.split for person in store.people} == PEOPLE
    before, trained = store.digest("train", "val", "test"), store.digest("train")
    assert len({person.digest for person in store.people}) == 4
    for name, row in (("labels", -1), ("pixels", 0)):
        with h5py.File(path, "r+") as file:
            file[f"00001/{name}"][row] += 1
        assert read_store(path).digest("train") == trained
        assert (now := read_store(path).digest("train", "val", "test")) != before
        before = now


def test_everybody_is_a_test_person_of_one_fold(path: Path) -> None:
    expected = [[["1", "4"], ["2"], ["3"]], [["2"], ["3"], ["1", "4"]], [["3"], ["1", "4"], ["2"]]]
    for number, names in enumerate(expected):
        store = read_store(path, Fold(number=number, folds=3))
        assert [[person.name[-1] for person in store.of_split(split)] for split in SPLITS] == names
    with pytest.raises(UserError, match="4 people cannot be divided into 5 folds: lower `folds`"):
        read_store(path, Fold(number=0, folds=5))
    with pytest.raises(UserError, match=r"strips\.h5: no person in the split test has 5 .*data\.min_entries"):
        open_people(read_store(path), (8, 32), split="test", min_entries=5)


def test_codes_are_read_as_written(tmp_path: Path) -> None:
    shapes = {"z_app": (5,), "z_gaze": (2, 3), "z_head": (4, 3), "gaze": (2,), "head": (2,), "gaze_hat": (3,)}
    people = {
        name: {key: RANDOM.normal(size=(count, *shape)).astype(np.float32) for key, shape in shapes.items()}
        for name, count in (("p01", 3), ("p00", 2))
    }
    head = {name: RANDOM.normal(size=(3, 6)).astype(np.float32) for name in GAZE_HEAD}
    written = ((name, "test", arrays) for name, arrays in people.items())
    write_codes(tmp_path / "codes.h5", "mpiigaze", written, head, "rendered by faze", "abc")
    read = CodeStore(tmp_path / "codes.h5")
    assert (read.dataset, read.pixel_source, read.checkpoint) == ("mpiigaze", "rendered by faze", "abc")
    assert (read.persons(), read.persons("train"), read.splits["p01"]) == (["p00", "p01"], [], "test")
    for found, wanted in ((read.gaze_head, head), (read["p00"], people["p00"]), (read["p01"], people["p01"])):
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            assert found[name].dtype == np.float32
            np.testing.assert_array_equal(found[name], values.astype(np.float32))
