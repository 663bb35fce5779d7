"""Draw the samples of few-shot learning: tasks for meta-training, and calibrations for testing. Paper section 3.2.

A task of meta-training consists of some people, with disjoint support and query samples of each. A calibration has k
samples from a person's pool. The pool is all entries but the last ones, which are the query of every calibration. A
calibration depends only on the seed in the config, the data set, the person, the pool, k and the repeat. Hence every
tier and learner adapts to the same samples, in any process and order. It is `random`, or a `grid` over the range of the
true gaze in the pool, as in a calibration procedure: the pool is divided into k cells of equally many samples, and one
sample of each cell is drawn.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.geometry import pitchyaw_from_vector, wrapped
from faze.config.parameters import Fewshot
from faze.fewshot.mlp import ModelSamples, SampleSets
from faze.fewshot.person_codes import PersonCodes


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
    """Draw calibrations of every k and person, without replacement from the pool; sorted by k.

    Args:
        people: each with at least settings.query_entries + the largest k entries.
        settings: shots, query_entries, kind and seed of the draws.
        repeats: draws per person and k.
    """
    drawn = []
    for k in settings.shots:
        for person in people:
            pool = len(person.code) - settings.query_entries
            cells = _grid_cells(person.gaze[:pool], k) if settings.draws == "grid" else None
            for repeat in range(repeats):
                key = f"{settings.seed}/{person.dataset}/{person.name}/{k}/{repeat}".encode()
                rng = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()))
                support = [rng.choice(cell) for cell in cells] if cells else rng.choice(pool, size=k, replace=False)
                drawn.append(Calibration(person, repeat, np.asarray(support)))
    return drawn


def _grid_cells(gaze: NDArray[np.float64], k: int) -> list[NDArray[np.int64]]:
    """Divide (N, 3) directions, N >= k, into k cells: about sqrt(k) columns by yaw, each with rows by pitch."""
    pitch, yaw = pitchyaw_from_vector(gaze).T
    yaw = wrapped(yaw - pitchyaw_from_vector(gaze.mean(axis=0))[1])
    rows = [len(column) for column in np.array_split(np.arange(k), round(k**0.5))]
    # Each column has samples in proportion to its rows, so that no cell is empty.
    columns = np.split(np.argsort(yaw, kind="stable"), len(gaze) * np.cumsum(rows)[:-1] // k)
    return [
        cell
        for column, count in zip(columns, rows, strict=True)
        for cell in np.array_split(column[np.argsort(pitch[column], kind="stable")], count)
    ]


def support_of(calibrations: Sequence[Calibration]) -> SampleSets:
    """Stack the k samples of calibrations of one k."""
    return _sample_sets([(calibration.person, calibration.support) for calibration in calibrations])


def query_of(calibrations: Sequence[Calibration], query_entries: int) -> ModelSamples:
    """Return the last entries of each calibration's person; each person is stored once."""
    row = {person: position for position, person in enumerate(dict.fromkeys(c.person for c in calibrations))}
    sets = _sample_sets([(person, slice(-query_entries, None)) for person in row])
    return sets.for_models(torch.tensor([row[calibration.person] for calibration in calibrations]), query_entries)


def _sample_sets(samples: Sequence[tuple[PersonCodes, NDArray[np.int64] | slice]]) -> SampleSets:
    code = np.stack([person.code[entries] for person, entries in samples])
    gaze = np.stack([person.gaze[entries] for person, entries in samples])
    return SampleSets(torch.from_numpy(code), torch.from_numpy(gaze).to(torch.float32))


class TaskDraws:
    """An endless sequence of tasks: each call draws some people, with disjoint support and query samples of each.

    The query and the order of the support do not depend on the size of the support: its first k samples are the support
    for k, so that all k are trained on the same tasks.
    """

    def __init__(self, people: Sequence[PersonCodes], settings: Fewshot, *, seed: int) -> None:
        """Draw settings.tasks people a call, settings.meta_query samples as query and the largest k as support."""
        self._tasks, self._query = settings.tasks, settings.meta_query
        self._size = settings.meta_query + max(settings.shots)
        self.rng = np.random.default_rng(seed)  # its state determines the next draws
        self._counts = [len(person.code) for person in people]
        self._first = np.cumsum([0, *self._counts])
        self._code = torch.from_numpy(np.concatenate([person.code for person in people]))
        self._gaze = torch.from_numpy(np.concatenate([person.gaze for person in people])).to(self._code.dtype)

    def __call__(self) -> tuple[SampleSets, SampleSets]:
        """Support (tasks, support, ...) and query (tasks, query, ...)."""
        entries = [
            self._first[person] + self.rng.permutation(self._counts[person])[: self._size]
            for person in self.rng.permutation(len(self._counts))[: self._tasks]
        ]
        query, support = np.split(np.stack(entries), [self._query], axis=1)
        return self._take(support), self._take(query)

    def _take(self, entries: NDArray[np.int64]) -> SampleSets:
        index = torch.from_numpy(np.ascontiguousarray(entries))
        return SampleSets(self._code[index], self._gaze[index])
