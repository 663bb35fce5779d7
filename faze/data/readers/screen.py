"""Whether what a person was told to look at lies on the screen.

MPIIFaceGaze's targets are pixels of the laptop's screen, whose size is in pXX/Calibration/screenSize.mat; some lie off
it (8.8 % of person p07's, none or below 0.4 % of the others'). GazeCapture's are points of a screen whose size is in
each recording's screen.json.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from faze.base.errors import UserError
from faze.data.readers.calibration import SCREEN, read_matlab

OnScreen = list[bool | None]  # per annotated frame; None: the screen is not known


def read_screen_px(folder: Path) -> tuple[float, float] | None:
    """Read width and height of a person's screen in px; None where no file states them.

    Raises:
        UserError: the file is torn or states no size; names it.
    """
    path = folder / SCREEN
    if not path.is_file():
        return None
    width, height = (array.ravel() for array in read_matlab(path, ("width_pixel", "height_pixel")))
    if len(width) != 1 or len(height) != 1 or not (width[0] > 0 and height[0] > 0):
        raise UserError(f"{path}: width_pixel and height_pixel are not one positive number each")
    return float(width[0]), float(height[0])


def lie_on_screen(targets: ArrayLike, sizes: ArrayLike | None) -> OnScreen:
    """Tell of each target whether it lies on the screen.

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


def unknown_screens(folders: Sequence[Path]) -> str:
    """Say in one sentence whose screen is not known; "" where all screens are."""
    without = [folder.name for folder in folders if not (folder / SCREEN).is_file()]
    some = ", ".join(without[:3]) + (", ..." if len(without) > 3 else "")
    if not without:
        return ""
    return f"{len(without)} of {len(folders)} people ({some}) have no {SCREEN}: whether they look off it is not known"
