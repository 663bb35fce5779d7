"""What the annotation of every data set must keep to, whoever reads it."""

import os
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import ArrayLike

from faze.base.errors import UserError
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import Frame, Reject

# Reasons to leave a frame out that more than one module gives.
OFF_SCREEN = "gaze target off the screen"
OUTSIDE = "path leads out of the data folder"
OnScreen = list[bool | None]  # per annotated frame; None: the screen is not known
_DISTORTION_LENGTHS = (4, 5, 8, 12, 14)  # that OpenCV knows
_PRINCIPAL_SHARE = 0.15  # of a side: how far from the frame's middle a principal point may lie


def is_inside(file_name: str) -> bool:
    """Whether a file name of an annotation can be one, and stays within its raw folder."""
    try:
        os.fsencode(file_name)
    except UnicodeEncodeError:
        return False
    path = PurePosixPath(file_name)
    return bool(file_name) and "\0" not in file_name and not path.is_absolute() and ".." not in path.parts


def check_distortion(count: int, where: str) -> None:
    """Refuse a number of distortion coefficients for which OpenCV has no lens model.

    Raises:
        UserError: says where.
    """
    if count not in _DISTORTION_LENGTHS:
        raise UserError(f"{where}: {count} distortion coefficients, not one of {_DISTORTION_LENGTHS}")


def lie_on_screen(targets: ArrayLike, sizes: ArrayLike | None) -> OnScreen:
    """Tell of each gaze target whether it lies on the screen.

    MPIIFaceGaze's targets are pixels of the laptop's screen; some lie off it (8.8 % of person p07's, none or below
    0.4 % of the others'). GazeCapture's are points of a screen whose size is in each recording's screen.json.

    Args:
        targets: (N, 2) from the screen's top left corner, px or points.
        sizes: (2,) width and height of the screen in the same unit, or (N, 2); None where it is not known.
    """
    points = np.asarray(targets, np.float64).reshape(-1, 2)
    if sizes is None:
        return [None] * len(points)
    sizes = np.broadcast_to(np.asarray(sizes, np.float64), points.shape)
    within = ((points >= 0) & (points <= sizes)).all(axis=1)
    known = np.isfinite(points).all(axis=1) & (sizes > 0).all(axis=1)
    return [bool(is_within) if is_known else None for is_within, is_known in zip(within, known, strict=True)]


def check_entries(entries: Iterable[Frame | Reject], exclude_off_screen: bool) -> Iterator[Frame | Reject]:
    """Turn a frame that is listed again into a reject, and one whose target lies off the screen if that is wanted.

    A target lies off the screen only where the screen is known.

    Args:
        entries: of one person, from the first on.
        exclude_off_screen: whether frames with a target off the screen are left out.
    """
    seen: set[str] = set()
    for entry in entries:
        reason = ""
        if entry.file_name and entry.file_name in seen:
            reason = "listed twice"
        elif exclude_off_screen and isinstance(entry, Frame) and entry.on_screen is False:
            reason = OFF_SCREEN
        seen.add(entry.file_name)
        yield Reject(entry.person_id, entry.file_name, reason) if reason else entry


def check_size(frame: Frame, width_px: int, height_px: int) -> None:
    """Refuse an image that its annotated camera cannot have taken: scaled, cropped or turned since.

    The annotations state no frame size, so the rule depends on image and intrinsics alone: the principal point lies
    near the middle. An image of half or twice the size misses that by a quarter of its sides or more, one of 4:3 turned
    by a quarter by about a sixth: just enough, unless its camera is far off the middle itself.

    Raises:
        UnusableFrame: says the size.
    """
    for axis, (side_px, name) in enumerate(((width_px, "x"), (height_px, "y"))):
        principal_px = float(frame.camera_matrix[axis, 2])
        if not abs(principal_px / side_px - 0.5) <= _PRINCIPAL_SHARE:
            raise UnusableFrame(
                f"the {width_px} x {height_px} frame is not its camera's: principal point {name} = {principal_px:.0f}"
            )
