"""The MATLAB files of each laptop's camera and screen in MPIIGaze and MPIIFaceGaze, pXX/Calibration/*.mat."""

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.readers import check_distortion

CAMERA, SCREEN = Path("Calibration", "Camera.mat"), Path("Calibration", "screenSize.mat")


def read_camera(path: Path) -> tuple[NDArray, NDArray]:
    """Return the (3, 3) camera matrix in px and the (d,) distortion coefficients of a laptop.

    Raises:
        UserError: The file is missing or damaged, or contains no camera.
    """
    return check_camera(*_read_matrices(path, "cameraMatrix", "distCoeffs"), path)


def read_screen_px(path: Path) -> tuple[float, float] | None:
    """Return the width and height of a screen in px; None if there is no file.

    Raises:
        UserError: The file is damaged or contains no size.
    """
    if not path.exists():
        return None
    width, height = (array.ravel() for array in _read_matrices(path, "width_pixel", "height_pixel"))
    if len(width) != 1 or len(height) != 1 or not (0 < width[0] < np.inf and 0 < height[0] < np.inf):
        raise UserError(f"{path}: width_pixel and height_pixel must each be a single positive number")
    return float(width[0]), float(height[0])


def _read_matrices(path: Path, *names: str) -> list[NDArray[np.float64]]:
    from scipy.io import loadmat  # slow to import

    with reading(path):
        found = loadmat(io.BytesIO(path.read_bytes()), variable_names=names)
    if missing := [name for name in names if name not in found or found[name].dtype.kind not in "iuf"]:
        raise UserError(f"{path}: contains no matrix {missing[0]!r}")
    return [found[name].astype(np.float64) for name in names]


def check_camera(matrix: NDArray, distortion: NDArray, path: Path) -> tuple[NDArray, NDArray]:
    """Return the (3, 3) camera matrix in px, and the distortion coefficients as (d,).

    Raises:
        UserError: They are not those of a camera; the message names the file.
    """
    distortion = distortion.ravel()
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all() or matrix[0, 0] <= 0 or matrix[1, 1] <= 0:
        raise UserError(f"{path}: cameraMatrix is not the 3 x 3 matrix of a camera")
    check_distortion(len(distortion), str(path))
    return matrix, distortion
