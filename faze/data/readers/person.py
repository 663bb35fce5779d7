"""One person in a data set, as arrays with one row per annotated frame.

Coordinates are in OpenCV's camera frame: x right, y down, z away from the camera, in mm and px.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM

OUTSIDE = "path is outside the data folder"  # a reason to leave a frame out


@dataclass(eq=False)
class Person:
    """The n annotated frames of one person; unknown values are NaN."""

    name: str
    folder: Path  # to which the files are relative
    files: list[str]  # (n,)
    reasons: list[str]  # (n,) why a frame cannot be used; "" if it can
    cameras: NDArray  # (n, 3, 3), px
    distortions: NDArray  # (n, d), OpenCV's order
    poses: NDArray  # (n, 6) rotation vector (rad) and translation (mm), head -> camera
    targets_mm: NDArray  # (n, 3)
    gaze: NDArray | None = None  # (n, 3) unit vectors from target to eye, for a manifest without targets
    corners_mm: NDArray = field(default_factory=lambda: INNER_EYE_CORNERS_14_MM)  # (2, 3) or (n, 2, 3), head frame
    split: str = ""  # train | val | test; "" if not stated
    device: str = ""
    source: str = "annotated"  # of the labels: annotated | supplementary | estimated | assumed_camera

    def targets_from(self, origins_mm: NDArray) -> NDArray:
        """Return targets (n, 3): the annotated ones, or points 1 m along the gaze from the gaze origins (n, 3)."""
        return self.targets_mm if self.gaze is None else origins_mm - 1000 * self.gaze

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> "Person":
        """Return the person with only the selected frames."""
        names = ["cameras", "distortions", "poses", "targets_mm", "gaze"]
        if self.corners_mm.ndim == 3:
            names.append("corners_mm")
        arrays = {name: getattr(self, name)[rows] for name in names if getattr(self, name) is not None}
        files, reasons = (np.array(texts, object)[rows].tolist() for texts in (self.files, self.reasons))
        return replace(self, files=files, reasons=reasons, **arrays)


# The people of a data set by name, sorted; each is read when its function is called.
People = Mapping[str, Callable[[], Person]]


def unreadable(name: str, folder: Path, reason: object) -> Person:
    """Return a person without readable frames, whose only row has an empty file name and the reason."""
    nothing = np.full((1, 6), np.nan)
    return Person(name, folder, [""], [str(reason)], np.full((1, 3, 3), np.nan), nothing, nothing, nothing[:, :3])


def is_inside(file_name: str) -> bool:
    """Return whether a file name stays within its folder."""
    path = os.path.normpath(file_name)
    return "\0" not in path and not os.path.isabs(path) and path.split(os.sep)[0] not in (".", "..")


def camera_matrices(fx_fy_cx_cy: NDArray) -> NDArray:
    """Return the camera matrices (n, 3, 3) for intrinsics (n, 4)."""
    matrices = np.tile(np.eye(3), (len(fx_fy_cx_cy), 1, 1))
    matrices[:, [0, 1, 0, 1], [0, 1, 2, 2]] = fx_fy_cx_cy
    return matrices
