"""The lines of a manifest: everything about each frame except its head pose.

All lines are checked when the manifest is opened, column by column. Faults that concern the whole file are errors;
other faults are rejects with the line and the column.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import OUTSIDE, Frame, Reject, is_inside, lie_on_screen
from faze.data.readers.manifest_camera import Cameras
from faze.data.readers.manifest_columns import (
    FIELD_OF_VIEW,
    GAZE_DEG,
    POINT_MM,
    POINT_PX,
    TARGETS,
)
from faze.data.readers.manifest_table import Table, read_table
from faze.data.readers.manifest_units import check_angles, check_targets_mm
from faze.data.readers.screen import FILE, Screen, read_screen
from faze.data.store.layout import SPLITS

DEFAULT_SPLIT = "test"
GAZE_DISTANCE_MM = 1000.0  # of the point that stands for a gaze direction


@dataclass(frozen=True, eq=False)
class UnposedFrame:
    """A line of a manifest without its head pose. All coordinates are in the camera frame."""

    person_id: str
    folder: Path  # of the manifest
    file_name: str  # of the image, relative to the folder
    camera_matrix: NDArray  # (3, 3), px
    distortion: NDArray  # (d,), OpenCV's order
    assumed_camera: bool  # whether the camera is only known by its field of view
    split: str  # train | val | test
    frame_index: int  # position among the person's lines, from 0
    line: int  # as a spreadsheet shows it
    on_screen: bool | None  # None if the screen is unknown
    target_mm: NDArray | None  # (3,); None if the line has a gaze direction
    gaze: NDArray | None  # (3,) faze's gaze vector, which points from the target to the eyes; None if it has a target

    @property
    def image_path(self) -> Path:
        """Path of the image."""
        return self.folder / self.file_name

    def target_from(self, gaze_origin_mm: NDArray) -> NDArray:
        """Return the gaze target (3,) in mm: the line's, or a point 1 m from the gaze origin (3,) along the gaze."""
        return gaze_origin_mm - GAZE_DISTANCE_MM * self.gaze if self.target_mm is None else self.target_mm


class ManifestLines:
    """The checked lines of a manifest, by person."""

    def __init__(self, path: Path) -> None:
        """Read and check all lines.

        Args:
            path: CSV or Parquet.

        Raises:
            UserError: The file cannot be read, or has a fault that concerns all of its lines; the message contains
                file, line, column and remedy.
        """
        self.path, self.folder = path, path.absolute().parent
        self.table: Table = read_table(path)
        self.layout = self.table.layout
        self.faults = {row: f"line {self.table.lines[row]}, {fault}" for row, fault in self.table.faults.items()}
        self.rows = self._group()  # (n,) rows of each person, in the order of their frames
        self.splits = self._find_splits()
        self.names = self._check_images()
        self.screens: dict[str, Screen | str] = {}
        self.on_screen: list[bool | None] = [None] * len(self.table)
        self.cameras = Cameras(self.table, self.folder, self.names)
        for row, (column, reason) in self.cameras.faults.items():
            self.fault(row, reason, column)
        self.targets_mm, self._gazes = self._find_targets()  # (N, 3) each; one of them is None
        if self.layout.has_pose:
            check_angles(self.table)

    def persons(self) -> list[str]:
        """List the people, sorted."""
        return sorted(self.rows)

    def count(self, person: str) -> int:
        """Count the lines of a person."""
        return len(self.rows[person])

    def unposed(self, person: str) -> Iterator[UnposedFrame | Reject]:
        """Read a person's lines, in the order of `session` and `time_s` if these columns exist.

        Yields:
            A record for each line; a Reject contains the line and the reason.
        """
        positions = np.argsort(np.argsort(self.rows[person], kind="stable"), kind="stable").tolist()
        for row, position in zip(self.rows[person].tolist(), positions, strict=True):
            yield self._read_row(person, row, position)

    def _read_row(self, person: str, row: int, position: int) -> UnposedFrame | Reject:
        name, line = self.names[row], int(self.table.lines[row])
        try:
            if row not in self.faults:
                camera_matrix, distortion = self.cameras.of(row)
        except UnusableFrame as unusable:
            self.fault(row, str(unusable), "image")
        if row in self.faults:
            name = name or f"line {line}"  # an empty name would reject the person
            return Reject(person, name, self.faults[row])
        return UnposedFrame(
            person_id=person,
            folder=self.folder,
            file_name=name,
            camera_matrix=camera_matrix,
            distortion=distortion,
            assumed_camera=self.layout.camera == FIELD_OF_VIEW,
            split=self.splits[person],
            frame_index=position,
            line=line,
            on_screen=self.on_screen[row],
            target_mm=None if self.targets_mm is None else self.targets_mm[row],
            gaze=None if self._gazes is None else self._gazes[row],
        )

    def fault(self, row: int, reason: str, column: str = "") -> None:
        """Record the first fault of a row, which makes it a reject."""
        where = f", column {column}" if column else ""
        self.faults.setdefault(row, f"line {self.table.lines[row]}{where}: {reason}")

    def _group(self) -> dict[str, NDArray[np.int64]]:
        """Find the rows of each person, in the order of session and time."""
        rows: dict[str, list[int]] = defaultdict(list)
        for row, person in enumerate(self.table.texts["person"]):
            rows[person].append(row)
        for person, its in rows.items():
            if not person or person.startswith(".") or "/" in person:
                words = f"the name {person!r} begins with . or contains /" if person else "the person is missing"
                raise UserError(f"{self.table.where(its[0], 'person')}: {words}")
        times = self.table.numbers.get("time_s")
        if times is None:
            return {person: np.array(its, np.int64) for person, its in rows.items()}
        names = self.table.texts.get("session") or [""] * len(self.table)
        order = {name: number for number, name in enumerate(dict.fromkeys(names))}
        sessions = np.array([order[name] for name in names])
        grouped = {person: np.array(its, np.int64) for person, its in rows.items()}
        return {person: its[np.lexsort((times[its], sessions[its]))] for person, its in grouped.items()}

    def _find_splits(self) -> dict[str, str]:
        """Find each person's split."""
        texts, found = self.table.texts.get("split"), {}
        for person, rows in self.rows.items():
            values = {texts[row].lower() for row in rows} if texts else {DEFAULT_SPLIT}
            if len(values) == 1 and values <= set(SPLITS):
                found[person] = values.pop()
                continue
            first = int(rows.min())
            row = next((row for row in sorted(rows.tolist()) if texts[row].lower() not in SPLITS), None)
            if row is not None:
                raise UserError(
                    f"{self.table.where(row, 'split')}: is {texts[row][:40]!r}, not one of {', '.join(SPLITS)}"
                )
            other = next(row for row in sorted(rows.tolist()) if texts[row].lower() != texts[first].lower())
            raise UserError(
                f"{self.table.where(other, 'split')}: person {person} is in {texts[other]}, but in {texts[first]} in "
                f"line {self.table.lines[first]}: a person belongs to one split"
            )
        return found

    def _check_images(self) -> list[str]:
        """Normalise the images' paths; refuse an image of two people."""
        people = np.empty(len(self.table), object)
        for person, rows in self.rows.items():
            people[rows] = person
        owners: dict[str, int] = {}
        names = []
        for row, text in enumerate(self.table.texts["image"]):
            name = str(PurePosixPath(text)) if "//" in text or "./" in text else text
            names.append(name)
            if not text:
                self.fault(row, "is empty", "image")
            elif "\\" in text:
                self.fault(row, "has a backslash: write / between folders", "image")
            elif not is_inside(name):
                self.fault(row, OUTSIDE, "image")
            elif people[first := owners.setdefault(name, row)] != people[row]:
                raise UserError(
                    f"{self.table.where(row, 'image')}: {name} is an image of person {people[row]}, but of "
                    f"{people[first]} in line {self.table.lines[first]}: correct one of them"
                )
        return names

    def _find_targets(self) -> tuple[NDArray | None, NDArray | None]:
        """Compute (N, 3) targets in mm, or (N, 3) gaze vectors; the other one is None."""
        values = self.table.array(*TARGETS[self.layout.target])
        if self.layout.target == POINT_PX:
            return self._project_screens(values), None
        if self.layout.target == POINT_MM:
            check_targets_mm(self.table, values)
            return values, None
        if self.layout.target == GAZE_DEG:
            values = np.radians(values)
        check_angles(self.table)
        return None, vector_from_pitchyaw(values)

    def _project_screens(self, targets_px: NDArray) -> NDArray:
        """Convert targets from px to mm by the screen of each row, and find out which are on their screen."""
        texts = self.table.texts.get("screen") or [FILE] * len(self.table)
        targets_mm = np.full((len(self.table), 3), np.nan)
        by_name: dict[str, list[int]] = defaultdict(list)
        for row, name in enumerate(texts):
            by_name[name].append(row)
        for name, rows in by_name.items():
            try:
                if not is_inside(name):
                    raise UserError(f"screen {name!r}: {OUTSIDE}" if name else "is empty")
                screen = read_screen(self.folder / name)
            except UserError as error:
                if "screen" not in self.table.texts:  # one screen for all lines
                    raise UserError(f"{self.path}: targets in px need the file {FILE} beside it: {error}") from None
                self.screens[name] = str(error)
                for row in rows:
                    self.fault(row, str(error), "screen")
                continue
            self.screens[name] = screen
            targets_mm[rows] = screen.to_mm(targets_px[rows])
            for row, is_on in zip(rows, lie_on_screen(targets_px[rows], screen.size_px), strict=True):
                self.on_screen[row] = is_on
        return targets_mm


def as_frame(
    line: UnposedFrame,
    rotation_vector: NDArray,
    translation_mm: NDArray,
    corners_mm: NDArray,
    target_mm: NDArray,
    label_source: str,
) -> Frame:
    """Complete a line with its head pose (3,) and (3,), the (2, 3) inner eye corners, and its (3,) target."""
    return Frame(
        person_id=line.person_id,
        image_path=line.image_path,
        file_name=line.file_name,
        camera_matrix=line.camera_matrix,
        distortion=line.distortion,
        rotation_vector=rotation_vector,
        translation_mm=translation_mm,
        gaze_target_mm=target_mm,
        inner_eye_corners_mm=corners_mm,
        split=line.split,
        frame_index=line.frame_index,
        label_source="assumed_camera" if line.assumed_camera else label_source,
        on_screen=line.on_screen,
    )
