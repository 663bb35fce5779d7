"""Rows by position: the same bytes as HDF5 returns, from any file and in any process."""

import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

from faze.data.pairs import FileRows, cache, load_people, stored_rows
from faze.data.store.strips import PersonStrips, StripStore, write_strips

COUNTS = {"a": 7, "b": 5, "c": 9}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    persons = [
        PersonStrips(name, "train", ["f"] * n, random.integers(0, 256, (n, 64, 256, 3), np.uint8), np.ones((n, 4)))
        for name, n in COUNTS.items()
    ]
    write_strips(tmp_path / "strips.h5", "made-up", persons)
    return tmp_path / "strips.h5"


def everything(path: Path, persons: list[str]) -> torch.Tensor:
    strips = StripStore(path)
    return torch.cat([torch.from_numpy(strips.pixels(person)) for person in persons])


@pytest.mark.parametrize("persons", [["a", "b", "c"], ["c", "a"]])
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_those_of_hdf5_in_any_order_and_repeated(path, persons, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows, wanted = stored_rows(StripStore(path), path, persons), everything(path, persons)
    indices = np.random.default_rng(1).integers(0, len(wanted), 40)
    assert rows.shape == (64, 256, 3)
    assert torch.equal(rows.gather(torch.from_numpy(indices)), wanted[indices])


def _read(rows: FileRows) -> int:
    return int(rows.gather(torch.tensor([6])).long().sum())


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_rows_travel_to_other_processes(path, start):
    rows = stored_rows(StripStore(path), path, ["a"])
    with ProcessPoolExecutor(1, get_context(start)) as pool:
        assert pool.submit(_read, rows).result() == _read(rows) == int(everything(path, ["a"])[6].long().sum())
    assert _read(pickle.loads(pickle.dumps(rows))) == _read(rows)


def test_a_file_that_became_shorter_is_one_sentence(path):
    rows = stored_rows(StripStore(path), path, ["a", "b", "c"])
    os.truncate(path, int(rows.offsets[-1]) + 100)
    with pytest.raises(ValueError, match=r"strips\.h5: .*truncated"):
        rows.gather(torch.tensor([20]))


def test_cached_people_come_from_their_table(path):
    people, _ = load_people(path, "train", (64, 256), min_entries=2)
    assert isinstance(people.rows, FileRows) and not people.cached
    cached = cache(people)
    assert cached.cached
    assert torch.equal(cached.gather(torch.tensor([20, 3, 7])), everything(path, ["a", "b", "c"])[[20, 3, 7]])
