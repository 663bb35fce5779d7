"""Pairs of strips of one person, in an order that depends on (seed, pair number) alone.

Neither the number of processes nor that of loader workers nor a resumed run changes which pairs make up a step.

Shapes: B pairs; n of N strips, each H x W pixels at the network's size, RGB. An index is a strip's number among the
strips of all people, one person after the other.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from faze.base.errors import UserError
from faze.data.network_input import shrink, shrink_factor
from faze.data.row_sources import Rows, TableRows, stored_rows
from faze.data.store.strips import StripStore

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
        """The share's pairs among those of the global batch."""
        size = self.global_batch // self.processes
        return slice(self.rank * size, (self.rank + 1) * size)


class PairIndices(Dataset):
    """Item `step` is a process's pairs of that step: `person`, `index_a` and `index_b`, each (B,) int64.

    In an epoch, every entry is member a once, in random order; b is another entry of the same person, uniformly drawn.
    """

    def __init__(self, counts: Sequence[int], share: BatchShare) -> None:
        """Args: counts: entries per person, each at least 2. share: the pairs of this process, and the seed."""
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
        """Bytes of all strips."""
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
        """Replace the indices in a batch by strips and labels.

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


def load_people(path: Path, split: str, size: tuple[int, int], *, min_entries: int) -> tuple[PeopleStrips, list[str]]:
    """Return the people of a split with enough entries, and the names of the others; strips are read when needed.

    Args:
        path: store of normalised strips.
        split: train, val or test.
        size: height and width to which strips are shrunk, px.
        min_entries: fewest entries of a person.

    Raises:
        UserError: no person is left, or strips cannot be shrunk to the size.
    """
    strips = StripStore(path)
    everyone = strips.persons(split)
    if not everyone:
        raise UserError(
            f"{path}: has no person of split {split!r}; assign people to it where the store is made "
            "(preprocess.gazecapture_split, or synthetic.gazecapture_val_people of synthetic data)"
        )
    names = [name for name in everyone if strips.count(name) >= min_entries]
    left_out = [name for name in everyone if name not in names]
    if not names:
        raise UserError(
            f"{path}: no person of split {split!r} has {min_entries} entries (data.min_entries); "
            f"{len(left_out)} have fewer"
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


def cache_what_fits(groups: Sequence[PeopleStrips], memory_gib: float) -> list[PeopleStrips]:
    """Cache each of these groups in memory, in order, if it fits into the memory that is left."""
    left, found = memory_gib * 2**30, []
    for people in groups:
        fits = people.nbytes <= left
        left -= fits * people.nbytes
        found.append(cache(people) if fits else people)
    return found
