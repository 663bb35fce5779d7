"""The interface of few-shot learners: methods, inputs, results and tables. faze.fewshot.learners lists the learners.

To add a learner, write a module with a class that has this interface, and add a line to that list.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ConfigDict
from torch import Tensor

from faze.base.files import whole_file
from faze.base.geometry import mean_angle_deg
from faze.config.parameters import Fewshot
from faze.fewshot.mlp import Activation
from faze.fewshot.person_codes import Calibration, PersonCodes, Seen, unadapted_error_deg


@dataclass(frozen=True)
class Learned:
    """A trained learner; its file contains a dict of these fields."""

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)

    learner: str
    shots: list[int]
    settings: dict[str, object]
    state: dict[str, Tensor] = field(default_factory=dict)  # of networks, each (number of shots, ...)
    # "step", "train_deg" (mean loss of outer steps since the last record) and "val_deg" (after adaptation) for each k
    history: list[dict[str, object]] = field(default_factory=list)
    activation: Activation = "selu"
    outer_steps: list[int] = field(default_factory=list)  # after which each k's network was selected
    val_deg: dict[str, float] = field(default_factory=dict)  # k -> mean error of val people, as at test; "0": unadapted
    seconds: float = 0.0  # duration of the training
    left_out: list[str] = field(default_factory=list)  # a sentence about each person with too few entries
    checkpoint: str = ""  # CodeStore.checkpoint of the training codes; "" if unknown


class MetaTraining(NamedTuple):
    """The people on whom a learner is trained, and its settings."""

    train: Sequence[PersonCodes]
    val: Sequence[PersonCodes]  # may be empty
    settings: Fewshot
    seed: int
    threads: int = 1
    gaze_head: Mapping[str, NDArray] | None = None  # CodeStore.gaze_head

    def learned(self, learner: str, state: dict[str, Tensor], **about: object) -> Learned:
        """Describe a trained learner."""
        return Learned(learner, list(self.settings.shots), self.settings.model_dump(mode="json"), state, **about)


class Errors(NamedTuple):
    """The mean angle, in degrees, over the query of each of M calibrations."""

    adapted_deg: NDArray[np.float64]  # (M,)
    start_deg: NDArray[np.float64]  # (M,) before any step; NaN for a learner without steps


class Learner(ABC):
    """A few-shot learner. At k = 0, the error of every learner is that of the trained gaze head."""

    name: str
    learns_from_tasks = False  # needs people of the split train

    def meta_train(self, training: MetaTraining) -> Learned:
        """Train on some people and validate on others. Without an override, nothing is learnt from them."""
        return training.learned(self.name, {})

    @abstractmethod
    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Adapt to a person's support entries (k,); return the state of a PersonalEstimator."""

    @abstractmethod
    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Estimate the gaze of n entries as unit vectors (n, 3), from the result of `fit`."""

    def errors(
        self, learned: Learned, calibrations: Sequence[Calibration], settings: Fewshot, threads: int = 1
    ) -> Errors:
        """Adapt to M calibrations, of any k, and measure the error on each person's query (settings.query_entries)."""
        query, adapted = slice(-settings.query_entries, None), []
        for calibration in calibrations:
            person = calibration.person
            gaze = self.estimate(self.fit(person, calibration.support, learned), person.seen(query))
            adapted.append(mean_angle_deg(gaze, person.gaze[query]))
        return Errors(np.array(adapted), np.full(len(adapted), np.nan))


def errors_table(learner: str, calibrations: Sequence[Calibration], query_entries: int, errors: Errors) -> pa.Table:
    """Build a table with one row per person for k = 0, then one per calibration."""
    people = dict.fromkeys(calibration.person for calibration in calibrations)
    rows = [(person, 0, 0, unadapted_error_deg(person, query_entries), np.nan) for person in people]
    rows += [(one.person, len(one.support), one.repeat, *deg) for one, *deg in zip(calibrations, *errors, strict=True)]
    columns = ("person", "dataset", "split", "learner", "k", "repeat", "error_deg", "start_error_deg")
    values = [(person.name, person.dataset, person.split, learner, *rest) for person, *rest in rows]
    return pa.table(dict(zip(columns, zip(*values, strict=True), strict=True)))


def write_tables(tables: Iterable[pa.Table], path: Path, about: Mapping[str, object]) -> None:
    """Write the parts of a table to one file atomically; the metadata has one JSON value per key."""
    table = pa.concat_tables(tables).replace_schema_metadata({key: json.dumps(value) for key, value in about.items()})
    with whole_file(path) as temporary, temporary.open("wb") as file:  # pyarrow itself takes only names in UTF-8
        pq.write_table(table, file, write_page_checksum=True)
