"""The baseline that every learner must beat to matter: a person's mean angular offset, taken off the estimate."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from faze.base.geometry import angular_error, pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.parameters import Fewshot
from faze.fewshot.draws import Calibration, PersonCodes
from faze.fewshot.fine_tuning import Errors
from faze.fewshot.learner_file import Learned, plain

_TOGETHER = 64  # calibrations that offset corrects at a time


class Offset:
    """The person's mean angular offset, in pitch and yaw, over the k samples, subtracted from gaze_hat."""

    learns_from_tasks, takes_steps = False, False

    def meta_train(self, training: object, settings: Fewshot, *, seed: int, threads: int) -> Learned:
        """There is nothing to learn."""
        return Learned("offset", list(settings.shots), plain(settings))

    def errors(
        self,
        learned: Learned,
        people: Sequence[PersonCodes],
        draws: Sequence[Calibration],
        settings: Fewshot,
        *,
        threads: int,
    ) -> Errors:
        """Correct every query by its calibration's offset."""
        adapted = np.empty(len(draws))
        for positions, gaze in self.gaze(learned, people, draws, settings, threads=threads):
            for position, estimate in zip(positions, gaze, strict=True):
                truth = people[draws[position].person].gaze[-settings.query_entries :]
                adapted[position] = np.degrees(angular_error(estimate, truth).mean())
        nothing = np.full(len(draws), np.nan)
        return Errors(adapted, nothing, np.zeros(len(draws), np.int64), np.empty((len(draws), 0)), ())

    def gaze(
        self,
        learned: Learned,
        people: Sequence[PersonCodes],
        draws: Sequence[Calibration],
        settings: Fewshot,
        *,
        threads: int,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Correct every query by its calibration's offset."""
        for positions in np.split(np.arange(len(draws)), range(_TOGETHER, len(draws), _TOGETHER)):
            of = [(people[draws[position].person], draws[position].support) for position in positions]
            yield positions, np.stack([_corrected(p, support, settings.query_entries) for p, support in of])


def offset_rad(person: PersonCodes, support: NDArray[np.int64]) -> NDArray[np.float64]:
    """(2,): mean over the samples of estimate minus truth, in pitch and yaw."""
    offset = pitchyaw_from_vector(person.gaze_hat[support]) - pitchyaw_from_vector(person.gaze[support])
    offset[:, 1] = np.remainder(offset[:, 1] + np.pi, 2 * np.pi) - np.pi  # yaw just beyond 180 degrees is near, not far
    return offset.mean(axis=0)


def _corrected(person: PersonCodes, support: NDArray[np.int64], query_entries: int) -> NDArray[np.float64]:
    gaze_hat = pitchyaw_from_vector(person.gaze_hat[-query_entries:])
    return vector_from_pitchyaw(gaze_hat - offset_rad(person, support))
