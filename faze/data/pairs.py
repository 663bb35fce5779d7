"""Pairs of one person's strips, in an order that depends only on seed and pair number, and access to their rows.

Which pairs make up a step does not depend on the number of processes or loader workers, or on whether a run was
resumed. A store contains a person's strips in one uncompressed block, so that several threads can read rows at their
positions in the file, without HDF5.

Shapes: B pairs; n of N strips, each H x W pixels at the network's size, RGB. An index is a strip's position among the
strips of all people, concatenated person by person.
"""

import contextlib
import functools
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from faze.base.errors import UserError
from faze.base.machine import memory_bytes
from faze.config.parameters import Fold
from faze.data.network_input import shrink, shrink_factor, spread
from faze.data.store.strips import StripStore

MOST_CACHED = 0.5  # share of the memory of the machine or container


class Rows(Protocol):
    """A source of rows."""

    def gather(self, indices: Tensor) -> Tensor:
        """Return the rows at these indices, (n,) int64 -> (n, H, W, 3) uint8, in new memory."""


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


class FileRows:
    """Rows at known positions in a file."""

    def __init__(self, path: Path, offsets: NDArray[np.int64], shape: tuple[int, int, int]) -> None:
        """Open a file, given the (N,) byte offsets of its rows, which have the shape (H, W, 3)."""
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
                    with contextlib.suppress(OSError):  # only advice
                        os.posix_fadvise(self._descriptor, offsets[row], size, os.POSIX_FADV_WILLNEED)
                    missing.append(row)
            for row in missing:
                if fill(row, 0) != size:
                    raise UserError(f"{self.path}: the file is truncated within its strips; write or download it again")

        spread(part, len(indices), torch.get_num_threads())
        return torch.from_numpy(rows)


def stored_rows(strips: StripStore, path: Path, persons: Sequence[str]) -> FileRows:
    """Return the rows of some people.

    Raises:
        UserError: their strips differ in size, or are compressed or in chunks.
    """
    pieces = [strips.location(person) for person in persons]
    sizes = {strips.size(person): person for person in persons}
    if len(sizes) > 1:
        examples = ", ".join("{} x {} of person {}".format(*size, who) for size, who in list(sizes.items())[:3])
        raise UserError(f"{path}: strips have several sizes, {examples}; run preprocess again")
    offsets = [
        offset + size * np.arange(strips.count(person), dtype=np.int64)
        for person, (offset, size) in zip(persons, pieces, strict=True)
    ]
    return FileRows(path.absolute(), np.concatenate(offsets), (*next(iter(sizes)), 3))


Batch = dict[str, Tensor]
HOST = torch.device("cpu")


@dataclass(frozen=True)
class BatchShare:
    """A process's contiguous share of every global batch."""

    seed: int
    global_batch: int
    rank: int = 0
    processes: int = 1

    @property
    def rows(self) -> slice:
        """Positions of the share's pairs in the global batch."""
        size = self.global_batch // self.processes
        return slice(self.rank * size, (self.rank + 1) * size)


class PairIndices(Dataset):
    """Item `step` contains a process's pairs for that step: `person`, `index_a` and `index_b`, each (B,) int64.

    In an epoch, every entry is member a once, in random order; member b is drawn uniformly from the person's other
    entries.
    """

    def __init__(self, counts: Sequence[int], share: BatchShare) -> None:
        """Prepare this process's share of the pairs, given the number of entries per person, each at least 2."""
        self._counts, self._share = np.asarray(counts), share
        self._first = np.cumsum([0, *counts])
        self._person = np.repeat(np.arange(len(counts)), counts)
        self._epoch: tuple[int, NDArray] | None = None

    def __getitem__(self, step: int) -> Batch:
        """Return the pairs of a step."""
        entries, parts = len(self._person), []
        first = step * self._share.global_batch
        start, stop = first + self._share.rows.start, first + self._share.rows.stop
        while start < stop:
            epoch, row = divmod(start, entries)
            parts.append(self._pairs(epoch)[:, row : row + stop - start])
            start += parts[-1].shape[1]
        return dict(zip(("person", "index_a", "index_b"), torch.from_numpy(np.concatenate(parts, axis=1)), strict=True))

    def _pairs(self, epoch: int) -> NDArray[np.int64]:
        """Draw all pairs of an epoch, (3, N): person, a, b."""
        if self._epoch is None or self._epoch[0] != epoch:
            random = np.random.default_rng([self._share.seed, epoch])
            a, draw = random.permutation(len(self._person)), random.random(len(self._person))
            person = self._person[a]
            b = self._first[person] + np.floor(draw * (self._counts[person] - 1)).astype(np.int64)
            self._epoch = (epoch, np.stack([person, a, b + (b >= a)]))  # skip a itself
        return self._epoch[1]


@dataclass(frozen=True)
class PeopleStrips:
    """Strips and labels of some people, one person after the other, at the network's size."""

    names: list[str]
    labels: list[NDArray]  # of each person, (entries, 4) float32 rad: pitch and yaw of gaze, then of the head
    rows: Rows  # stored strips
    size: tuple[int, int]  # H, W

    @property
    def counts(self) -> list[int]:
        """Entries per person."""
        return [len(labels) for labels in self.labels]

    @property
    def nbytes(self) -> int:
        """Total size of all strips, in bytes."""
        return sum(self.counts) * 3 * self.size[0] * self.size[1]

    @property
    def cached(self) -> bool:
        """Whether all strips are in one tensor, in memory or on a device."""
        return isinstance(self.rows, TableRows)

    def gather(self, indices: Tensor) -> Tensor:
        """Return the strips at these indices, (n,) int64 -> (n, H, W, 3) uint8."""
        return shrink(self.rows.gather(indices), *self.size)

    def person_indices(self) -> tuple[Tensor, ...]:
        """Return the indices of each person's strips."""
        return torch.arange(sum(self.counts)).split(self.counts)

    @functools.cached_property
    def _label_table(self) -> Tensor:
        """Labels of all strips, (N, 4), on the device of the strips."""
        return torch.from_numpy(np.concatenate(self.labels)).to(self.rows.table.device if self.cached else HOST)

    def gather_pairs(self, batch: Batch) -> Batch:
        """Replace the indices in a batch with strips and labels.

        Args:
            batch: an item of PairIndices, on the device of the strips; other tensors are passed through.

        Returns:
            `image_a`, `image_b` (B, H, W, 3) uint8; `gaze_a`, `gaze_b`, `head_a`, `head_b` (B, 2) float32 rad; `person`
            (B,) int64.
        """
        both = torch.cat([batch["index_a"], batch["index_b"]])
        strips, labels = self.gather(both), self._label_table.index_select(0, both)
        found = {name: value for name, value in batch.items() if not name.startswith("index_")}
        for member, image, label in zip("ab", strips.chunk(2), labels.chunk(2), strict=True):
            found |= {f"image_{member}": image, f"gaze_{member}": label[:, :2], f"head_{member}": label[:, 2:]}
        return found


def load_people(
    path: Path, split: str, size: tuple[int, int], *, min_entries: int, fold: Fold | None = None
) -> tuple[PeopleStrips, list[str]]:
    """Return the people of a split with enough entries, and the names of the others; strips are read when needed.

    Args:
        path: store of normalised strips.
        split: train, val or test.
        size: height and width to which strips are shrunk, px.
        min_entries: smallest number of entries that a person must have.
        fold: determines the splits instead of the store.

    Raises:
        UserError: no person has enough entries, or strips cannot be shrunk to the size.
    """
    strips = StripStore(path, fold=fold)
    everyone = strips.persons(split)
    if not everyone:
        raise UserError(
            f"{path}: has no person in split {split!r}: assign people to it (`splits` of this data set under "
            "preprocess.datasets, or synthetic.gazecapture_val_people for rendered people)"
        )
    names = [name for name in everyone if strips.count(name) >= min_entries]
    left_out = [name for name in everyone if name not in names]
    if not names:
        raise UserError(
            f"{path}: no person in split {split!r} has {min_entries} entries (data.min_entries); {len(left_out)} "
            "people have fewer"
        )
    for name in names:  # now, not in a loader process
        shrink_factor(strips.size(name), size)
    rows = stored_rows(strips, path, names)
    return PeopleStrips(names, [strips.labels(name) for name in names], rows, size), left_out


def cache(people: PeopleStrips, device: torch.device = HOST) -> PeopleStrips:
    """Put all strips of these people into one tensor, in memory or on a device."""
    if people.cached:
        return replace(people, rows=TableRows(people.rows.table.to(device)))
    table = torch.empty(sum(people.counts), *people.size, 3, dtype=torch.uint8, device=device)
    for indices in people.person_indices():
        table[indices[0] : indices[-1] + 1] = people.gather(indices)
    return replace(people, rows=TableRows(table))


def cache_what_fits(groups: Sequence[PeopleStrips], memory_gib: float, processes: int = 1) -> list[PeopleStrips]:
    """Cache these groups in memory, in order, each only if it fits into the remaining memory.

    Args:
        groups: the groups.
        memory_gib: memory for the caches of all processes; they use at most MOST_CACHED of what there is.
        processes: number of processes that cache the same.
    """
    left, found = min(memory_gib * 2**30, MOST_CACHED * memory_bytes()) / processes, []
    for people in groups:
        fits = people.nbytes <= left
        left -= fits * people.nbytes
        found.append(cache(people) if fits else people)
    return found
