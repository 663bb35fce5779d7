"""Pairs of strips of one person, in an order that depends on (seed, pair number) alone.

Neither the number of processes, nor of loader workers, nor a resumed run changes which pairs make up a step.
"""

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
        """Give (person, entry a, entry b) of the pairs numbered start..stop, each (n,)."""
        entries, parts, start = len(self._person), [], pair.start
        while start < pair.stop:
            epoch, first = divmod(start, entries)
            last = min(entries, first + pair.stop - start)
            parts.append(tuple(column[first:last].copy() for column in self._of(epoch)))  # callers may write
            start += last - first
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(column) for column in zip(*parts, strict=True))

    def _of(self, epoch: int) -> Pairs:
        """Draw all pairs of an epoch."""
        if self._epoch is None or self._epoch[0] != epoch:
            random = np.random.default_rng([self._seed, epoch])
            order, draw = random.permutation(len(self._person)), random.random(len(self._person))
            person, a = self._person[order], self._entry[order]
            b = np.floor(draw * (self._counts[person] - 1)).astype(np.int64)
            self._epoch = (epoch, (person, a, b + (b >= a)))  # skip a itself
        return self._epoch[1]


@dataclass(frozen=True)
class PeopleStrips:
    """Strips and labels of some people, one person after the other, at the model's image size.

    A strip's place is its number among all these people's strips.
    """

    names: list[str]
    labels: list[NDArray]  # per person (N, 4) float32 radians
    rows: Rows  # stored strips by place
    size: tuple[int, int]  # height and width that they are shrunk to

    @property
    def counts(self) -> list[int]:
        """Entries per person."""
        return [len(labels) for labels in self.labels]

    @property
    def nbytes(self) -> int:
        """Bytes of all strips."""
        return sum(self.counts) * 3 * self.size[0] * self.size[1]

    @property
    def held(self) -> bool:
        """Whether all strips lie in one table, in memory or on a device."""
        return isinstance(self.rows, TableRows)

    def read(self, places: Tensor) -> Tensor:
        """Read the strips at these places, (n, height, width, 3) uint8."""
        return shrink(self.rows.read(places), *self.size)

    def places(self) -> tuple[Tensor, ...]:
        """Give the places of each person's strips."""
        return torch.arange(sum(self.counts)).split(self.counts)


def load_people(path: Path, split: str, size: tuple[int, int], *, min_entries: int) -> tuple[PeopleStrips, list[str]]:
    """Find the people of a split who have enough entries, and name those left out; strips are read when needed.

    Args:
        path: store of normalised strips.
        split: train, val or test.
        size: height and width that the strips are shrunk to.
        min_entries: fewest of a person.

    Raises:
        UserError: nobody is left, or somebody's strips cannot be shrunk to the size.
    """
    strips = StripStore(path)
    everyone = strips.persons(split)
    if not everyone:
        raise UserError(
            f"{path}: holds no person of split {split!r}; give some people that split where the store is made "
            "(preprocess.gazecapture_split, or synthetic.gazecapture_val_people of synthetic data)"
        )
    names = [name for name in everyone if strips.count(name) >= min_entries]
    left_out = [name for name in everyone if name not in names]
    if not names:
        raise UserError(
            f"{path}: no person of split {split!r} has {min_entries} entries (data.min_entries); "
            f"{len(left_out)} have fewer"
        )
    for name in names:  # now, not in a process that reads ahead
        shrink_factor(strips.size(name), size)
    rows = stored_rows(strips, path, names)
    return PeopleStrips(names, [strips.labels(name) for name in names], rows, size), left_out


def hold(people: PeopleStrips, device: torch.device = HOST) -> PeopleStrips:
    """Put all strips of these people into one table, in memory or on a device."""
    if people.held:
        return replace(people, rows=TableRows(people.rows.table.to(device)))
    table = torch.empty(sum(people.counts), *people.size, 3, dtype=torch.uint8, device=device)
    for places in people.places():
        table[places[0] : places[-1] + 1] = people.read(places)
    return replace(people, rows=TableRows(table))


def hold_what_fits(groups: Sequence[PeopleStrips], memory_gib: float) -> list[PeopleStrips]:
    """Hold each of these groups in memory, in order, if it fits into what those before it have left."""
    left, found = memory_gib * 2**30, []
    for people in groups:
        fits = people.nbytes <= left
        left -= fits * people.nbytes
        found.append(hold(people) if fits else people)
    return found


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
        self._places, self._people = PairPlaces(people.counts, share), people
        self._labels = torch.from_numpy(np.concatenate(people.labels))

    def __getitem__(self, step: int) -> Batch:
        """Strips uint8 (B, height, width, 3), labels float32 (B, 2) radians, person int64 (B,)."""
        return gather_pairs(self._places[step], self._people, self._labels)


def gather_pairs(places: Batch, people: PeopleStrips, labels: Tensor) -> Batch:
    """Replace the places of pairs by what lies there.

    Args:
        places: of PairPlaces, and whatever else belongs to the pairs.
        people: whose strips.
        labels: all theirs, (N, 4).
    """
    both = torch.cat([places["place_a"], places["place_b"]])
    strips, labels = people.read(both), labels.index_select(0, both)
    batch = {name: value for name, value in places.items() if not name.startswith("place_")}
    pairs = len(places["person"])
    for member, rows in (("a", slice(None, pairs)), ("b", slice(pairs, None))):
        batch[f"image_{member}"] = strips[rows]
        batch[f"gaze_{member}"], batch[f"head_{member}"] = labels[rows, :2], labels[rows, 2:]
    return batch
