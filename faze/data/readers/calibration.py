"""The MATLAB files of each laptop's camera and screen in MPIIGaze and MPIIFaceGaze, pXX/Calibration/*.mat.

scipy crashes on some damaged files of this kind, so an isolated process reads the files of all people once.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.untrusted import read_isolated, read_untrusted
from faze.data.readers import check_distortion

CAMERA, SCREEN = Path("Calibration", "Camera.mat"), Path("Calibration", "screenSize.mat")
_MATRICES = {CAMERA: ("cameraMatrix", "distCoeffs"), SCREEN: ("width_pixel", "height_pixel")}
_MOST_NUMBERS = 1000  # of a matrix


class Calibrations:
    """The matrices in all people's MATLAB files."""

    def __init__(self, people: Path, persons: Sequence[str]) -> None:
        """Read the files of `persons`, whose folders are in `people`; a damaged file is refused when it is needed."""
        files = [str(path) for person in persons for name in _MATRICES if (path := people / person / name).is_file()]
        self._found = read_matrix_files(people, files)

    def _matrices(self, path: Path) -> list[NDArray[np.float64]]:
        found = self._found[str(path)]
        if isinstance(found, str):
            raise UserError(found)
        return [np.array(matrix, np.float64) for matrix in found]

    def camera(self, folder: Path) -> tuple[NDArray, NDArray]:
        """Return the (3, 3) camera matrix in px and the (d,) distortion coefficients of a person's laptop.

        Raises:
            UserError: The file is missing or damaged, or contains no camera.
        """
        path = folder / CAMERA
        if str(path) not in self._found:
            raise UserError(
                f"{path}: no such file; person {folder.name} cannot be normalised without the camera's intrinsics"
            )
        matrix, distortion = self._matrices(path)
        return check_camera(matrix, distortion, path)

    def screen_px(self, folder: Path) -> tuple[float, float] | None:
        """Return the width and height of a person's screen in px; None if no file contains them.

        Raises:
            UserError: The file is damaged or contains no size.
        """
        path = folder / SCREEN
        if str(path) not in self._found:
            return None
        width, height = (array.ravel() for array in self._matrices(path))
        if len(width) != 1 or len(height) != 1 or not (0 < width[0] < np.inf and 0 < height[0] < np.inf):
            raise UserError(f"{path}: width_pixel and height_pixel must each be a single positive number")
        return float(width[0]), float(height[0])


def read_matrix_files(folder: Path, files: Sequence[str]) -> dict[str, Sequence[list] | str]:
    """Read the matrices of MATLAB files in an isolated process.

    Args:
        folder: Folder that contains the files, for messages.
        files: Paths of the files.

    Returns:
        By path, the matrices as nested lists, or the reason why there are none.
    """
    found: dict[str, Sequence[list] | str] = {}
    try:
        found = read_isolated(folder, read_matrices, files) if files else {}
    except UserError:  # one of the files crashes scipy
        for path in files:
            try:
                found |= read_isolated(path, read_matrices, [path])
            except UserError as error:
                found[path] = str(error)
    return found


def read_matrices(_: str, files: Sequence[str]) -> dict[str, Sequence[list] | str]:
    """Read the matrices of each file as nested lists, or return the reason why it cannot be read."""
    found: dict[str, Sequence[list] | str] = {}
    for path in files:
        try:
            found[path] = read_untrusted(path, lambda content, path=path: _parse(content, Path(path)))
        except UserError as error:
            found[path] = str(error)
    return found


def _parse(content: bytes, path: Path) -> list[list]:
    from scipy.io import loadmat  # slow to import, and needed by the isolated process only

    names = _MATRICES.get(Path(path.parent.name, path.name), _MATRICES[CAMERA])
    found = loadmat(io.BytesIO(content), variable_names=names)
    for name in names:
        if name not in found:
            raise UserError(f"{path}: has no {name!r}")
        if found[name].dtype.kind not in "iuf" or found[name].size > _MOST_NUMBERS:
            raise UserError(f"{path}: {name} is not a small matrix of real numbers")
    return [found[name].astype(np.float64).tolist() for name in names]


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


def describe_unknown_screens(folders: Sequence[Path]) -> str:
    """List the people whose screen is unknown, in one sentence; return "" if all screens are known."""
    without = [folder.name for folder in folders if not (folder / SCREEN).is_file()]
    some = ", ".join(without[:3]) + (", ..." if len(without) > 3 else "")
    if not without:
        return ""
    return (
        f"{len(without)} of {len(folders)} people ({some}) have no {SCREEN}: whether their targets are on the "
        "screen is unknown"
    )
