"""Files about a person's laptop in MPIIGaze and MPIIFaceGaze: pXX/Calibration/*.mat."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.readers.annotation_checks import check_distortion

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


def read_matlab(path: Path, names: Sequence[str]) -> list[NDArray]:
    """Read arrays of a MATLAB v5 file as float64.

    Raises:
        UserError: the file is not readable, or lacks an array; names it.
    """
    from scipy.io import loadmat  # here, since only this format needs scipy

    try:
        content = loadmat(path)
        return [np.asarray(content[name], np.float64) for name in names]
    except KeyError as error:
        raise UserError(f"{path}: has no {error}") from None
    except Exception as error:  # scipy has no common class for a torn or foreign file
        raise UserError(f"{path}: not a readable MATLAB file ({error})") from error
