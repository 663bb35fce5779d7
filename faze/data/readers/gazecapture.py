"""Read GazeCapture: NNNNN/frames/*.jpg and parallel JSON arrays, one entry per frame.

GazeCapture annotates the dot, not the head: the head pose and camera come from FAZE or are estimated by `faze
landmarks`. Its own files contain each recording's split and device, and the frames on which its detectors failed.

Camera frame: x right, y down, z away from the camera; mm. GazeCapture's own dots are in cm from the camera, right and
up from the user's viewpoint, whereas the camera faces the user.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.readers import Frame, OnScreen, Reject, lie_on_screen
from faze.data.readers.supplementary_reader import SupplementaryReader
from faze.data.store.layout import SPLITS

RECORDING = re.compile(r"\d{5}")  # names of their folders
_DETECTIONS = ("appleFace", "appleLeftEye", "appleRightEye", "faceGrid")
_ORIENTATIONS = (1, 2, 3, 4)  # portrait, upside down, landscape with the home button right, left


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording of N frames."""

    split: str
    device: str
    names: list[str]  # of the frames, in the folder `frames`
    faults: list[str]  # why the data set itself excludes each frame; "": it does not
    on_screen: OnScreen
    targets_mm: NDArray | None  # (N, 3) in the camera frame; None if there is no dotInfo.json


def read_recording(folder: Path) -> Recording:
    """Read info.json, frames.json, the four detections and, if they exist, dotInfo.json and screen.json.

    Raises:
        UserError: A file is missing or not JSON, or its arrays do not have one entry per frame; the message names the
            file.
    """
    info = _read_json(folder / "info.json", dict)
    split = info.get("Dataset")
    if split not in SPLITS:
        raise UserError(f"{folder / 'info.json'}: Dataset is {split!r}, not one of {', '.join(SPLITS)}")
    names = [str(name) for name in _read_json(folder / "frames.json", list)]
    targets_mm, on_screen, orientations = None, [None] * len(names), None
    if (folder / "screen.json").exists():
        width, height, orientations = _read_arrays(folder, "screen", ("W", "H", "Orientation"), len(names))
    if (folder / "dotInfo.json").exists():
        x, y, x_cm, y_cm = _read_arrays(folder, "dotInfo", ("XPts", "YPts", "XCam", "YCam"), len(names))
        targets_mm = np.column_stack([-10 * x_cm, -10 * y_cm, np.zeros(len(names))])
        if orientations is not None:
            on_screen = lie_on_screen(np.column_stack([x, y]), np.column_stack([width, height]))
    return Recording(
        split=split,
        device=str(info.get("DeviceName", "")),
        names=names,
        faults=_find_faults(folder, len(names), orientations),
        on_screen=on_screen,
        targets_mm=targets_mm,
    )


def _find_faults(folder: Path, count: int, orientations: NDArray | None) -> list[str]:
    invalid: list[list[str]] = [[] for _ in range(count)]
    for detection in _DETECTIONS:
        if detection == "faceGrid" and not (folder / "faceGrid.json").exists():
            continue  # optional, as it is derived from appleFace
        flags = _read_json(folder / f"{detection}.json", dict).get("IsValid")
        if not isinstance(flags, list) or len(flags) != count:
            raise UserError(f"{folder / detection}.json: IsValid is not a list of {count} flags, one per frame")
        for detections, flag in zip(invalid, flags, strict=True):
            detections += [] if flag else [detection]
    faults = [f"IsValid 0 in {', '.join(detections)}" if detections else "" for detections in invalid]
    for row, orientation in enumerate(() if orientations is None else orientations):
        if orientation not in _ORIENTATIONS and not faults[row]:
            faults[row] = f"screen.json: Orientation is {orientation:g}, not one of 1 to 4"
    return faults


def _read_arrays(folder: Path, name: str, keys: Sequence[str], count: int) -> list[NDArray]:
    """Read arrays of one number per frame, float64; null becomes NaN."""
    content = _read_json(folder / f"{name}.json", dict)
    arrays = []
    for key in keys:
        try:
            array = np.asarray(content.get(key), np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != (count,):
            raise UserError(f"{folder / name}.json: {key} is not a list of {count} numbers, one per frame")
        arrays.append(array)
    return arrays


def _read_json(path: Path, kind: type) -> list | dict:
    with reading(path):
        content = json.loads(path.read_text(encoding="utf-8-sig", errors="surrogateescape"))
    if not isinstance(content, kind):
        raise UserError(f"{path}: not a JSON {kind.__name__}")
    return content


def list_recordings(raw: Path) -> list[str]:
    """List the folders NNNNN, sorted."""
    return sorted(folder.name for folder in raw.glob("*/") if RECORDING.fullmatch(folder.name))


class GazeCapture(SupplementaryReader):
    """The recordings in the raw folder or the supplementary annotation; only those in both yield frames."""

    def __init__(self, raw: Path, supplementary: Path | None) -> None:
        """Check that the folder and the annotation belong together.

        Raises:
            UserError: There is no annotation, or the folder contains none of its recordings.
        """
        if supplementary is None:
            raise UserError(
                f"{raw}: raw GazeCapture contains no head poses; set `supplementary` of this data set to FAZE's "
                f"supplementary HDF5, or to the one that `faze landmarks --raw {raw}` writes"
            )
        super().__init__(raw, supplementary, split="", layout="GazeCapture")  # each recording states its own split

    def persons(self) -> list[str]:
        """List the recordings, sorted."""
        return sorted({*super().persons(), *list_recordings(self._raw)})

    def count(self, person: str) -> int:
        """Count the annotated frames; 1 for an incomplete recording."""
        return super().count(person) if person in self._counts else 1

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """See Reader; a recording with a damaged JSON file yields one Reject."""
        if person not in self._counts:
            yield Reject(person, "", "not in the supplementary annotation")
            return
        if not (self._raw / person).is_dir():
            yield Reject(person, "", f"no folder {person}")
            return
        try:
            recording = read_recording(self._raw / person)
        except UserError as error:
            yield Reject(person, "", str(error))
            return
        rows = {PurePosixPath(name).name: row for row, name in reversed(list(enumerate(recording.names)))}
        for entry in self.entries_of(person, recording.split, recording.device, {}):
            row = rows.get(PurePosixPath(entry.file_name).name)
            fault = "not listed in frames.json" if row is None else recording.faults[row]
            if isinstance(entry, Reject):
                yield entry
            elif fault:
                yield Reject(person, entry.file_name, fault)
            else:
                yield dataclasses.replace(entry, on_screen=recording.on_screen[row])
