"""Leave one person out: every person is a test person of exactly one fold."""

from pathlib import Path

import numpy as np
import pytest

from faze.base.errors import UserError
from faze.config.parameters import Fold
from faze.data.pairs import load_people
from faze.data.store.strips import PersonStrips, StripStore, write_strips

PEOPLE = ["b", "d", "a", "e", "c", "g", "f"]  # in the file, in this order


@pytest.fixture
def path(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    write_strips(
        tmp_path / "strips.h5",
        "mpiigaze",
        [
            PersonStrips(name, "test", None, random.integers(0, 256, (3, 8, 32, 3), np.uint8), random.random((3, 4)))
            for name in PEOPLE
        ],
    )
    return tmp_path / "strips.h5"


@pytest.mark.parametrize(
    ("number", "test", "val", "train"),
    [(0, "adg", "be", "cf"), (1, "be", "cf", "adg"), (2, "cf", "adg", "be")],
)
def test_people_are_in_the_folds_in_turn(path: Path, number: int, test: str, val: str, train: str) -> None:
    with StripStore(path, fold=Fold(number=number, folds=3)) as strips:
        assert [strips.persons(split) for split in ("test", "val", "train")] == [list(test), list(val), list(train)]
        assert strips.persons() == list("abcdefg")


def test_a_fold_determines_who_is_trained_on(path: Path) -> None:
    people, _ = load_people(path, "train", (8, 32), min_entries=1, fold=Fold(number=2, folds=7))
    assert people.names == ["a", "b", "e", "f", "g"]  # c is the test person, d the val person


def test_more_folds_than_people_are_refused(path: Path) -> None:
    with pytest.raises(UserError, match=r"strips\.h5: 7 people cannot be in 8 folds: lower `folds`"):
        StripStore(path, fold=Fold(number=0, folds=8))
