"""The rows of the table of `faze gaze`, one for each face of each frame. Faces are followed from frame to frame."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.data.readers.screen import Screen
from faze.evaluation.wording import counted
from faze.gaze.estimator import FaceGaze
from faze.gaze.sources import Lens, SourceFrame

ABOUT = ("source", "frame", "timestamp", "face_id", "success", "reason", "lens")
NUMBERS = ("gaze_angle_x", "gaze_angle_y", "gaze_pitch_deg", "gaze_yaw_deg")
NUMBERS += ("gaze_x", "gaze_y", "gaze_z", "screen_x_px", "screen_y_px")
NUMBERS += ("origin_x_mm", "origin_y_mm", "origin_z_mm", "pose_Tx", "pose_Ty", "pose_Tz")
NUMBERS += ("pose_Rx", "pose_Ry", "pose_Rz")

FARTHEST_MM, LONGEST_S = 150.0, 1.0  # movement and absence after which a face counts as another one


class Tracks:
    """The faces of one source, in the order of its frames."""

    def __init__(self) -> None:
        self._seen: list[tuple[NDArray[np.float64], float]] = []  # last origin in mm and time in s, by face

    def follow(self, found: Sequence[FaceGaze | str], time_s: float) -> list[int | None]:
        """Return the number of each face, from 0; None for a reason."""
        faces = {index: face.origin_mm for index, face in enumerate(found) if not isinstance(face, str)}
        pairs = []
        for number, (origin_mm, seen_s) in enumerate(self._seen):
            if time_s - seen_s <= LONGEST_S:
                pairs += [(np.linalg.norm(origin_mm - faces[index]), index, number) for index in faces]
        numbers: dict[int, int] = {}  # by face, the nearest pairs first
        for distance_mm, index, number in sorted(pairs):
            if distance_mm <= FARTHEST_MM and index not in numbers and number not in numbers.values():
                numbers[index] = number
        for index, origin_mm in faces.items():
            if index not in numbers:
                numbers[index] = len(self._seen)
                self._seen.append((origin_mm, time_s))
            self._seen[numbers[index]] = origin_mm, time_s
        return [numbers.get(index) for index in range(len(found))]


class Rows:
    """The rows of the table, and counts for the summary."""

    def __init__(self, screen: Screen | None) -> None:
        self._screen = screen
        self._tracks: dict[Path, Tracks] = {}
        self.frames = self.usable = self.assumed = self._on_plane = 0

    def write(
        self, path: Path, frames: Iterable[tuple[SourceFrame, Sequence[FaceGaze | str]]], lens: Lens
    ) -> Iterator[tuple[SourceFrame, Sequence[FaceGaze | str]]]:
        """Write the rows of each frame to a CSV immediately, and yield the frame."""
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*ABOUT, *NUMBERS])
            for frame, found in frames:
                writer.writerows(self.of(frame, found, lens))
                file.flush()
                yield frame, found

    def of(self, frame: SourceFrame, found: Sequence[FaceGaze | str], lens: Lens) -> Iterator[list[object]]:
        """Yield the row of each face of a frame."""
        lens_is = "" if frame.image is None else "assumed" if lens.assumed and frame.camera is None else "given"
        numbers = self._tracks.setdefault(frame.source, Tracks()).follow(found, frame.time_s)
        self.frames += 1
        self.assumed += lens_is == "assumed"
        self.usable += any(not isinstance(face, str) for face in found)
        for face, number in zip(found, numbers, strict=True):
            reason = face if isinstance(face, str) else ""
            about = [frame.source, frame.number, f"{frame.time_s:.3f}", "" if number is None else number]
            cells = [""] * len(NUMBERS) if reason else self._numbers(face)
            yield [*about, int(not reason), reason, lens_is, *cells]

    def _numbers(self, face: FaceGaze) -> list[str]:
        x, y, z = face.direction
        angles = [np.arctan2(x, -z), np.arctan2(y, -z), *np.degrees(face.pitchyaw)]
        point = self._screen.hit(face.origin_mm, face.direction) if self._screen else None
        self._on_plane += point is not None
        cells = [*angles, *face.direction, *([None, None] if point is None else point)]
        cells += [*face.origin_mm, *face.head_pose[3:], *face.head_angles]
        return ["" if cell is None else f"{cell:.6g}" for cell in cells]

    def describe(self) -> str:
        """Summarise the rows in one line."""
        text = f"{counted(self.frames, 'frame')}, {self.usable} with a gaze"
        if self._screen and self.usable and not self._on_plane:
            text += "; no gaze meets the screen's plane: is the screen behind the face? Check top_left_mm"
        return text
