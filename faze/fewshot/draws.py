"""Who takes part in few-shot learning, and which of their samples: tasks and calibrations. Paper section 3.2.

Meta-training draws tasks: some people, and of each disjoint support and query samples. Testing draws calibrations: k
samples of a person's pool, which is all but the last entries; those are the query, the same for every calibration.
A calibration follows from the seed in the config, the data set, the person and the pool, k and the repeat alone, so
that every tier and learner adapts to the same samples, in whatever process and order. It is `random`, or a `grid` over
the range of the pool's true gaze, as a person would be asked to look: k cells of as many samples each, one sample of
each cell.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.parameters import Fewshot
from faze.data.store.codes import CodeStore
from faze.fewshot.mlp import ModelSamples, SampleSets


@dataclass(frozen=True, eq=False)
class PersonCodes:
    """One person's N samples, in the store's order."""

    name: str
    dataset: str
    split: str
    code: NDArray[np.float32]  # (N, F) gaze code, flattened
    gaze: NDArray[np.float64]  # (N, 3) true direction, unit vectors
    gaze_hat: NDArray[np.float64]  # (N, 3) of the trained gaze head

    def __str__(self) -> str:
        return f"person {self.name} of {self.dataset}"


@dataclass(frozen=True)
class People:
    """Those who take part, and a sentence about each who cannot."""

    persons: list[PersonCodes]
    left_out: list[str]


def open_codes(path: Path, default_split: str = "train") -> CodeStore:
    """Open a store of codes that holds somebody.

    Raises:
        UserError: it holds nobody, or is no such store.
    """
    codes = CodeStore(path, default_split)
    if not codes.persons():
        raise UserError(f"{path}: holds no person: encode a data set that has some")
    return codes


def read_people(codes: CodeStore, split: str, *, needed: int, reason: str) -> People:
    """Read the people of one split; leave out those with too few entries.

    Args:
        codes: an opened store of codes.
        split: train, val or test.
        needed: entries that a person must have.
        reason: what they are needed for, in the words of the config.

    Raises:
        UserError: a value is not finite; the sentence names the person.
    """
    persons, left_out = [], []
    for name in codes.persons(split):
        person = read_person(codes, name)
        if len(person.code) >= needed:
            persons.append(person)
        else:
            left_out.append(f"{person} is left out: {len(person.code)} entries, fewer than the {needed} of {reason}")
    return People(persons, left_out)


def read_person(codes: CodeStore, name: str) -> PersonCodes:
    """Read one person.

    Raises:
        UserError: a value is not finite; the sentence names the person.
    """
    arrays = codes[name]
    for key in ("z_gaze", "gaze", "gaze_hat"):
        bad = ~np.isfinite(arrays[key]).all(axis=tuple(range(1, arrays[key].ndim)))
        if bad.any():
            raise UserError(
                f"person {name} of {codes.dataset}: {key} of {bad.sum()} of {len(bad)} entries is not finite "
                f"(first: entry {bad.argmax()}); its checkpoint's training diverged: lower train.base_lr, run again"
            )
    z_gaze = arrays["z_gaze"]
    code = z_gaze.reshape(len(z_gaze), math.prod(z_gaze.shape[1:])).astype(np.float32)  # -1 fails with no entry
    gaze = vector_from_pitchyaw(arrays["gaze"].astype(np.float64))
    return PersonCodes(name, codes.dataset, codes.split(name), code, gaze, arrays["gaze_hat"].astype(np.float64))


@dataclass(frozen=True)
class Calibration:
    """One draw of k samples of one person."""

    person: int  # position among the people
    shots: int
    repeat: int
    support: NDArray[np.int64]  # (k,) entries


def draw_calibrations(people: Sequence[PersonCodes], settings: Fewshot, *, repeats: int) -> list[Calibration]:
    """Draw calibrations of every k and person, without replacement from the pool before the query; k by k.

    Args:
        people: each with at least settings.query_entries + the largest k entries.
        settings: shots, query_entries, kind and seed of the draws.
        repeats: draws per person and k.
    """
    draws = []
    for k in settings.shots:
        for position, person in enumerate(people):
            pool = len(person.code) - settings.query_entries
            cells = _grid_cells(person.gaze[:pool], k) if settings.draws == "grid" else None
            for repeat in range(repeats):
                key = f"{settings.seed}/{person.dataset}/{person.name}/{k}/{repeat}".encode()
                rng = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()))
                if cells is None:
                    support = rng.choice(pool, size=k, replace=False)
                else:
                    support = np.array([rng.choice(cell) for cell in cells])
                draws.append(Calibration(position, k, repeat, support))
    return draws


def _grid_cells(gaze: NDArray[np.float64], k: int) -> list[NDArray[np.int64]]:
    """Part (N, 3) directions, N >= k, into k cells: about sqrt(k) columns by yaw, each into rows by pitch."""
    pitch, yaw = pitchyaw_from_vector(gaze).T
    middle = pitchyaw_from_vector(gaze.mean(axis=0))[1]
    yaw = np.remainder(yaw - middle + np.pi, 2 * np.pi) - np.pi  # just beyond 180 degrees is near, not far
    rows = [len(column) for column in np.array_split(np.arange(k), round(k**0.5))]
    # Each column has samples in proportion to its rows, so that none of its cells is empty.
    columns = np.split(np.argsort(yaw, kind="stable"), len(gaze) * np.cumsum(rows)[:-1] // k)
    return [
        cell
        for column, count in zip(columns, rows, strict=True)
        for cell in np.array_split(column[np.argsort(pitch[column], kind="stable")], count)
    ]


def support_of(people: Sequence[PersonCodes], draws: Sequence[Calibration]) -> SampleSets:
    """The k samples of each calibration, all of one k."""
    return _batch([(people[draw.person], draw.support) for draw in draws])


def query_of(people: Sequence[PersonCodes], draws: Sequence[Calibration], query_entries: int) -> ModelSamples:
    """The last entries of each calibration's person."""
    batch = _batch([(person, slice(-query_entries, None)) for person in people])
    return batch.of(torch.tensor([draw.person for draw in draws]), query_entries)


def _batch(samples: Sequence[tuple[PersonCodes, NDArray[np.int64] | slice]]) -> SampleSets:
    code = np.stack([person.code[entries] for person, entries in samples])
    gaze = np.stack([person.gaze[entries] for person, entries in samples])
    return SampleSets(torch.from_numpy(code), torch.from_numpy(gaze).to(torch.float32))


class TaskDraws:
    """Endless tasks: each call draws some people and disjoint support and query samples of each.

    The query and the order of the support do not depend on how large the support is: the first k of it are the support
    for k, so that all k learn from the same tasks.
    """

    def __init__(self, people: Sequence[PersonCodes], *, tasks: int, support: int, query: int, seed: int) -> None:
        self._tasks, self._support, self._query = tasks, support, query
        self._rng = np.random.default_rng(seed)
        self._counts = [len(person.code) for person in people]
        self._first = np.cumsum([0, *self._counts])
        self._code = torch.from_numpy(np.concatenate([person.code for person in people]))
        self._gaze = torch.from_numpy(np.concatenate([person.gaze for person in people])).to(self._code.dtype)

    def __call__(self) -> tuple[SampleSets, SampleSets]:
        """Support (tasks, support, ...) and query (tasks, query, ...)."""
        size = self._query + self._support
        entries = [
            self._first[person] + self._rng.permutation(self._counts[person])[:size]
            for person in self._rng.permutation(len(self._counts))[: self._tasks]
        ]
        query, support = np.split(np.stack(entries), [self._query], axis=1)
        return self._take(support), self._take(query)

    @property
    def state(self) -> Mapping[str, object]:
        """From which the next draws follow; of plain values."""
        return self._rng.bit_generator.state

    @state.setter
    def state(self, state: Mapping[str, object]) -> None:
        self._rng.bit_generator.state = state

    def _take(self, entries: NDArray[np.int64]) -> SampleSets:
        index = torch.from_numpy(np.ascontiguousarray(entries))
        return SampleSets(self._code[index], self._gaze[index])
