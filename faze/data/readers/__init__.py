"""Read the raw files of a data set into one record per annotated frame: a Frame, or a Reject with the reason.

All coordinates are OpenCV's, in the camera frame: x right, y down, z away from the camera, in mm and px.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import UserError
from faze.data.normalization.pose import UnusableFrame

RENDERED_MARK = "rendered_by_faze.txt"  # a file in a raw folder that `faze synthesise` wrote


@dataclass(frozen=True, eq=False)
class Frame:
    """One annotated camera frame: everything that normalisation needs except the pixels."""

    person_id: str
    image_path: Path
    file_name: str  # relative to the raw folder; kept in the store
    camera_matrix: NDArray  # (3, 3), px
    distortion: NDArray  # (d,), OpenCV's order
    rotation_vector: NDArray  # (3,) head -> camera, rad
    translation_mm: NDArray  # (3,) head -> camera
    gaze_target_mm: NDArray  # (3,)
    inner_eye_corners_mm: NDArray  # (2, 3) in the head's model frame
    split: str  # train | val | test; "" if the data set does not state it
    frame_index: int = 0  # position in the person's annotation, from 0
    label_source: str = "annotated"  # one of faze.data.store.layout.LABEL_SOURCES
    on_screen: bool | None = None  # whether the gaze target is on the screen; None if the screen is unknown
    device: str = ""  # the data set's name of the device that recorded the frame


@dataclass(frozen=True)
class Reject:
    """An annotated frame that is left out, and the reason; an empty file name means all frames of the person."""

    person_id: str
    file_name: str
    reason: str


class Reader(Protocol):
    """A raw data set on disk."""

    layout: str  # name of the data set whose folders and files these are

    def persons(self) -> list[str]:
        """List the people, sorted."""

    def count(self, person: str) -> int:
        """Count the annotated frames of a person: `entries` yields at most as many records.

        Return 1 if none can be read, since `entries` then yields one Reject with the reason.
        """

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """Read a person's records, in the order of the annotation.

        If the person's files are missing, damaged or in the wrong format, yield one Reject that names the file.
        """


OUTSIDE = "path leads out of the data folder"  # a reason to leave a frame out
OnScreen = list[bool | None]  # per annotated frame; None: the screen is unknown
_DISTORTION_LENGTHS = (4, 5, 8, 12, 14)  # of OpenCV's lens models
_PRINCIPAL_SHARE = 0.15  # of a side: largest distance of the principal point from the middle of the frame


def is_inside(file_name: str) -> bool:
    """Return whether a file name in an annotation is valid and stays within its raw folder."""
    return bool(file_name) and not file_name.startswith("/") and ".." not in file_name.split("/")


def check_distortion(count: int, where: str) -> None:
    """Refuse a number of distortion coefficients for which OpenCV has no lens model.

    Raises:
        UserError: There is no such model; the message contains `where`.
    """
    if count not in _DISTORTION_LENGTHS:
        raise UserError(f"{where}: {count} distortion coefficients, but OpenCV has models for {_DISTORTION_LENGTHS}")


def lie_on_screen(targets: ArrayLike, sizes: ArrayLike | None) -> OnScreen:
    """Determine whether each gaze target is on the screen.

    In MPIIFaceGaze, targets are given in pixels of the laptop's screen; some are off the screen (8.8 % for person p07,
    at most 0.4 % for others). In GazeCapture, they are given in points of a screen whose size is in each recording's
    screen.json.

    Args:
        targets: (N, 2) from the screen's top left corner, px or points.
        sizes: (2,) width and height of the screen in the same unit, or (N, 2); None if it is unknown.
    """
    points = np.asarray(targets, np.float64).reshape(-1, 2)
    if sizes is None:
        return [None] * len(points)
    sizes = np.broadcast_to(np.asarray(sizes, np.float64), points.shape)
    within = ((points >= 0) & (points <= sizes)).all(axis=1)
    known = np.isfinite(points).all(axis=1) & (sizes > 0).all(axis=1)
    return [bool(is_within) if is_known else None for is_within, is_known in zip(within, known, strict=True)]


def check_entries(entries: Iterable[Frame | Reject]) -> Iterator[Frame | Reject]:
    """Replace frames of one person that are listed twice with rejects."""
    seen: set[str] = set()
    for entry in entries:
        listed_twice = entry.file_name and entry.file_name in seen
        seen.add(entry.file_name)
        yield Reject(entry.person_id, entry.file_name, "listed twice") if listed_twice else entry


def check_size(frame: Frame, width_px: int, height_px: int) -> None:
    """Refuse an image that was scaled, cropped or rotated, so that it does not match its annotated camera.

    Annotations do not contain the frame size, so the rule depends only on the image and the intrinsics: the principal
    point must be near the centre. In an image of half or twice the size, it is off by at least a quarter of the width
    and height; in a 4:3 image that was rotated by 90 degrees, by about a sixth. That suffices unless the camera's
    principal point is far from the centre.

    Raises:
        UnusableFrame: The message contains the size.
    """
    check_principal_point(frame.camera_matrix, width_px, height_px)


def check_principal_point(camera_matrix: NDArray, width_px: int, height_px: int) -> None:
    """Do the same for a camera matrix (3, 3)."""
    for axis, (side_px, name) in enumerate(((width_px, "x"), (height_px, "y"))):
        principal_px = float(camera_matrix[axis, 2])
        if not abs(principal_px / side_px - 0.5) <= _PRINCIPAL_SHARE:
            raise UnusableFrame(
                f"the {width_px} x {height_px} frame does not match its camera: "
                f"principal point {name} = {principal_px:.0f}"
            )
