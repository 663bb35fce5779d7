"""Read camera calibrations from YAML (as written by OpenCV or ROS) or MATLAB files like MPIIFaceGaze's Camera.mat."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading

_MODELS = ("plumb_bob", "rational_polynomial")  # ROS's names of OpenCV's distortion models
_LENGTHS = (4, 5, 8, 12, 14)  # numbers of distortion coefficients in OpenCV's lens models
FIELD_OF_VIEW_DEG = (20.0, 150.0)  # plausible range for a camera that sees a face
Camera = tuple[NDArray, NDArray]  # (3, 3) matrix in px, (d,) distortion in OpenCV's order


def read_small_yaml(path: Path) -> dict[str, Any]:
    """Read keys and values from YAML, ignoring OpenCV's first line and matrix tags, which are not plain YAML."""
    with reading(path, "write it as YAML, as docs/how-to/own-frames.md describes"):
        text = path.read_text(encoding="utf-8-sig")
        content = yaml.safe_load(re.sub(r"^%YAML:.*|!!opencv-matrix", "", text))
        if not isinstance(content, dict):
            raise ValueError("must contain keys and values")
        return content


def read_camera(path: Path) -> tuple[NDArray, NDArray, tuple[int, int] | None]:
    """Return the matrix and distortion (see `Camera`) and, if known, the frame's width and height in px at calibration.

    Raise a UserError if the file cannot be read or describes an unsupported camera model.
    """
    size = None
    if path.suffix.lower() == ".mat":
        from scipy.io import loadmat  # slow to import

        with reading(path):
            content = loadmat(path)
            matrix, distortion = (content[name].astype(np.float64) for name in ("cameraMatrix", "distCoeffs"))
    else:
        content = read_small_yaml(path)
        model = "fisheye" if content.get("fisheye_model") else content.get("distortion_model", _MODELS[0])
        if model not in _MODELS:
            raise UserError(f"{path}: distortion model {model} cannot be used: calibrate with the model {_MODELS[0]}")
        with reading(path, "it must contain camera_matrix and distortion_coefficients, as OpenCV and ROS write them"):
            values = (content[name]["data"] for name in ("camera_matrix", "distortion_coefficients"))
            matrix, distortion = (np.array(numbers, np.float64) for numbers in values)
        if {"image_width", "image_height"} <= set(content):
            size = content["image_width"], content["image_height"]
    if matrix.size != 9 or not (np.diag(matrix.reshape(3, 3)) > 0).all() or distortion.size not in _LENGTHS:
        raise UserError(f"{path}: needs a (3, 3) camera matrix in px and a distortion vector with length in {_LENGTHS}")
    return matrix.reshape(3, 3), distortion.ravel(), size


def assumed_camera(hfov_deg: float, width_px: int, height_px: int) -> Camera:
    """Build a centred camera without distortion from the horizontal field of view of upright images."""
    focal_px = width_px / 2 / np.tan(np.radians(hfov_deg) / 2)
    return np.array([[focal_px, 0, (width_px - 1) / 2], [0, focal_px, (height_px - 1) / 2], [0, 0, 1]]), np.zeros(5)
