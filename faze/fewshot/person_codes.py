"""A person's codes, and the entries that are drawn from them for calibration."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import mean_angle_deg, vector_from_pitchyaw
from faze.config.parameters import Fewshot
from faze.data.codes import CodeStore
from faze.fewshot.mlp import ModelSamples, SampleSets


class Seen(NamedTuple):
    """Everything known about n entries except their labels."""

    code: NDArray[np.float32]  # (n, F) gaze code, flattened
    gaze_hat: NDArray[np.float64]  # (n, 3) of the trained gaze head
    head: NDArray[np.float64]  # (n, 2) annotated head pose, pitch and yaw in radians


@dataclass(frozen=True, eq=False)
class PersonCodes:
    """One person's N entries, in the order of the store."""

    name: str
    dataset: str
    split: str
    code: NDArray[np.float32]  # (N, F) gaze code, flattened
    gaze: NDArray[np.float64]  # (N, 3) true direction, unit vectors
    gaze_hat: NDArray[np.float64]  # (N, 3) of the trained gaze head
    head: NDArray[np.float64]  # (N, 2) annotated head pose, pitch and yaw in radians

    def seen(self, entries: NDArray[np.int64] | slice) -> Seen:
        """Return everything known about some entries except their labels."""
        return Seen(self.code[entries], self.gaze_hat[entries], self.head[entries])

    def __str__(self) -> str:
        return f"person {self.name} of {self.dataset}"


def read_people(codes: CodeStore, split: str, *, needed: int, reason: str) -> tuple[list[PersonCodes], list[str]]:
    """Read the people of one split who have enough entries.

    Args:
        codes: an open store of codes.
        split: train, val or test.
        needed: number of entries that a person must have.
        reason: the config key that requires that many entries.

    Returns:
        These people, and a sentence about each person who is left out.

    Raises:
        UserError: a value is not finite; the sentence names the person.
    """
    everyone = [read_person(codes, name) for name in codes.persons(split)]
    left_out = [
        f"{person} is left out: {len(person.code)} entries, fewer than the {needed} required by {reason}"
        for person in everyone
        if len(person.code) < needed
    ]
    return [person for person in everyone if len(person.code) >= needed], left_out


def choose_person(names: Sequence[str], path: Path, name: str | None) -> str:
    """Return the named person of a file, or the only person if none is named.

    Raises:
        UserError: the file does not contain the person, or contains none or several and none is named.
    """
    if not names:
        raise UserError(f"{path}: contains no people")
    if name is None and len(names) > 1:
        raise UserError(f"{path}: contains {len(names)} people, {names[0]} to {names[-1]}: choose one with --person")
    if name is not None and name not in names:
        others = f" to {names[-1]}" if names[1:] else ""
        raise UserError(f"{path}: contains no person {name}, only {names[0]}{others}")
    return name or names[0]


def read_person(codes: CodeStore, name: str) -> PersonCodes:
    """Read one person.

    Raises:
        UserError: a value is not finite; the sentence names the person.
    """
    arrays = codes[name]
    for key in ("z_gaze", "gaze", "gaze_hat", "head"):
        if key not in arrays:
            raise UserError(f"person {name} of {codes.dataset}: the store of codes has no {key}: run encode again")
        bad = ~np.isfinite(arrays[key]).all(axis=tuple(range(1, arrays[key].ndim)))
        if bad.any():
            raise UserError(
                f"person {name} of {codes.dataset}: {key} of {bad.sum()} of {len(bad)} entries is not finite "
                f"(first: entry {bad.argmax()}); its checkpoint's training diverged: lower train.base_lr and train "
                "again"
            )
    z_gaze = arrays["z_gaze"]
    code = z_gaze.reshape(len(z_gaze), math.prod(z_gaze.shape[1:])).astype(np.float32)  # -1 would fail without an entry
    gaze = vector_from_pitchyaw(arrays["gaze"].astype(np.float64))
    gaze_hat, head = (arrays[key].astype(np.float64) for key in ("gaze_hat", "head"))
    return PersonCodes(name, codes.dataset, codes.splits[name], code, gaze, gaze_hat, head)


def unadapted_error_deg(person: PersonCodes, query_entries: int) -> float:
    """Measure the error of the trained gaze head itself (k = 0): the mean angle of gaze_hat over a person's query."""
    return mean_angle_deg(person.gaze_hat[-query_entries:], person.gaze[-query_entries:])


@dataclass(frozen=True, eq=False)
class Calibration:
    """k samples of one person."""

    person: PersonCodes
    repeat: int
    support: NDArray[np.int64]  # (k,) entries

    @property
    def shots(self) -> int:
        """The number of samples, k."""
        return len(self.support)


def draw_calibrations(people: Sequence[PersonCodes], settings: Fewshot, *, repeats: int) -> list[Calibration]:
    """Draw calibrations for every k and person from the pool, without replacement, and sort them by k.

    Args:
        people: people with at least settings.query_entries + the largest k entries each.
        settings: shots, query_entries, and the seed of the draws.
        repeats: draws per person and k.
    """
    drawn = []
    for k in settings.shots:
        for person in people:
            pool = len(person.code) - settings.query_entries
            for repeat in range(repeats):
                key = f"{settings.seed}/{person.dataset}/{person.name}/{k}/{repeat}".encode()
                rng = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()))
                drawn.append(Calibration(person, repeat, rng.choice(pool, size=k, replace=False)))
    return drawn


def support_of(calibrations: Sequence[Calibration]) -> SampleSets:
    """Stack the samples of calibrations with the same k."""
    return _sample_sets([(calibration.person, calibration.support) for calibration in calibrations])


def query_of(calibrations: Sequence[Calibration], query_entries: int) -> ModelSamples:
    """Return the query (the last entries) of each calibration's person; each person is stored only once."""
    row = {person: position for position, person in enumerate(dict.fromkeys(c.person for c in calibrations))}
    sets = _sample_sets([(person, slice(-query_entries, None)) for person in row])
    return sets.for_models(torch.tensor([row[calibration.person] for calibration in calibrations]), query_entries)


def _sample_sets(samples: Sequence[tuple[PersonCodes, NDArray[np.int64] | slice]]) -> SampleSets:
    code = np.stack([person.code[entries] for person, entries in samples])
    gaze = np.stack([person.gaze[entries] for person, entries in samples])
    return SampleSets(torch.from_numpy(code), torch.from_numpy(gaze).to(torch.float32))


class TaskDraws:
    """An endless sequence of tasks: each call draws people, and disjoint support and query samples for each of them.

    The query and the order of the support do not depend on the size of the support: its first k samples are the support
    for k, so all k are trained on the same tasks.
    """

    def __init__(self, people: Sequence[PersonCodes], settings: Fewshot, *, seed: int) -> None:
        """Prepare to draw settings.tasks people per call, with settings.meta_query query samples each."""
        self._tasks, self._query = settings.tasks, settings.meta_query
        self._size = settings.meta_query + max(settings.shots)
        self.rng = np.random.default_rng(seed)  # its state determines the next draws
        self._counts = [len(person.code) for person in people]
        self._first = np.cumsum([0, *self._counts])
        self._code = torch.from_numpy(np.concatenate([person.code for person in people]))
        self._gaze = torch.from_numpy(np.concatenate([person.gaze for person in people])).to(self._code.dtype)

    def __call__(self) -> tuple[SampleSets, SampleSets]:
        """Return the support (tasks, support, ...) and the query (tasks, query, ...)."""
        entries = [
            self._first[person] + self.rng.permutation(self._counts[person])[: self._size]
            for person in self.rng.permutation(len(self._counts))[: self._tasks]
        ]
        query, support = np.split(np.stack(entries), [self._query], axis=1)
        return self._take(support), self._take(query)

    def _take(self, entries: NDArray[np.int64]) -> SampleSets:
        index = torch.from_numpy(np.ascontiguousarray(entries))
        return SampleSets(self._code[index], self._gaze[index])
