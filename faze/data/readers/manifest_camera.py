"""The cameras of a manifest: calibration files of OpenCV and MATLAB, or a field of view."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.normalization.images import read_upright_size
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import OUTSIDE, is_inside
from faze.data.readers.calibration import check_camera, read_camera
from faze.data.readers.manifest_columns import CAMERA_COLUMNS, CAMERA_FILE, FIELD_OF_VIEW, INTRINSICS
from faze.data.readers.manifest_table import Table
from faze.data.readers.small_yaml import as_array, read_small_yaml

Camera = tuple[NDArray, NDArray]  # (3, 3) matrix in px, (d,) distortion in OpenCV's order
Size = tuple[int, int]  # width and height of the frames of a calibration
_MATRIX, _DISTORTION = ("camera_matrix", "cameraMatrix"), ("distortion_coefficients", "dist_coeffs", "distCoeffs")
_MODELS = ("plumb_bob", "rational_polynomial")  # of distortion, as ROS names OpenCV's
FIELD_OF_VIEW_DEG = (20.0, 150.0)  # of a camera that sees a face


class Cameras:
    """The camera of each line of a manifest."""

    def __init__(self, table: Table, folder: Path, images: Sequence[str]) -> None:
        """Read the cameras' files, or check the columns that describe the cameras.

        Args:
            table: The manifest.
            folder: Folder to which the names of files are relative.
            images: Name of each line's image.
        """
        self._table, self._folder, self._images = table, folder, images
        self.faults: dict[int, tuple[str, str]] = {}  # by row: column and reason
        self._known: dict[str | bytes, Camera] = {}
        self._sizes: dict[str, Size | None] = {}
        self._numbers = np.empty((len(table), 0))
        if table.layout.camera == CAMERA_FILE:
            cameras = read_cameras(folder, table.texts["camera"])
            for row, name in enumerate(table.texts["camera"]):
                if isinstance(known := cameras[name], str):
                    self.faults[row] = "camera", known
                else:
                    self._known[name], self._sizes[name] = known
        elif table.layout.camera == CAMERA_COLUMNS:
            self._numbers = table.array(*INTRINSICS, *table.layout.lens)
            for name in INTRINSICS[:2]:
                for row in np.flatnonzero(table.numbers[name] <= 0).tolist():
                    self.faults[row] = name, "a focal length must be positive"
        else:
            self._check_fields_of_view(table.numbers[FIELD_OF_VIEW])

    def _check_fields_of_view(self, degrees: NDArray) -> None:
        least, most = FIELD_OF_VIEW_DEG
        for row in np.flatnonzero((degrees < least) | (degrees > most)).tolist():
            hint = ": is it in radians?" if degrees[row] < np.pi else ""
            reason = f"{degrees[row]:g} is not between {least:g} and {most:g} degrees{hint}"
            self.faults[row] = FIELD_OF_VIEW, reason

    def of(self, row: int) -> Camera:
        """Return the camera of a row without a fault; equal cameras are the same arrays.

        Raises:
            UnusableFrame: The camera depends on the size of the image, which cannot be read or is not that of the
                calibration.
        """
        if self._table.layout.camera == CAMERA_FILE:
            name = self._table.texts["camera"][row]
            if size := self._sizes[name]:
                check_calibrated_size(size, *read_upright_size(self._folder / self._images[row]))
            return self._known[name]
        if self._table.layout.camera == FIELD_OF_VIEW:
            size = read_upright_size(self._folder / self._images[row])
            return assume_camera(self._table.numbers[FIELD_OF_VIEW][row], *size)
        key = self._numbers[row].tobytes()
        if key not in self._known:
            fx, fy, cx, cy, *distortion = self._numbers[row].tolist()
            matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
            self._known[key] = matrix, np.array(distortion or [0.0] * 5)
        return self._known[key]


def check_calibrated_size(size: Size, width_px: int, height_px: int) -> None:
    """Refuse a frame of another size than those of the calibration with UnusableFrame."""
    if size != (width_px, height_px):
        raise UnusableFrame(
            f"the lens was calibrated with {size[0]} x {size[1]} px, but the frame has {width_px} x {height_px}: "
            "calibrate with frames of this size"
        )


def read_cameras(folder: Path, names: Iterable[str]) -> dict[str, tuple[Camera, Size | None] | str]:
    """Read calibration files: YAML as OpenCV and ROS write it, or MATLAB files like MPIIFaceGaze's Camera.mat.

    Args:
        folder: Folder to which the names are relative.
        names: Names of the files.

    Returns:
        For each name, the camera and the size of its frames, if the file states it, or the reason why there is none.
    """
    found: dict[str, tuple[Camera, Size | None] | str] = {}
    for name in sorted(set(names)):
        try:
            found[name] = _read_camera(folder, name)
        except UserError as error:
            found[name] = str(error)
    return found


def _read_camera(folder: Path, name: str) -> tuple[Camera, Size | None]:
    path = folder / name
    if not is_inside(name):
        raise UserError(f"camera {name!r}: {OUTSIDE}" if name else "is empty")
    if path.suffix.lower() == ".mat":
        return read_camera(path), None
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise UserError(f"{path}: the name of a camera's file must end with .yaml, .yml or .mat")
    content = read_small_yaml(path)
    model = "fisheye" if content.get("fisheye_model") else content.get("distortion_model")
    if model and model not in _MODELS:
        raise UserError(f"{path}: distortion model {model} cannot be used: calibrate with {_MODELS[0]}")
    camera = check_camera(_find_array(content, _MATRIX, path), _find_array(content, _DISTORTION, path), path)
    width, height = content.get("image_width"), content.get("image_height")
    return camera, (width, height) if isinstance(width, int) and isinstance(height, int) else None


def _find_array(content: Mapping[str, object], names: Sequence[str], path: Path) -> NDArray:
    """Convert a matrix of OpenCV or ROS (rows, cols and data), or a list, to an array."""
    name = next((name for name in names if name in content), None)
    if name is None:
        raise UserError(f"{path}: has no {names[0]}")
    value = content[name]
    try:
        if isinstance(value, Mapping):
            shape = value["sizes"] if "sizes" in value else [value["rows"], value["cols"]]
            return as_array(value["data"]).reshape(as_array(shape).astype(int))
        return as_array(value)
    except (KeyError, ValueError):
        raise UserError(f"{path}: {name} is not a matrix of numbers") from None


def assume_camera(hfov_deg: float, width_px: int, height_px: int) -> Camera:
    """Build the camera of an image from its horizontal field of view.

    The principal point is the centre of the image, whose first pixel has its centre at (0, 0). The pixels are square
    and the lens has no distortion.
    """
    focal_px = width_px / 2 / np.tan(np.radians(hfov_deg) / 2)
    matrix = np.array([[focal_px, 0, (width_px - 1) / 2], [0, focal_px, (height_px - 1) / 2], [0, 0, 1]])
    return matrix, np.zeros(5)
