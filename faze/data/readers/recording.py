"""One recording of GazeCapture as its own files have it: parallel JSON arrays, one entry per frame.

Camera frame: x right, y down, z away from the camera; mm. GazeCapture's own dots are in cm from the camera, to the
right and up as the user sees the screen, which the camera sees from its other side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import parse_json, read_plain, reason_of
from faze.data.readers.annotation_checks import OnScreen, lie_on_screen
from faze.data.store.layout import SPLITS

_DETECTIONS = ("appleFace", "appleLeftEye", "appleRightEye", "faceGrid")
_ORIENTATIONS = (1, 2, 3, 4)  # portrait, upside down, landscape with the home button right, left


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording of N frames."""

    split: str
    device: str
    names: list[str]  # of the frames, in the folder `frames`
    faults: list[str]  # what the data set itself says against each frame; "" = nothing
    on_screen: OnScreen
    targets_mm: NDArray | None  # (N, 3) in the camera frame; None where no dotInfo.json is


def read_recording(folder: Path) -> Recording:
    """Read info.json, frames.json, the four detections and, where they are there, dotInfo.json and screen.json.

    Raises:
        UserError: a file is missing, not JSON, or its arrays are not one entry per frame; names the file.
    """
    info = _read_json(folder / "info.json", dict)
    split = info.get("Dataset")
    if split not in SPLITS:
        raise UserError(f"info.json: Dataset is {split!r}, not one of {', '.join(SPLITS)}")
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
        device=str(info.get("DeviceName", "")).encode("utf-8", "backslashreplace").decode().replace("\0", ""),
        names=names,
        faults=_find_faults(folder, len(names), orientations),
        on_screen=on_screen,
        targets_mm=targets_mm,
    )


def _find_faults(folder: Path, count: int, orientations: NDArray | None) -> list[str]:
    invalid: list[list[str]] = [[] for _ in range(count)]
    for detection in _DETECTIONS:
        if detection == "faceGrid" and not (folder / "faceGrid.json").exists():
            continue  # derived from appleFace
        flags = _read_json(folder / f"{detection}.json", dict).get("IsValid")
        if not isinstance(flags, list) or len(flags) != count:
            raise UserError(f"{detection}.json: IsValid is not a list of {count} flags, one per frame")
        for detections, flag in zip(invalid, flags, strict=True):
            detections += [] if flag else [detection]
    faults = [f"IsValid 0 in {', '.join(detections)}" if detections else "" for detections in invalid]
    for row, orientation in enumerate(() if orientations is None else orientations):
        if orientation not in _ORIENTATIONS and not faults[row]:
            faults[row] = f"screen.json: Orientation is {orientation:g}, not one of 1 to 4"
    return faults


def _read_arrays(folder: Path, name: str, keys: Sequence[str], count: int) -> list[NDArray]:
    """Read arrays of one number per frame, float64; NaN where it is null."""
    content = _read_json(folder / f"{name}.json", dict)
    arrays = []
    for key in keys:
        try:
            array = np.asarray(content.get(key), np.float64)
        except (TypeError, ValueError, OverflowError):
            array = np.empty(0)
        if array.shape != (count,):
            raise UserError(f"{name}.json: {key} is not a list of {count} numbers, one per frame")
        arrays.append(array)
    return arrays


def _read_json(path: Path, kind: type) -> list | dict:
    try:
        content = parse_json(read_plain(path).decode(errors="surrogateescape"))
    except OSError as error:
        raise UserError(f"{path.name}: {reason_of(error)}") from None
    except ValueError:
        raise UserError(f"{path.name}: not JSON") from None
    if not isinstance(content, kind):
        raise UserError(f"{path.name}: not a JSON {kind.__name__}")
    return content
