"""Follow faces from frame to frame."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faze.gaze.estimator import FaceGaze

FARTHEST_MM, LONGEST_S = 150.0, 1.0  # movement and absence after which a face counts as another one


@dataclass
class _Track:
    number: int
    origin_mm: NDArray[np.float64]
    time_s: float


class Tracks:
    """The faces of one source, in the order of its frames."""

    def __init__(self) -> None:
        self._tracks: list[_Track] = []

    def follow(self, found: Sequence[FaceGaze | str], time_s: float) -> list[int | None]:
        """Return the number of each face, from 0; None for a reason."""
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
        for index, face in faces.items():
            if index not in own:
                own[index] = len(self._tracks)
                self._tracks.append(_Track(own[index], face.origin_mm, time_s))
            track = self._tracks[own[index]]
            track.origin_mm, track.time_s = face.origin_mm, time_s
        return [own.get(index) for index in range(len(found))]
