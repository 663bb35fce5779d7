"""A person's codes, and the entries that are drawn from them for calibration."""

import hashlib
import math
from collections.abc import Iterable, Sequence
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
from faze.fewshot.kernel import Samples


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


class Entries:
    """The entries of several people in one tensor, on one device."""

    def __init__(self, people: Iterable[PersonCodes], device: torch.device) -> None:
        """Copy the people's codes and gaze."""
        self.people = list(dict.fromkeys(people))
        ends = np.cumsum([len(person.code) for person in self.people])
        self.end = dict(zip(self.people, ends.tolist(), strict=True))  # row after each person's last entry
        self._code = torch.from_numpy(np.concatenate([person.code for person in self.people])).to(device)
        self._gaze = torch.from_numpy(np.concatenate([person.gaze for person in self.people])).float().to(device)

    def samples(self, rows: NDArray[np.int64], count: NDArray[np.int64] | int) -> Samples:
        """Return the first `count` samples of each network's rows (M, n), whose count is (M,) or the same number."""
        rows, counts = np.ascontiguousarray(rows), np.full(len(rows), count)
        return Samples(self._code, self._gaze, *(torch.from_numpy(x).to(self._code.device) for x in (rows, counts)))

    def support(self, calibrations: Sequence[Calibration]) -> Samples:
        """Return the samples of each calibration, which may differ in k."""
        counts = np.array([calibration.shots for calibration in calibrations])
        rows = np.zeros((len(counts), counts.max()), np.int64)
        for row, calibration in zip(rows, calibrations, strict=True):
            person = calibration.person
            row[: calibration.shots] = self.end[person] - len(person.code) + calibration.support
        return self.samples(rows, counts)

    def query(self, calibrations: Sequence[Calibration], query_entries: int) -> Samples:
        """Return the query, the last entries, of each calibration's person."""
        ends = np.array([self.end[calibration.person] for calibration in calibrations])
        return self.samples(ends[:, None] - query_entries + np.arange(query_entries), query_entries)

    def draw_tasks(self, settings: Fewshot, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw settings.tasks people, and for each of them disjoint rows of support (T, largest k) and query (T, n).

        The query and the order of the support do not depend on the size of the support: its first k samples are the
        support for k, so all k are trained on the same tasks.
        """
        rows = []
        for number in rng.permutation(len(self.people))[: settings.tasks]:
            person = self.people[number]
            drawn = rng.permutation(len(person.code))[: settings.meta_query + max(settings.shots)]
            rows.append(self.end[person] - len(person.code) + drawn)
        query, support = np.split(np.stack(rows), [settings.meta_query], axis=1)
        return support, query
