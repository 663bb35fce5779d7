"""The store of normalised strips that `faze preprocess` writes: one group per person (docs/reference/formats.md)."""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.config.parameters import Fold

SPLITS = ("train", "val", "test")
RENDERED, UNKNOWN_SOURCE = "rendered by faze", "unknown"  # sources of pixels; an unknown one makes the licence unknown


@dataclass(frozen=True, eq=False)
class StoredPerson:
    """One person in a store."""

    name: str
    split: str
    labels: NDArray[np.float32]  # (N, 4) rad: pitch and yaw of the gaze, then of the head
    offset: int = 0  # of the first strip, in bytes from the start of the file
    digest: str = ""  # hash of the labels and the first strip, which identifies the data under any name


@dataclass(frozen=True, eq=False)
class StripStore:
    """The contents of a store, except the pixels."""

    path: Path
    dataset: str
    pixel_source: str
    size: tuple[int, int]  # H, W of the strips, px
    people: list[StoredPerson]  # sorted by name

    def of_split(self, split: str) -> list[StoredPerson]:
        """Return the people in a split."""
        return [person for person in self.people if person.split == split]

    def digest(self, *splits: str) -> str:
        """Return a hash (16 hex digits) of the people in the given splits and their data."""
        known = [(each.name, each.split, self.size, each.digest) for each in self.people if each.split in splits]
        return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def read_store(path: Path, fold: Fold | None = None) -> StripStore:
    """Read a store, using its own splits or a fold's; raise a UserError if there are fewer people than folds."""
    people = []
    with reading(path), h5py.File(path, locking=False) as file:
        for name, group in sorted(file.items()):
            pixels, labels = group["pixels"], group["labels"][:]
            digest = hashlib.sha256(labels.tobytes() + pixels[:1].tobytes()).hexdigest()[:16]
            people.append(StoredPerson(name, group.attrs["split"], labels, pixels.id.get_offset(), digest))
        dataset, pixel_source, size = file.attrs["dataset"], file.attrs["pixel_source"], pixels.shape[1:3]
    if fold and len(people) < fold.folds:
        raise UserError(f"{path}: {len(people)} people cannot be divided into {fold.folds} folds: lower `folds`")
    if fold:
        splits = {fold.number: "test", (fold.number + 1) % fold.folds: "val"}
        people = [replace(person, split=splits.get(i % fold.folds, "train")) for i, person in enumerate(people)]
    return StripStore(path, dataset, pixel_source, size, people)


@dataclass(frozen=True, eq=False)
class FileStrips:
    """Strips at known positions in a file."""

    path: Path
    offsets: NDArray[np.int64]  # (N,) bytes from the start of the file
    size: tuple[int, int]  # H, W

    def read(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Read the strips (n, H, W, 3) at the given indices, which may be in any order."""
        strips = np.empty((len(indices), *self.size, 3), np.uint8)
        with self.path.open("rb", buffering=0) as file:
            for strip, offset in zip(strips, self.offsets[indices].tolist(), strict=True):
                os.preadv(file.fileno(), [strip], offset)
        return strips
