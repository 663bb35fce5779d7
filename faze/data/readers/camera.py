"""Read calibrated cameras: YAML as OpenCV and ROS write it, or MATLAB files like MPIIFaceGaze's Camera.mat."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading

_MODELS = ("plumb_bob", "rational_polynomial")  # of distortion, as ROS names OpenCV's
_LENGTHS = (4, 5, 8, 12, 14)  # of the distortion coefficients of OpenCV's lens models
Camera = tuple[NDArray, NDArray]  # (3, 3) matrix in px, (d,) distortion in OpenCV's order


class _Loader(yaml.SafeLoader):
    """Also accept matrices that OpenCV wrote, as mappings with rows, cols and data."""


for _kind in ("matrix", "nd-matrix"):
    _Loader.add_constructor(
        f"tag:yaml.org,2002:opencv-{_kind}", lambda loader, node: loader.construct_mapping(node, deep=True)
    )


def read_small_yaml(path: Path) -> dict[str, Any]:
    """Read keys and values, with or without OpenCV's first line `%YAML:1.0`, which is not YAML."""
    with reading(path, "write it again as YAML"):
        text = path.read_text(encoding="utf-8-sig")
        content = yaml.load(text.partition("\n")[2] if text.startswith("%YAML:") else text, _Loader)
        if not isinstance(content, dict):
            raise ValueError("contains no keys and values")
        return content


def read_camera(path: Path) -> tuple[NDArray, NDArray, tuple[int, int] | None]:
    """Read a camera.

    Returns:
        (3, 3) matrix in px; (d,) distortion in OpenCV's order; width and height of the calibrated frames in px, if the
        file states them.

    Raises:
        UserError: The file is missing or describes no camera that OpenCV has a model for; the message names the file.
    """
    size = None
    if path.suffix.lower() == ".mat":
        matrix, distortion = read_mat(path, "cameraMatrix", "distCoeffs")
    elif path.suffix.lower() in (".yaml", ".yml"):
        content = read_small_yaml(path)
        model = "fisheye" if content.get("fisheye_model") else content.get("distortion_model", _MODELS[0])
        if model not in _MODELS:
            raise UserError(f"{path}: distortion model {model} cannot be used: calibrate with {_MODELS[0]}")
        with reading(path, "calibrate again, with OpenCV or ROS"):
            matrix = _find_array(content, "camera_matrix", "cameraMatrix")
            distortion = _find_array(content, "distortion_coefficients", "dist_coeffs", "distCoeffs")
        if {"image_width", "image_height"} <= set(content):
            size = content["image_width"], content["image_height"]
    else:
        raise UserError(f"{path}: the name of a camera's file must end with .yaml, .yml or .mat")
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all() or not (np.diag(matrix) > 0).all():
        raise UserError(f"{path}: the camera matrix is not that of a camera")
    if distortion.size not in _LENGTHS:
        raise UserError(f"{path}: {distortion.size} distortion coefficients, but OpenCV has models for {_LENGTHS}")
    return matrix, distortion.ravel(), size


def read_mat(path: Path, *names: str) -> list[NDArray[np.float64]]:
    """Read matrices of a MATLAB file."""
    from scipy.io import loadmat  # slow to import

    with reading(path):
        found = loadmat(path, variable_names=names)
        return [np.asarray(found[name], np.float64).squeeze() for name in names]


def _find_array(content: dict[str, Any], *names: str) -> NDArray[np.float64]:
    """Convert a matrix of OpenCV or ROS (rows, cols and data), or a list, to an array."""
    name = next((name for name in names if name in content), None)
    if name is None:
        raise ValueError(f"has no {names[0]}")
    value = content[name]
    if not isinstance(value, dict):
        return np.array(value, np.float64)
    shape = value.get("sizes") or (value["rows"], value["cols"])
    return np.array(value["data"], np.float64).reshape(shape)


def assumed_camera(hfov_deg: float, width_px: int, height_px: int) -> Camera:
    """Build the camera of upright images from their horizontal field of view.

    The principal point is the centre of the image, whose first pixel has its centre at (0, 0). The pixels are square
    and the lens has no distortion.
    """
    focal_px = width_px / 2 / np.tan(np.radians(hfov_deg) / 2)
    return np.array([[focal_px, 0, (width_px - 1) / 2], [0, focal_px, (height_px - 1) / 2], [0, 0, 1]]), np.zeros(5)
