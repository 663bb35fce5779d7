"""Stored strips by index: from memory, or from the file when they are needed.

A store keeps a person's strips in one uncompressed piece, so that a row can be read at its position in the file,
without HDF5, by several threads. Rows of other files are read through `StripStore.pixels`.

Shapes: n of N rows, each H x W pixels, RGB. An index is a row's number among those of all people.
"""

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.errors import UserError
from faze.data.store.strips import StripStore
from faze.data.thread_pool import spread


class Rows(Protocol):
    """Source of rows."""

    def gather(self, indices: Tensor) -> Tensor:
        """Return the rows at these indices, (n,) int64 -> (n, H, W, 3) uint8 in new memory."""


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of one tensor, in memory or on a device."""

    table: Tensor  # (N, H, W, 3) uint8

    def gather(self, indices: Tensor) -> Tensor:
        """Return the rows at these indices, which are on the table's device."""
        rows = self.table.flatten(1)
        if rows.shape[1] % 8 == 0:  # torch copies 8-byte words 1.5 times as fast as bytes
            rows = rows.view(torch.int64)
        return rows.index_select(0, indices).view(torch.uint8).unflatten(1, self.table.shape[1:])


@dataclass(frozen=True, eq=False)
class StoreRows:
    """Rows that are read through HDF5; consecutive rows of a person together, since a chunk contains several."""

    strips: StripStore
    persons: Sequence[str]
    first: NDArray[np.int64]  # index of each person's first row

    def gather(self, indices: Tensor) -> Tensor:
        """Read the rows at these indices."""
        wanted = indices.numpy()
        person = np.searchsorted(self.first, wanted, side="right") - 1
        ends = np.flatnonzero((np.diff(wanted) != 1) | (np.diff(person) != 0)) + 1
        runs = zip(np.split(person, ends), np.split(wanted - self.first[person], ends), strict=True)
        return torch.from_numpy(
            np.concatenate([self.strips.pixels(self.persons[of[0]], slice(row[0], row[-1] + 1)) for of, row in runs])
        )


class FileRows:
    """Rows at known positions of a file."""

    def __init__(self, path: Path, offsets: NDArray[np.int64], shape: tuple[int, int, int]) -> None:
        """Args: path: the file. offsets: (N,) position of each row, bytes. shape: (H, W, 3)."""
        self.path, self.offsets, self.shape = path, offsets, shape
        self._descriptor = os.open(path, os.O_RDONLY)  # reads are positional, so forked processes can share it
        weakref.finalize(self, os.close, self._descriptor)

    def __reduce__(self) -> tuple:
        return FileRows, (self.path, self.offsets, self.shape)

    def gather(self, indices: Tensor) -> Tensor:
        """Read the rows at these indices.

        Raises:
            UserError: the file is shorter than when it was opened.
        """
        rows = np.empty((len(indices), *self.shape), np.uint8)
        size, offsets = int(np.prod(self.shape)), self.offsets[indices.numpy()].tolist()
        flat = memoryview(rows.reshape(-1))

        def fill(row: int, flags: int) -> int:
            return os.preadv(self._descriptor, [flat[row * size : (row + 1) * size]], offsets[row], flags)

        def part(first: int, stop: int) -> None:
            missing = []
            for row in range(first, stop):
                try:
                    found = fill(row, os.RWF_NOWAIT)  # from the page cache
                except OSError:  # not cached, or the file system cannot tell
                    found = 0
                if found != size:  # request all missing rows first, so that the disk chooses the order
                    os.posix_fadvise(self._descriptor, offsets[row], size, os.POSIX_FADV_WILLNEED)
                    missing.append(row)
            for row in missing:
                if fill(row, 0) != size:
                    raise UserError(f"{self.path}: the file is truncated within its strips; write or download it again")

        spread(part, len(indices), torch.get_num_threads())
        return torch.from_numpy(rows)


def stored_rows(strips: StripStore, path: Path, persons: Sequence[str]) -> Rows:
    """Return the rows of some people: by position if the file stores them uncompressed, else through HDF5.

    Raises:
        UserError: their strips have several sizes.
    """
    pieces = [strips.location(person) for person in persons]
    sizes = {strips.size(person): person for person in persons}
    if len(sizes) > 1:
        examples = ", ".join("{} x {} of person {}".format(*size, who) for size, who in list(sizes.items())[:3])
        raise UserError(f"{path}: strips have several sizes, {examples}; run preprocess again")
    if None in pieces:
        return StoreRows(strips, persons, np.cumsum([0, *map(strips.count, persons)])[:-1])
    offsets = [
        offset + size * np.arange(strips.count(person), dtype=np.int64)
        for person, (offset, size) in zip(persons, pieces, strict=True)
    ]
    return FileRows(path.absolute(), np.concatenate(offsets), (*next(iter(sizes)), 3))
