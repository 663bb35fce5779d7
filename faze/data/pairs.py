"""Pairs of strips of one person, in an order that depends on (seed, pair number) alone.

Neither the number of processes, nor of loader workers, nor a resumed run changes which pairs make up a step.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from faze.base.errors import UserError
from faze.data.network_input import shrink
from faze.data.reused_memory import Buffers
from faze.data.row_sources import FileRows, Rows, SingleRows, TableRows, file_rows
from faze.data.store.strips import StripStore

Batch = dict[str, Tensor]
Pairs = tuple[NDArray, NDArray, NDArray]  # person, entry a, entry b


class PairOrder:
    """Every entry is once member a in an epoch, in random order; b is another entry of the same person, uniformly."""

    def __init__(self, counts: Sequence[int], seed: int) -> None:
        """Args: counts: entries per person, each at least 2. seed: of the order."""
        self._counts = np.asarray(counts)
        self._person = np.repeat(np.arange(len(counts)), counts)
        self._entry = np.concatenate([np.arange(count) for count in counts])
        self._seed = seed
        self._epoch: tuple[int, Pairs] | None = None

    def __getitem__(self, pair: slice) -> Pairs:
        """(person, entry a, entry b) of the pairs numbered start..stop, each (n,)."""
        entries, parts, start = len(self._person), [], pair.start
        while start < pair.stop:
            epoch, first = divmod(start, entries)
            last = min(entries, first + pair.stop - start)
            parts.append(tuple(column[first:last].copy() for column in self._of(epoch)))  # callers may write
            start += last - first
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(column) for column in zip(*parts, strict=True))

    def _of(self, epoch: int) -> Pairs:
        """All pairs of an epoch."""
        if self._epoch is None or self._epoch[0] != epoch:
            random = np.random.default_rng([self._seed, epoch])
            order, draw = random.permutation(len(self._person)), random.random(len(self._person))
            person, a = self._person[order], self._entry[order]
            b = np.floor(draw * (self._counts[person] - 1)).astype(np.int64)
            self._epoch = (epoch, (person, a, b + (b >= a)))  # skip a itself
        return self._epoch[1]


@dataclass(frozen=True)
class PeopleStrips:
    """Strips and labels of some people, at the model's image size.

    pixels: per person (N, height, width, 3) uint8; labels: per person (N, 4) float32 radians; table: everyone's pixels
    in one array of which `pixels` are parts, None where they are read when needed; file: whence, where by position.
    """

    names: list[str]
    pixels: list[NDArray] | list["StoredPixels"]
    labels: list[NDArray]
    table: NDArray | None = None
    file: FileRows | None = None

    @property
    def counts(self) -> list[int]:
        """Entries per person."""
        return [len(labels) for labels in self.labels]

    @property
    def size(self) -> int:
        """Bytes of all pixels."""
        return sum(self.counts) * self.pixels[0][0].size

    def rows(self) -> Rows:
        """Where everyone's strips come from, one person after the other."""
        if self.table is not None:
            return TableRows(self.table)
        return self.file or SingleRows(self.pixels, self.counts)

    def digest(self) -> str:
        """Identity of these people: 8 hex digits over names and labels."""
        digest = hashlib.sha256("\n".join(self.names).encode())
        for labels in self.labels:
            digest.update(labels.tobytes())
        return digest.hexdigest()[:8]


@dataclass(frozen=True)
class StoredPixels:
    """One person's strips, read from the file and shrunk each time; for people who do not fit in memory."""

    strips: StripStore
    person: str
    height: int
    width: int

    def __getitem__(self, index: int | slice) -> NDArray:
        """(height, width, 3) or (n, height, width, 3) uint8."""
        pixels = torch.from_numpy(self.strips.pixels(self.person, index))
        shrunk = shrink(pixels.reshape(-1, *pixels.shape[-3:]), self.height, self.width).numpy()
        return shrunk if isinstance(index, slice) else shrunk[0]


def load_people(
    path: Path, split: str, *, height: int, width: int, min_entries: int, memory_gib: float
) -> tuple[PeopleStrips, list[str]]:
    """Read the people of a split who have enough entries, and name those left out.

    Strips are kept in memory at the network's size where they fit into memory_gib, and read when needed otherwise.

    Raises:
        UserError: nobody is left.
    """
    strips = StripStore(path)
    names, left_out = [], []
    for name in strips.persons(split):
        (names if strips.count(name) >= min_entries else left_out).append(name)
    if not names:
        raise UserError(
            f"{path}: no person of split {split!r} has {min_entries} entries (data.min_entries); "
            f"{len(left_out)} have fewer"
        )
    pixels = [StoredPixels(strips, name, height, width) for name in names]
    labels = [strips.labels(name) for name in names]
    stored = PeopleStrips(names, pixels, labels, file=file_rows(strips, path, names))
    return hold(stored) if stored.size <= memory_gib * 2**30 else stored, left_out


def hold(people: PeopleStrips) -> PeopleStrips:
    """The same people with all their pixels in memory, in one array."""
    table = np.empty((sum(people.counts), *people.pixels[0][0].shape), np.uint8)
    parts = np.split(table, np.cumsum(people.counts)[:-1])
    for part, pixels in zip(parts, people.pixels, strict=True):
        part[:] = pixels[:]
    return PeopleStrips(people.names, parts, people.labels, table)


@dataclass(frozen=True)
class BatchShare:
    """A process's contiguous share of every global batch."""

    seed: int
    global_batch: int
    rank: int = 0
    processes: int = 1

    @property
    def rows(self) -> slice:
        """The share's pairs among those of the global batch."""
        size = self.global_batch // self.processes
        return slice(self.rank * size, (self.rank + 1) * size)


class PairPlaces(Dataset):
    """Item `step` holds the places of the pairs of that step in a table of everyone's entries, one after the other."""

    def __init__(self, counts: Sequence[int], share: BatchShare) -> None:
        """Args: counts: entries per person. share: the pairs of this process."""
        self._order, self._share = PairOrder(counts, share.seed), share
        self._first = np.cumsum([0, *counts])

    def __getitem__(self, step: int) -> Batch:
        """`person`, `place_a`, `place_b`: int64 (B,)."""
        first, rows = step * self._share.global_batch, self._share.rows
        person, a, b = self._order[first + rows.start : first + rows.stop]
        first = self._first[person]
        places = {"person": person, "place_a": first + a, "place_b": first + b}
        return {name: torch.from_numpy(place) for name, place in places.items()}


class PairBatches(Dataset):
    """Item `step` holds the strips and labels of the pairs of that step."""

    def __init__(self, people: PeopleStrips, share: BatchShare) -> None:
        """Args: people: whose pairs. share: those of this process."""
        self._places = PairPlaces(people.counts, share)
        self._rows, self._shape = people.rows(), people.pixels[0][0].shape
        self._labels = np.concatenate(people.labels)
        self._buffers = Buffers()

    def __getitem__(self, step: int) -> Batch:
        """Strips uint8 (B, height, width, 3), labels float32 (B, 2) radians, person int64 (B,)."""
        places = self._places[step]
        entries = np.concatenate([places["place_a"], places["place_b"]])
        strips = self._buffers.take((len(entries), *self._shape), np.uint8)
        self._rows.read(entries, strips)
        return in_pairs(places["person"], strips, torch.from_numpy(self._labels[entries]))


def in_pairs(person: Tensor, strips: Tensor, labels: Tensor) -> Batch:
    """Batch of pairs from person (B,), and strips (2 B, H, W, 3) and labels (2 B, 4) of all a, then all b."""
    batch: Batch = {"person": person}
    for member, rows in (("a", slice(None, len(person))), ("b", slice(len(person), None))):
        batch[f"image_{member}"] = strips[rows]
        batch[f"gaze_{member}"], batch[f"head_{member}"] = labels[rows, :2], labels[rows, 2:]
    return batch
