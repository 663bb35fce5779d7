"""Strips of a group of people, in a file or in memory, and random pairs that depend only on the seed and the step.

Shapes: B pairs; n of N strips, each H x W RGB pixels at the network's size. Indices run over the strips of all people.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.errors import UserError
from faze.base.machine import memory_bytes
from faze.data.network_input import shrink
from faze.data.strips import FileStrips, StoredPerson, StripStore

MOST_CACHED = 0.5  # maximum share of the memory of the machine or container
Batch = dict[str, Tensor]


class PairIndices:
    """Random pairs of strips: item `step` has `person`, `index_a` and `index_b` for all processes, each (B,) int64.

    In an epoch, every strip appears once as member a, in random order. Member b is drawn uniformly from the same
    person's other strips, of which there must be at least one.
    """

    def __init__(self, counts: Sequence[int], seed: int, global_batch: int) -> None:
        self.seed, self.global_batch = seed, global_batch
        self._counts = np.asarray(counts)
        self._first = np.cumsum([0, *counts])
        self._person = np.repeat(np.arange(len(counts)), counts)
        self._drawn: tuple[int, NDArray] | None = None  # epoch and its pairs

    def __getitem__(self, step: int) -> Batch:
        numbers = step * self.global_batch + np.arange(self.global_batch)
        epochs, rows = np.divmod(numbers, len(self._person))
        pairs = [self._pairs(epoch)[:, rows[epochs == epoch]] for epoch in range(epochs[0], epochs[-1] + 1)]
        return dict(zip(("person", "index_a", "index_b"), torch.from_numpy(np.concatenate(pairs, axis=1)), strict=True))

    def _pairs(self, epoch: int) -> NDArray[np.int64]:
        """Return all pairs of an epoch (3, N); the rows are person, a and b."""
        if self._drawn is None or self._drawn[0] != epoch:
            random = np.random.default_rng([self.seed, epoch])
            a, draw = random.permutation(len(self._person)), random.random(len(self._person))
            person = self._person[a]
            b = self._first[person] + np.floor(draw * (self._counts[person] - 1)).astype(np.int64)
            self._drawn = (epoch, np.stack([person, a, b + (b >= a)]))  # skip a itself
        return self._drawn[1]


@dataclass(frozen=True, eq=False)
class People:
    """The strips (at the network's size) and labels of a group of people, one person after another."""

    persons: list[StoredPerson]
    labels: Tensor  # (N, 4) float32 rad, on the device of the strips
    strips: FileStrips | Tensor  # in a file, or all (N, H, W, 3) uint8 in memory or on a device
    size: tuple[int, int]  # H, W

    @property
    def counts(self) -> list[int]:
        """Number of strips of each person."""
        return [len(person.labels) for person in self.persons]

    @property
    def nbytes(self) -> int:
        """Total size of all strips, in bytes."""
        return len(self.labels) * 3 * self.size[0] * self.size[1]

    @property
    def cached(self) -> bool:
        """Whether all strips are in one tensor, in memory or on a device."""
        return isinstance(self.strips, Tensor)

    def gather(self, indices: Tensor) -> Tensor:
        """Return a copy of the strips (n, H, W, 3), uint8, at the given indices (n,), int64."""
        if self.cached:
            words = self.strips.flatten(1).view(torch.int64)  # torch copies words faster than bytes
            return words.index_select(0, indices).view(torch.uint8).unflatten(1, self.strips.shape[1:])
        return shrink(torch.from_numpy(self.strips.read(indices.numpy())), *self.size)

    def person_indices(self) -> tuple[Tensor, ...]:
        """Return the indices of each person's strips."""
        return torch.arange(len(self.labels)).split(self.counts)

    def gather_pairs(self, batch: Batch) -> Batch:
        """Replace the indices in a batch from PairIndices with strips and labels, all on the strips' device.

        The added items are `image_a`, `image_b` (B, H, W, 3) uint8; `gaze_a`, `gaze_b`, `head_a`, `head_b` (B, 2) rad.
        """
        both = torch.cat([batch["index_a"], batch["index_b"]])
        strips, labels = self.gather(both), self.labels.index_select(0, both)
        found = {name: value for name, value in batch.items() if not name.startswith("index_")}
        for member, image, label in zip("ab", strips.chunk(2), labels.chunk(2), strict=True):
            found |= {f"image_{member}": image, f"gaze_{member}": label[:, :2], f"head_{member}": label[:, 2:]}
        return found


def open_people(store: StripStore, size: tuple[int, int], *, split: str | None = None, min_entries: int = 1) -> People:
    """Return the people of a split, or of all splits, who have at least `min_entries` strips.

    Strips are read when needed and shrunk to `size`. Raise a UserError if there are no such people.
    """
    people = [person for person in store.people if split in (None, person.split) and len(person.labels) >= min_entries]
    if not people:
        raise UserError(
            f"{store.path}: no person in the split {split or 'train, val or test'} has {min_entries} or more strips: "
            "lower data.min_entries, or assign people to the split (`splits` of a data set under preprocess.datasets, "
            "or synthetic.phone_val_people for rendered people)"
        )
    strip_bytes = 3 * store.size[0] * store.size[1]
    offsets = [person.offset + strip_bytes * np.arange(len(person.labels)) for person in people]
    labels = torch.from_numpy(np.concatenate([person.labels for person in people]))
    return People(people, labels, FileStrips(store.path, np.concatenate(offsets), store.size), size)


def cache(people: People, device: torch.device | str = "cpu") -> People:
    """Load all strips of these people into one tensor, in memory or on a device."""
    strips = people.strips
    if not people.cached:
        strips = torch.empty(len(people.labels), *people.size, 3, dtype=torch.uint8, device=device)
        for indices in people.person_indices():
            strips[indices] = people.gather(indices).to(device)
    return replace(people, labels=people.labels.to(device), strips=strips.to(device))


def cache_what_fits(groups: Sequence[People], memory_gib: float, processes: int = 1) -> list[People]:
    """Cache the groups in order, skipping any that does not fit into the rest of this process's share of memory."""
    left, found = min(memory_gib * 2**30, MOST_CACHED * memory_bytes()) / processes, list(groups)
    for number, people in enumerate(groups):
        if people.nbytes <= left:
            left -= people.nbytes
            found[number] = cache(people)
    return found
