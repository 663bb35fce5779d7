"""Stored strips by their places among everyone's: from memory, or from the file when they are needed.

A store keeps a person's strips in one uncompressed piece: a row is then read by its position in the file, without HDF5,
by several threads. The rows of other files come through `StripStore.pixels`.

Shapes: n rows of H x W pixels, RGB.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
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
    """Where rows come from."""

    def read(self, places: Tensor) -> Tensor:
        """Read the rows at these places, (n, H, W, 3) uint8 in memory of their own."""


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of one tensor, in memory or on a device."""

    table: Tensor  # (N, H, W, 3) uint8

    def read(self, places: Tensor) -> Tensor:
        """Read the rows at these places, on the same device as they."""
        rows = self.table.flatten(1)
        if rows.shape[1] % 8 == 0:  # torch copies words 1.5 times as fast as bytes
            rows = rows.view(torch.int64)
        return rows.index_select(0, places).view(torch.uint8).unflatten(1, self.table.shape[1:])


@dataclass(frozen=True, eq=False)
class StoreRows:
    """Rows of some people, read through HDF5: neighbours of a person together, since a chunk holds several."""

    strips: StripStore
    persons: Sequence[str]
    first: NDArray[np.int64]  # place of each person's first row

    def read(self, places: Tensor) -> Tensor:
        """Read the rows at these places."""
        wanted = places.numpy()
        person = np.searchsorted(self.first, wanted, side="right") - 1
        ends = np.flatnonzero((np.diff(wanted) != 1) | (np.diff(person) != 0)) + 1
        runs = zip(np.split(person, ends), np.split(wanted - self.first[person], ends), strict=True)
        return torch.from_numpy(
            np.concatenate([self.strips.pixels(self.persons[of[0]], slice(row[0], row[-1] + 1)) for of, row in runs])
        )


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows at known positions of a file."""

    path: Path
    offsets: NDArray[np.int64]  # (N,) bytes
    shape: tuple[int, int, int]
    _opened: dict[int, int] = field(default_factory=dict)  # process -> file descriptor

    def read(self, places: Tensor) -> Tensor:
        """Read the rows at these places.

        Raises:
            UserError: the file ends early.
        """
        rows = np.empty((len(places), *self.shape), np.uint8)
        descriptor, size, offsets = self._descriptor(), int(np.prod(self.shape)), self.offsets[places.numpy()].tolist()
        flat = memoryview(rows.reshape(-1))

        def fill(row: int, flags: int) -> int:
            return os.preadv(descriptor, [flat[row * size : (row + 1) * size]], offsets[row], flags)

        def part(first: int, stop: int) -> None:
            missing = []
            for row in range(first, stop):
                try:
                    found = fill(row, os.RWF_NOWAIT)  # what lies in the page cache
                except OSError:  # none of it, or a file system that cannot say
                    found = 0
                if found != size:  # let the disk fetch all that is missing at once, in its own order
                    os.posix_fadvise(descriptor, offsets[row], size, os.POSIX_FADV_WILLNEED)
                    missing.append(row)
            for row in missing:
                if fill(row, 0) != size:
                    raise UserError(f"{self.path}: ends within its strips, write or fetch it again")

        spread(part, len(places), torch.get_num_threads())
        return torch.from_numpy(rows)

    def _descriptor(self) -> int:
        if os.getpid() not in self._opened:
            self._opened[os.getpid()] = os.open(self.path, os.O_RDONLY)
        return self._opened[os.getpid()]

    def __reduce__(self) -> tuple:
        return FileRows, (self.path, self.offsets, self.shape)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._opened.pop(os.getpid(), -1))


def stored_rows(strips: StripStore, path: Path, persons: Sequence[str]) -> Rows:
    """Choose how to read these people's rows: by position, if the file has them in plain pieces.

    Raises:
        UserError: their strips are of several sizes.
    """
    pieces = [strips.location(person) for person in persons]
    sizes = {strips.size(person): person for person in persons}
    if len(sizes) > 1:
        told = ", ".join("{} x {} of person {}".format(*size, who) for size, who in list(sizes.items())[:3])
        raise UserError(f"{path}: strips are of several sizes, {told}: preprocess again")
    if None in pieces:
        return StoreRows(strips, persons, np.cumsum([0, *map(strips.count, persons)])[:-1])
    offsets = [
        offset + size * np.arange(strips.count(person), dtype=np.int64)
        for person, (offset, size) in zip(persons, pieces, strict=True)
    ]
    return FileRows(path.absolute(), np.concatenate(offsets), (*next(iter(sizes)), 3))
