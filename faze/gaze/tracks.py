"""Follow faces from frame to frame, and smooth the gaze of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from faze.gaze.estimator import FaceGaze

FARTHEST_MM, LONGEST_S = 150.0, 1.0  # movement and absence after which a face counts as another one
# Cutoff of a gaze at rest, and its growth with the speed: chosen so that noise of 1 degree at 30 frames/s becomes about
# 0.4 degrees, and nine tenths of a saccade of 20 degrees are followed within 0.1 s.
LEAST_CUTOFF_HZ, CUTOFF_PER_DEG, SPEED_CUTOFF_HZ = 1.0, 0.05, 1.0


@dataclass
class OneEuro:
    """A low-pass filter whose cutoff grows with the speed (Casiez, Roussel and Vogel, CHI 2012), of values in rad."""

    value: NDArray[np.float64] | None = None
    speed: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    time_s: float = 0.0

    def __call__(self, value: NDArray[np.float64], time_s: float) -> NDArray[np.float64]:
        """Return the smoothed value (2,) at a time, which must not decrease."""
        passed = time_s - self.time_s
        if self.value is not None and passed > 0:
            self.speed = self.speed + _weight(SPEED_CUTOFF_HZ, passed) * ((value - self.value) / passed - self.speed)
            cutoff = LEAST_CUTOFF_HZ + CUTOFF_PER_DEG * math.degrees(float(np.linalg.norm(self.speed)))
            value = self.value + _weight(cutoff, passed) * (value - self.value)
        self.value, self.time_s = value, time_s
        return value


def _weight(cutoff_hz: float, passed_s: float) -> float:
    return 1 / (1 + 1 / (2 * math.pi * cutoff_hz * passed_s))


@dataclass
class _Track:
    number: int
    origin_mm: NDArray[np.float64]
    time_s: float
    smooth: OneEuro = field(default_factory=OneEuro)


class Tracks:
    """The faces of one source, in the order of its frames."""

    def __init__(self) -> None:
        self._tracks: list[_Track] = []

    def follow(self, found: Sequence[FaceGaze | str], time_s: float) -> list[tuple[int | None, NDArray | None]]:
        """Return the number of each face, from 0, and its smoothed pitch and yaw (2,) rad; None for a reason."""
        known = [track for track in self._tracks if time_s - track.time_s <= LONGEST_S]
        faces = {index: face for index, face in enumerate(found) if not isinstance(face, str)}
        pairs = [
            (float(np.linalg.norm(track.origin_mm - face.origin_mm)), index, track.number)
            for index, face in faces.items()
            for track in known
        ]
        own: dict[int, int] = {}  # face -> track, the nearest pairs first
        for distance, index, number in sorted(pairs):
            if distance <= FARTHEST_MM and index not in own and number not in own.values():
                own[index] = number
        told: list[tuple[int | None, NDArray | None]] = [(None, None)] * len(found)
        for index, face in faces.items():
            if index not in own:
                own[index] = len(self._tracks)
                self._tracks.append(_Track(own[index], face.origin_mm, time_s))
            track = self._tracks[own[index]]
            track.origin_mm, track.time_s = face.origin_mm, time_s
            told[index] = track.number, track.smooth(face.pitchyaw, time_s)
        return told
