"""Read GazeCapture: NNNNN/frames/*.jpg and parallel JSON arrays, one entry per frame.

GazeCapture annotates the dot, not the head: the head pose and the camera come from FAZE or from `faze landmarks`. Its
own files contain each recording's split and device, and the frames on which its detectors failed. Its dots are in cm
from the camera, right and up as the user sees it, whereas the camera faces the user.
"""

import functools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.readers.person import OUTSIDE, People, Person, is_inside, lie_on_screen, unreadable
from faze.data.readers.supplementary import supplementary_people, with_supplementary

SPLITS = ("train", "val", "test")
_DETECTIONS = ("appleFace", "appleLeftEye", "appleRightEye", "faceGrid")


def list_recordings(raw: Path) -> list[str]:
    """List the folders NNNNN, sorted."""
    return sorted(folder.name for folder in raw.glob("*/") if re.fullmatch(r"\d{5}", folder.name))


def open_gazecapture(raw: Path, supplementary: Path | None) -> People:
    """Open a raw folder with FAZE's annotation, or that of `faze landmarks`.

    Raises:
        UserError: There is no annotation, or the folder contains no recording.
    """
    if supplementary is None:
        raise UserError(
            f"{raw}: raw GazeCapture contains no head poses; set `supplementary` of this data set to FAZE's "
            f"supplementary HDF5, or to the one that `faze landmarks --raw {raw}` writes"
        )
    recordings = list_recordings(raw)
    if not recordings:
        raise UserError(f"{raw}: contains no folder 00002, ...; set the path of this data set to the folder that does")
    names = sorted({*recordings, *supplementary_people(supplementary)})
    return {name: functools.partial(_read, raw, name, supplementary) for name in names}


def _read(raw: Path, name: str, supplementary: Path) -> Person:
    own = read_recording(raw / name)
    return with_supplementary(own, supplementary) if own.split else own


def read_recording(folder: Path) -> Person:
    """Read a recording without cameras and head poses; a damaged one gives one reason, which names the file."""
    try:
        return _read_recording(folder)
    except UserError as error:
        return unreadable(folder.name, folder.parent, error)


def _read_recording(folder: Path) -> Person:
    info = _read_json(folder, "info")
    with reading(folder / "frames.json"):
        names = [str(name) for name in _read_json(folder, "frames")]
    count = len(names)
    with reading(folder / "info.json"):
        split, device = info["Dataset"], str(info.get("DeviceName", ""))
        if split not in SPLITS:
            raise UserError(f"{folder / 'info.json'}: Dataset is {split!r}, not one of {', '.join(SPLITS)}")
    reasons = ["" if is_inside(name) else OUTSIDE for name in names]
    for detection in _DETECTIONS:
        if detection == "faceGrid" and not (folder / "faceGrid.json").exists():
            continue  # derived from appleFace
        for row in np.flatnonzero(_read_numbers(folder, detection, count, "IsValid")[:, 0] != 1):
            reasons[row] += f", {detection}" if reasons[row] else f"IsValid 0 in {detection}"
    targets_mm, on_screen = np.full((count, 3), np.nan), None
    if (folder / "dotInfo.json").exists():
        dots = _read_numbers(folder, "dotInfo", count, "XPts", "YPts", "XCam", "YCam")
        targets_mm = np.column_stack([-10 * dots[:, 2:], np.zeros(count)])
        if (folder / "screen.json").exists():
            on_screen = lie_on_screen(dots[:, :2], _read_numbers(folder, "screen", count, "W", "H"))
    return Person(
        folder.name,
        folder.parent,
        [f"{folder.name}/frames/{name}" for name in names],
        reasons,
        cameras=np.full((count, 3, 3), np.nan),
        distortions=np.zeros((count, 5)),
        poses=np.full((count, 6), np.nan),
        targets_mm=targets_mm,
        on_screen=on_screen,
        split=split,
        device=device,
    )


def _read_json(folder: Path, name: str) -> Any:
    path = folder / f"{name}.json"
    with reading(path):
        return json.loads(path.read_text(encoding="utf-8-sig"))


def _read_numbers(folder: Path, name: str, count: int, *keys: str) -> NDArray[np.float64]:
    """Read arrays of one number per frame as (n, keys); null becomes NaN."""
    content = _read_json(folder, name)
    with reading(
        folder / f"{name}.json", f"each of {', '.join(keys)} must be a list of {count} numbers, one per frame"
    ):
        return np.array([content[key] for key in keys], np.float64).T.reshape(count, len(keys))
