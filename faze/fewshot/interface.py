"""The interface of few-shot learners: methods, inputs and results. faze.fewshot.learners lists the learners.

To add a learner, write a module with a class that has this interface, and add a line to that list. If it computes a
correction directly, it is a ClosedForm; if it adapts a network by gradient steps, it is a
faze.fewshot.fine_tuning.FineTuned.

Shapes: M calibrations.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from faze.base.geometry import mean_angle_deg
from faze.config.parameters import Fewshot
from faze.fewshot.learner_file import Learned, plain
from faze.fewshot.mlp import Weights
from faze.fewshot.person_codes import Calibration, PersonCodes, Seen


@dataclass(frozen=True)
class MetaTraining:
    """The people on whom a learner is trained, and its settings."""

    train: Sequence[PersonCodes]
    val: Sequence[PersonCodes]  # may be empty
    settings: Fewshot
    seed: int
    threads: int = 1
    gaze_head: Weights | None = None  # the trained one (M = 1), if the store of codes contains it


@dataclass(frozen=True)
class Adaptation:
    """The calibrations that a learner adapts to, and its settings."""

    calibrations: Sequence[Calibration]  # M, of any k; their people have settings.query_entries entries after the pool
    settings: Fewshot
    threads: int = 1


@dataclass(frozen=True)
class Errors:
    """The mean angle, in degrees, over the query of each of M calibrations."""

    adapted_deg: NDArray[np.float64]  # (M,)
    start_deg: NDArray[np.float64]  # (M,) before any step; NaN for a learner without steps
    steps: int  # of adaptation; 0 for a learner without steps


class Learner(Protocol):
    """A few-shot learner. At k = 0, the error of every learner is that of the trained gaze head."""

    learns_from_tasks: bool  # needs people of the split train
    takes_steps: bool  # adapts by gradient steps, to the k of its training only

    def meta_train(self, training: MetaTraining) -> Learned:
        """Train on some people and validate on others."""

    def errors(self, learned: Learned, adaptation: Adaptation) -> Errors:
        """Adapt to every calibration and measure the error on its person's query."""


class ClosedForm(ABC):
    """A learner that computes a correction directly from the k samples; subclasses define `fit` and `estimate`."""

    name: str
    learns_from_tasks = takes_steps = False

    @abstractmethod
    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute the correction from a person's support entries (k,) and the trained state."""

    @abstractmethod
    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Estimate the gaze of entries as unit vectors (n, 3)."""

    def meta_train(self, training: MetaTraining) -> Learned:
        """Return an empty state; a learner that is trained on people overrides this."""
        return Learned(self.name, list(training.settings.shots), plain(training.settings))

    def errors(self, learned: Learned, adaptation: Adaptation) -> Errors:
        """Measure the errors of the estimates on the query."""
        query, adapted = slice(-adaptation.settings.query_entries, None), []
        for calibration in adaptation.calibrations:
            person = calibration.person
            gaze = self.estimate(self.fit(person, calibration.support, learned), person.seen(query))
            adapted.append(mean_angle_deg(gaze, person.gaze[query]))
        return Errors(np.array(adapted), np.full(len(adapted), np.nan), 0)
