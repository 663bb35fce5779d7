"""The table of `faze gaze`, with a row for each face in each frame. Faces are tracked from frame to frame."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from faze.data.readers.screen import Screen
from faze.gaze.estimator import FaceGaze
from faze.gaze.sources import SourceFrame

COLUMNS = ("source", "frame", "timestamp", "face_id", "success", "reason", "gaze_angle_x", "gaze_angle_y")
COLUMNS += ("gaze_pitch_deg", "gaze_yaw_deg", "gaze_x", "gaze_y", "gaze_z", "screen_x_px", "screen_y_px")
COLUMNS += ("origin_x_mm", "origin_y_mm", "origin_z_mm", "pose_Tx", "pose_Ty", "pose_Tz")
COLUMNS += ("pose_Rx", "pose_Ry", "pose_Rz", "expected_error_deg", "eye_opening")
FARTHEST_MM = 150.0  # a face that moved farther between two frames counts as a new face


class Table:
    """A CSV table that is written as frames are added, with counts for the summary."""

    def __init__(self, file: TextIO, screen: Screen | None) -> None:
        self._writer, self._screen = csv.writer(file, lineterminator="\n"), screen
        self._writer.writerow(COLUMNS)
        self._source: Path | None = None
        self._last_mm: list[NDArray[np.float64]] = []  # origin of the last gaze of each face
        self.frames = self.usable = 0

    def add(self, frame: SourceFrame, found: Sequence[FaceGaze | str]) -> None:
        """Write a row for each face in a frame, or a single row with the reason why there is none."""
        if frame.source != self._source:
            self._source, self._last_mm = frame.source, []
        self.frames += 1
        self.usable += any(not isinstance(face, str) for face in found)
        for face in found:
            about = [frame.source, frame.number, f"{frame.time_s:.3f}"]
            if isinstance(face, str):
                row = [*about, "", 0, face]
                row += [""] * (len(COLUMNS) - len(row))
            else:
                row = [*about, self._number(face), 1, "", *self._cells(face)]
            self._writer.writerow(row)

    def _number(self, face: FaceGaze) -> int:
        """Return the number of the face that was last seen near this one, or a new number."""
        for number, last_mm in enumerate(self._last_mm):
            if np.linalg.norm(last_mm - face.origin_mm) <= FARTHEST_MM:
                self._last_mm[number] = face.origin_mm
                return number
        self._last_mm.append(face.origin_mm)
        return len(self._last_mm) - 1

    def _cells(self, face: FaceGaze) -> list[str]:
        x, y, z = face.direction
        head_angles = Rotation.from_rotvec(face.head_pose[:3]).as_euler("XYZ")
        point = self._screen.hit(face.origin_mm, face.direction) if self._screen else None
        numbers = [np.arctan2(x, -z), np.arctan2(y, -z), *np.degrees(face.pitchyaw), *face.direction]
        numbers += [np.nan, np.nan] if point is None else [*point]
        numbers += [*face.origin_mm, *face.head_pose[3:], *head_angles, face.expected_error_deg, face.eye_opening]
        return ["" if np.isnan(number) else f"{number:.6g}" for number in numbers]
