"""One person of a data set, as arrays with a row per annotated frame.

Coordinates are OpenCV's, in the camera frame: x right, y down, z away from the camera, in mm and px.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM

GAZE_DISTANCE_MM = 1000.0  # of the point that stands for a gaze direction


@dataclass(eq=False)
class Person:
    """The n annotated frames of one person; what is unknown is NaN.

    A person whose files are missing or damaged has one row, with an empty file name and the reason.
    """

    name: str
    folder: Path  # to which the files are relative
    files: list[str]  # (n,)
    reasons: list[str]  # (n,) why a frame cannot be used; "": it can
    cameras: NDArray  # (n, 3, 3), px
    distortions: NDArray  # (n, d), OpenCV's order
    poses: NDArray  # (n, 6) rotation vector (rad) and translation (mm), head -> camera
    targets_mm: NDArray  # (n, 3)
    gaze: NDArray | None = None  # (n, 3) unit vectors from target to eye, of a manifest without targets
    corners_mm: NDArray = field(default_factory=lambda: INNER_EYE_CORNERS_14_MM)  # (2, 3) or (n, 2, 3), head frame
    on_screen: NDArray | None = None  # (n,) 1: the target is on the screen, 0: it is not
    split: str = ""  # train | val | test; "": not stated
    device: str = ""
    source: str = "annotated"  # of the labels: one of LABEL_SOURCES

    def targets_from(self, origins_mm: NDArray) -> NDArray:
        """Return targets (n, 3): the stated ones, or points 1 m from the gaze origins (n, 3) along the gaze."""
        return self.targets_mm if self.gaze is None else origins_mm - GAZE_DISTANCE_MM * self.gaze


def unreadable(name: str, folder: Path, reason: str) -> Person:
    """Return a person of whom no frame can be read."""
    nothing = np.full((1, 6), np.nan)
    return Person(name, folder, [""], [reason], nothing, nothing, nothing, nothing)
