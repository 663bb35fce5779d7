"""Rows of strips by their places among everyone's, from memory or from the file, straight into the batch.

A store keeps a person's strips in one uncompressed piece: a row is then read by its position in the file, without HDF5,
by several threads. The rows of other files come through `StripStore.pixels`, one by one.

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
from faze.data.network_input import shrink
from faze.data.reused_memory import Buffers, spread
from faze.data.store.strips import StripStore


class Rows(Protocol):
    """Where rows come from."""

    def read(self, places: NDArray[np.int64], out: Tensor) -> None:
        """Fill out (n, H, W, 3) uint8 with the rows at these places."""


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of one array in memory."""

    table: NDArray[np.uint8]  # (N, H, W, 3)

    def read(self, places: NDArray[np.int64], out: Tensor) -> None:
        """Fill out with the rows at these places."""
        gather(torch.from_numpy(self.table), torch.from_numpy(places), out)


def gather(table: Tensor, places: Tensor, out: Tensor) -> None:
    """Fill out (n, ...) with the rows of table (N, ...) at these places; both uint8 on the host, in one piece."""
    rows, filled = table.flatten(1), out.flatten(1)
    if rows.shape[1] % 8 == 0:  # torch copies words 1.5 times as fast as bytes
        rows, filled = rows.view(torch.int64), filled.view(torch.int64)
    torch.index_select(rows, 0, places, out=filled)


@dataclass(frozen=True, eq=False)
class SingleRows:
    """Rows of people, each read by itself."""

    people: Sequence  # per person what gives a row (H, W, 3) for a position
    counts: Sequence[int]

    def read(self, places: NDArray[np.int64], out: Tensor) -> None:
        """Fill out with the rows at these places."""
        first = np.cumsum([0, *self.counts])
        person = np.searchsorted(first, places, side="right") - 1
        rows = out.numpy()
        for row, (who, entry) in enumerate(zip(person, places - first[person], strict=True)):
            rows[row] = self.people[who][entry]


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows at known positions of a file, shrunk to (height, width)."""

    path: Path
    offsets: NDArray[np.int64]  # (N,) bytes
    shape: tuple[int, int, int]  # of a stored row
    _scratch: Buffers = field(default_factory=Buffers)
    _opened: dict[int, int] = field(default_factory=dict)  # process -> file descriptor

    def read(self, places: NDArray[np.int64], out: Tensor) -> None:
        """Fill out with the rows at these places.

        Raises:
            UserError: the file ends early.
        """
        if tuple(out.shape[1:]) == self.shape:
            self._read(places, out.numpy())
            return
        stored = self._scratch.take((len(places), *self.shape), np.uint8)
        self._read(places, stored.numpy())
        out.copy_(shrink(stored, *out.shape[1:3]))

    def _read(self, places: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
        descriptor, size, offsets = self._descriptor(), int(np.prod(self.shape)), self.offsets[places].tolist()
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

    def _descriptor(self) -> int:
        if os.getpid() not in self._opened:
            self._opened[os.getpid()] = os.open(self.path, os.O_RDONLY)
        return self._opened[os.getpid()]

    def __reduce__(self) -> tuple:
        return FileRows, (self.path, self.offsets, self.shape)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._opened.pop(os.getpid(), -1))


def file_rows(strips: StripStore, path: Path, persons: Sequence[str]) -> FileRows | None:
    """Rows of these people in this order; None where the file has not got all of them in plain pieces of one shape."""
    pieces = [strips.location(person) for person in persons]
    shapes = {strips.pixels(person, slice(0, 0)).shape[1:] for person in persons}
    if len(shapes) != 1 or None in pieces:
        return None
    offsets = [
        offset + size * np.arange(strips.count(person), dtype=np.int64)
        for person, (offset, size) in zip(persons, pieces, strict=True)
    ]
    return FileRows(path.absolute(), np.concatenate(offsets), shapes.pop())
