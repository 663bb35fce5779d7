"""The store of normalised strips: an HDF5 file with one group per person (docs/reference/formats.md).

The released code reads our stores, and we read its stores, which contain only pixels and labels. Chunked or compressed
strips are first copied by `faze preprocess` (layout `strips`).
"""

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
VALIDITIES = ("valid", "off_screen", "unknown_screen")  # valid: the gaze target is on the screen
RENDERED, UNKNOWN_SOURCE = "rendered by faze", "unknown"  # sources of pixels; unknown: we cannot license them


@dataclass(frozen=True, eq=False)
class StoredPerson:
    """One person in a store."""

    name: str
    split: str
    labels: NDArray[np.float32]  # (N, 4) rad: pitch and yaw of the gaze, then of the head
    size: tuple[int, int]  # H, W of the strips, px
    offset: int | None = None  # of the first strip, bytes from the start of the file; None: chunked or compressed
    digest: str = ""  # identifies the person's data under any name: a hash of the labels and the first strip


@dataclass(frozen=True, eq=False)
class StripStore:
    """The content of a store, without the pixels."""

    path: Path
    dataset: str
    pixel_source: str
    people: list[StoredPerson]  # sorted by name

    def of_split(self, split: str) -> list[StoredPerson]:
        """Return the people in a split."""
        return [person for person in self.people if person.split == split]

    def digest(self, *splits: str) -> str:
        """Return 16 hex digits that identify the people in some splits and their data."""
        known = [(each.name, each.split, each.size, each.digest) for each in self.people if each.split in splits]
        return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def read_store(path: Path, fold: Fold | None = None, default_split: str = "train") -> StripStore:
    """Read the content of a store, ours or the released code's.

    Args:
        path: the store.
        fold: assigns the splits instead of the store: people are in the folds in turn, sorted by name.
        default_split: split of people without one, as in the released code's stores.

    Raises:
        UserError: the file, or a person, cannot be read.
    """
    people = []
    with reading(path), h5py.File(path, locking=False) as file:
        for name in sorted(file):
            with reading(f"{path}: person {name}", "write this person's pixels and labels again"):
                people.append(_read_person(name, file[name], default_split))
        about = text(file.attrs, "dataset", path.stem), text(file.attrs, "pixel_source", UNKNOWN_SOURCE)
    if fold and len(people) < fold.folds:
        raise UserError(f"{path}: {len(people)} people cannot be in {fold.folds} folds: lower `folds`")
    if fold:
        splits = {fold.number: "test", (fold.number + 1) % fold.folds: "val"}
        people = [replace(person, split=splits.get(i % fold.folds, "train")) for i, person in enumerate(people)]
    return StripStore(path.absolute(), *about, people)


def _read_person(name: str, group: h5py.Group, default_split: str) -> StoredPerson:
    pixels, labels = group["pixels"], group["labels"][:].astype(np.float32)
    if pixels.dtype != np.uint8 or pixels.shape[3:] != (3,) or labels.shape != (len(pixels), 4):
        raise ValueError(f"pixels {pixels.dtype} {pixels.shape}, labels {labels.shape}, not uint8 (N, H, W, 3), (N, 4)")
    digest = hashlib.sha256(labels.tobytes() + pixels[:1].tobytes()).hexdigest()[:16]
    split = text(group.attrs, "split", default_split)
    return StoredPerson(name, split, labels, pixels.shape[1:3], pixels.id.get_offset(), digest)


@dataclass(frozen=True, eq=False)
class FileStrips:
    """Strips at known positions in a file."""

    path: Path
    offsets: NDArray[np.int64]  # (N,) bytes from the start of the file
    size: tuple[int, int]  # H, W

    def read(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Read the strips (n, H, W, 3) at these indices, in any order."""
        strips = np.empty((len(indices), *self.size, 3), np.uint8)
        with self.path.open("rb", buffering=0) as file:
            for strip, offset in zip(strips, self.offsets[indices].tolist(), strict=True):
                os.preadv(file.fileno(), [strip], offset)
        return strips


def text(attributes: h5py.AttributeManager, name: str, default: str) -> str:
    """Read an attribute that is str in one writer's files and bytes in another's."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)
