"""Read GazeCapture: NNNNN/frames/*.jpg and parallel JSON arrays, with one entry per frame.

GazeCapture annotates the dot but not the head, so head poses and cameras come from FAZE or from `faze landmarks`. Dot
positions are in cm from the camera, to the right and up as seen by the user, who faces the camera.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.readers.person import OUTSIDE, People, Person, is_inside
from faze.data.readers.supplementary import open_people
from faze.data.strips import SPLITS

# Frames are used from this time on after the dot appeared (`Time` in dotInfo.json, see GazeCapture's README). In the
# recording 00002, frames were taken 0.20 to 0.48 s after the dot appeared, and the irises move towards most dots
# between 0.30 and 0.40 s.
SETTLING_S = 0.4
_DETECTIONS = ("appleFace", "appleLeftEye", "appleRightEye")  # faceGrid is derived from the first one


def list_recordings(raw: Path) -> list[str]:
    """Return the sorted names of the folders NNNNN, or raise a UserError if there are none."""
    names = sorted(folder.name for folder in raw.glob("*/") if re.fullmatch(r"\d{5}", folder.name))
    if not names:
        raise UserError(f"{raw}: contains no folders 00002, ...; set the data set's path to their parent folder")
    return names


def open_gazecapture(raw: Path, supplementary: Path | None) -> People:
    """Open a raw folder with the annotation from FAZE or `faze landmarks`; raise a UserError if neither is given."""
    if supplementary is None:
        raise UserError(
            f"{raw}: raw GazeCapture contains no head poses; set `supplementary` of this data set to FAZE's "
            f"supplementary HDF5, or to the one that `faze landmarks --raw {raw}` writes"
        )
    return open_people(raw, list_recordings(raw), read_recording, supplementary)


def read_recording(folder: Path) -> Person:
    """Read a recording, without its cameras or head poses; raise a UserError if a file is damaged."""
    with reading(folder, "info.json must contain Dataset and DeviceName, and frames.json a list of names"):
        info, names = _read_json(folder, "info"), list(map(str, _read_json(folder, "frames")))
        split, device = info["Dataset"], str(info.get("DeviceName", ""))
        if split not in SPLITS:
            raise UserError(f"{folder / 'info.json'}: Dataset is {split!r}, not one of {', '.join(SPLITS)}")
    count, reasons = len(names), ["" if is_inside(name) else OUTSIDE for name in names]
    for detection in _DETECTIONS:
        for row in np.flatnonzero(_read_numbers(folder, detection, count, "IsValid")[:, 0] != 1):
            reasons[row] += f", {detection}" if reasons[row] else f"IsValid 0 in {detection}"
    targets_mm = np.full((count, 3), np.nan)
    if (folder / "dotInfo.json").exists():
        dots = _read_numbers(folder, "dotInfo", count, "XCam", "YCam", "Time")
        targets_mm = np.pad(-10 * dots[:, :2], [(0, 0), (0, 1)])
        for row in np.flatnonzero(dots[:, 2] < SETTLING_S):
            why = f"{dots[row, 2]:.2f} s after the dot appeared, the eyes may not have reached it"
            reasons[row] = reasons[row] or f"{why} (less than {SETTLING_S:g} s)"
    return Person(
        folder.name,
        folder.parent,
        [f"{folder.name}/frames/{name}" for name in names],
        reasons,
        cameras=np.full((count, 3, 3), np.nan),
        distortions=np.zeros((count, 5)),
        poses=np.full((count, 6), np.nan),
        targets_mm=targets_mm,
        split=split,
        device=device,
    )


def _read_json(folder: Path, name: str) -> Any:
    path = folder / f"{name}.json"
    with reading(path):
        return json.loads(path.read_text(encoding="utf-8-sig"))


def _read_numbers(folder: Path, name: str, count: int, *keys: str) -> NDArray[np.float64]:
    """Read lists with one number per frame into the columns of an array (n, keys); null becomes NaN."""
    content = _read_json(folder, name)
    remedy = f"each of {', '.join(keys)} must be a list of {count} numbers, one per frame"
    with reading(folder / f"{name}.json", remedy):
        return np.array([content[key] for key in keys], np.float64).T.reshape(count, len(keys))
