"""The table of `faze gaze`: a row for each face of each frame. Faces are followed from frame to frame."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from faze.data.readers.screen import Screen
from faze.gaze.estimator import FaceGaze
from faze.gaze.sources import UNKNOWN, Lens, SourceFrame

COLUMNS = ("source", "frame", "timestamp", "face_id", "success", "reason", "lens", "gaze_angle_x", "gaze_angle_y")
COLUMNS += ("gaze_pitch_deg", "gaze_yaw_deg", "gaze_x", "gaze_y", "gaze_z", "screen_x_px", "screen_y_px")
COLUMNS += ("origin_x_mm", "origin_y_mm", "origin_z_mm", "pose_Tx", "pose_Ty", "pose_Tz")
COLUMNS += ("pose_Rx", "pose_Ry", "pose_Rz")
FARTHEST_MM, LONGEST_S = 150.0, 1.0  # movement and absence after which a face counts as another one


class Table:
    """Writes rows as frames are added, and counts for the summary."""

    def __init__(self, file: TextIO, lens: Lens, screen: Screen | None) -> None:
        self._writer, self._lens, self._screen = csv.writer(file, lineterminator="\n"), lens, screen
        self._writer.writerow(COLUMNS)
        self._source: Path | None = None
        self._seen: dict[int, tuple[NDArray[np.float64], float]] = {}  # last origin in mm and time in s of each face
        self.frames = self.usable = self.assumed = 0

    def add(self, frame: SourceFrame, found: Sequence[FaceGaze | str]) -> None:
        """Write the row of each face of a frame, or of the reason why there is none."""
        if frame.source != self._source:
            self._source, self._seen = frame.source, {}
        lens = ""
        if frame.image is not None:
            lens = "assumed" if self._lens == UNKNOWN and frame.camera is None else "given"
        self.frames += 1
        self.usable += any(not isinstance(face, str) for face in found)
        self.assumed += lens == "assumed"
        for face in found:
            about = [frame.source, frame.number, f"{frame.time_s:.3f}"]
            if isinstance(face, str):
                row = [*about, "", 0, face, lens]
                row += [""] * (len(COLUMNS) - len(row))
            else:
                row = [*about, self._number(face, frame.time_s), 1, "", lens, *self._cells(face)]
            self._writer.writerow(row)

    def _number(self, face: FaceGaze, time_s: float) -> int:
        """Return the number of the nearest face of earlier frames, or a new number."""
        near = [
            (np.linalg.norm(origin_mm - face.origin_mm), number)
            for number, (origin_mm, seen_s) in self._seen.items()
            if 0 < time_s - seen_s <= LONGEST_S
        ]
        distance_mm, number = min(near, default=(math.inf, 0))
        if distance_mm > FARTHEST_MM:
            number = len(self._seen)
        self._seen[number] = face.origin_mm, time_s
        return number

    def _cells(self, face: FaceGaze) -> list[str]:
        x, y, z = face.direction
        point = self._screen.hit(face.origin_mm, face.direction) if self._screen else None
        numbers = [np.arctan2(x, -z), np.arctan2(y, -z), *np.degrees(face.pitchyaw), *face.direction]
        numbers += [None, None] if point is None else [*point]
        numbers += [*face.origin_mm, *face.head_pose[3:], *face.head_angles]
        return ["" if number is None else f"{number:.6g}" for number in numbers]
