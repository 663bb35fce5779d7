"""The interface of few-shot learners: methods, inputs, results and tables. faze.fewshot.learners lists the learners.

To add a learner, implement `Learner` in a new module and add an instance to `faze.fewshot.learners.LEARNERS`.
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
    state: dict[str, Tensor] = field(default_factory=dict)  # for networks, each (number of values of k, ...)
    # Records: "step" and, for each k, "train_deg" (mean loss since the last record) and "val_deg" (after adaptation)
    history: list[dict[str, object]] = field(default_factory=list)
    activation: Activation = "selu"
    outer_steps: list[int] = field(default_factory=list)  # for each k, the step of the selected network
    val_deg: dict[str, float] = field(default_factory=dict)  # k -> mean error of val people; "0": unadapted
    seconds: float = 0.0  # duration of the training
    left_out: list[str] = field(default_factory=list)  # a sentence about each person with too few entries
    checkpoint: str = ""  # CodeStore.checkpoint of the training codes; "" if unknown


class MetaTraining(NamedTuple):
    """The people on whom a learner is trained, and the training settings."""

    train: Sequence[PersonCodes]
    val: Sequence[PersonCodes]  # may be empty
    settings: Fewshot
    seed: int
    threads: int = 1
    gaze_head: Mapping[str, NDArray] | None = None  # CodeStore.gaze_head

    def learned(self, learner: str, state: dict[str, Tensor], **about: object) -> Learned:
        """Return a trained learner with the given state and these settings."""
        return Learned(learner, list(self.settings.shots), self.settings.model_dump(mode="json"), state, **about)


class Errors(NamedTuple):
    """The mean angular error over the query, in degrees, for each of M calibrations."""

    adapted_deg: NDArray[np.float64]  # (M,)
    start_deg: NDArray[np.float64]  # (M,) before any step; NaN for a learner without steps


class Learner(ABC):
    """A few-shot learner. At k = 0, every learner has the error of the trained gaze head."""

    name: str
    learns_from_tasks = False  # whether training needs people of the train split

    def meta_train(self, training: MetaTraining) -> Learned:
        """Train on the train people and validate on the val people. By default, nothing is learnt."""
        return training.learned(self.name, {})

    @abstractmethod
    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Adapt to a person's support entries (k,); return the state of a PersonalEstimator."""

    @abstractmethod
    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Estimate the gaze of n entries as unit vectors (n, 3), using the result of `fit`."""

    def expected_error_deg(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Return the expected angular error (n,) of the estimates in degrees; NaN, as here, if it is unknown."""
        return np.full(len(seen.gaze_hat), np.nan)

    def errors(
        self, learned: Learned, calibrations: Sequence[Calibration], settings: Fewshot, threads: int = 1
    ) -> Errors:
        """Adapt to each of M calibrations (of any k); measure the error on the last settings.query_entries entries."""
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
    """Concatenate tables and write them to one file atomically; store `about` as metadata, one JSON value per key."""
    table = pa.concat_tables(tables).replace_schema_metadata({key: json.dumps(value) for key, value in about.items()})
    with whole_file(path) as temporary, temporary.open("wb") as file:  # pyarrow itself accepts only UTF-8 paths
        pq.write_table(table, file, write_page_checksum=True)
