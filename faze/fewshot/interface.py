"""The interface of few-shot learners: methods, inputs and results. faze.fewshot.learners lists the learners.

To add a learner, write a module with a class that has this interface, and add a line to that list. If it computes a
correction directly, it is a ClosedForm; if it adapts a network by gradient steps, it is a
faze.fewshot.fine_tuning.FineTuned.

Shapes: M calibrations, R step counts after which the error is measured, q query entries.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from faze.base.geometry import mean_angle_deg, pitchyaw_difference, pitchyaw_from_vector
from faze.config.parameters import Fewshot
from faze.fewshot.learner_file import Learned, plain
from faze.fewshot.meta_training import ResumeFile
from faze.fewshot.mlp import Weights
from faze.fewshot.person_codes import Calibration, PersonCodes, Seen

COVERAGES = (0.68, 0.95)  # nominal levels of a learner's prediction regions
_TOGETHER = 64  # calibrations estimated at a time


@dataclass(frozen=True)
class MetaTraining:
    """The people on whom a learner is trained, and its settings."""

    train: Sequence[PersonCodes]
    val: Sequence[PersonCodes]  # may be empty
    settings: Fewshot
    seed: int
    threads: int = 1
    gaze_head: Weights | None = None  # the trained one (M = 1), if the store of codes contains it
    resume_file: ResumeFile = ResumeFile()


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
    steps: NDArray[np.int64]  # (M,) of adaptation
    trace_deg: NDArray[np.float64]  # (M, R) after each of trace_steps
    trace_steps: Sequence[int]  # R
    covered: NDArray[np.float64] | None = None  # (M, 2) share of the query in COVERAGES' regions


# Positions (m,) of some of the calibrations, and their estimates (m, q, 3), unit vectors.
Estimates = Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]


class Learner(Protocol):
    """A few-shot learner. At k = 0, the error of every learner is that of the trained gaze head."""

    learns_from_tasks: bool  # needs people of the split train
    takes_steps: bool  # val people can select their number

    def meta_train(self, training: MetaTraining) -> Learned:
        """Train on some people and validate on others."""

    def errors(self, learned: Learned, adaptation: Adaptation) -> Errors:
        """Adapt to every calibration and measure the error on its person's query."""

    def gaze(self, learned: Learned, adaptation: Adaptation) -> Estimates:
        """Adapt to every calibration and estimate the gaze of its person's query, k by k."""


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

    def variance_deg2(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64] | None:
        """Return the variance (n, 2) of the estimates' pitch and yaw, or None if the learner does not predict it."""
        return None

    def meta_train(self, training: MetaTraining) -> Learned:
        """Return an empty state; a learner that is trained on people overrides this."""
        return Learned(self.name, list(training.settings.shots), plain(training.settings))

    def errors(self, learned: Learned, adaptation: Adaptation) -> Errors:
        """Measure the errors of the estimates on the query."""
        count, query = len(adaptation.calibrations), slice(-adaptation.settings.query_entries, None)
        adapted, covered = np.empty(count), np.full((count, len(COVERAGES)), np.nan)
        for position, calibration in enumerate(adaptation.calibrations):
            person = calibration.person
            seen, correction = person.seen(query), self.fit(person, calibration.support, learned)
            gaze = self.estimate(correction, seen)
            adapted[position] = mean_angle_deg(gaze, person.gaze[query])
            if (variance := self.variance_deg2(correction, seen)) is not None:
                covered[position] = covered_shares(gaze, person.gaze[query], variance)
        nothing = np.full(count, np.nan), np.zeros(count, np.int64), np.empty((count, 0))
        return Errors(adapted, *nothing, trace_steps=(), covered=covered)

    def gaze(self, learned: Learned, adaptation: Adaptation) -> Estimates:
        """Correct the gaze estimates of every query with its calibration."""
        of_query = slice(-adaptation.settings.query_entries, None)

        def corrected(calibration: Calibration) -> NDArray[np.float64]:
            person = calibration.person
            return self.estimate(self.fit(person, calibration.support, learned), person.seen(of_query))

        count = len(adaptation.calibrations)
        for positions in np.split(np.arange(count), range(_TOGETHER, count, _TOGETHER)):
            yield positions, np.stack([corrected(adaptation.calibrations[position]) for position in positions])


def covered_shares(
    gaze: NDArray[np.float64], truth: NDArray[np.float64], variance_deg2: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Measure the share of n true directions inside the region of each of COVERAGES, an ellipse in pitch and yaw.

    Args:
        gaze: (n, 3) estimated directions.
        truth: (n, 3) true directions.
        variance_deg2: (n, 2) predictive variance of pitch and yaw.
    """
    missed = np.degrees(pitchyaw_difference(pitchyaw_from_vector(truth), pitchyaw_from_vector(gaze)))
    square = np.sum(missed**2 / variance_deg2, axis=1)  # chi-squared with two degrees of freedom
    return np.array([np.mean(square < -2 * np.log(1 - coverage)) for coverage in COVERAGES])
