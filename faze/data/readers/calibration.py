"""The files about a person's laptop in MPIIGaze and MPIIFaceGaze, pXX/Calibration/*.mat: its camera and its screen."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.readers.annotation_checks import check_distortion
from faze.data.readers.matlab import read_matlab

CAMERA = Path("Calibration", "Camera.mat")
SCREEN = Path("Calibration", "screenSize.mat")


def read_camera(folder: Path) -> tuple[NDArray, NDArray]:
    """Read the (3, 3) camera matrix in px and the (d,) distortion coefficients of a person's laptop.

    Raises:
        UserError: the file is missing, torn or holds no camera; names it.
    """
    path = folder / CAMERA
    if not path.is_file():
        raise UserError(
            f"{path}: no such file; person {folder.name} cannot be normalised without the camera's intrinsics"
        )
    matrix, distortion = read_matlab(path, ("cameraMatrix", "distCoeffs"))
    distortion = distortion.ravel()
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all() or matrix[0, 0] <= 0 or matrix[1, 1] <= 0:
        raise UserError(f"{path}: cameraMatrix is not the 3 x 3 matrix of a camera")
    check_distortion(len(distortion), str(path))
    return matrix, distortion


def read_screen_px(folder: Path) -> tuple[float, float] | None:
    """Read width and height of a person's screen in px; None where no file states them.

    Raises:
        UserError: the file is torn or states no size; names it.
    """
    path = folder / SCREEN
    if not path.is_file():
        return None
    width, height = (array.ravel() for array in read_matlab(path, ("width_pixel", "height_pixel")))
    if len(width) != 1 or len(height) != 1 or not (0 < width[0] < np.inf and 0 < height[0] < np.inf):
        raise UserError(f"{path}: width_pixel and height_pixel are not one positive number each")
    return float(width[0]), float(height[0])


def unknown_screens(folders: Sequence[Path]) -> str:
    """Say in one sentence whose screen is not known; "" where all screens are."""
    without = [folder.name for folder in folders if not (folder / SCREEN).is_file()]
    some = ", ".join(without[:3]) + (", ..." if len(without) > 3 else "")
    if not without:
        return ""
    return f"{len(without)} of {len(folders)} people ({some}) have no {SCREEN}: whether they look off it is not known"
