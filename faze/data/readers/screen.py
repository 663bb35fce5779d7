"""The screen of a manifest, and its pose towards the camera: converts targets from px to mm.

The camera faces the user. The camera frame is x right, y down, z away from the camera, so the user sees its x axis
point to the left:

    as the user sees it            in the camera frame, by default

    (0, 0) ----> x_px              top_left_mm = (+, +, 0): left of the camera as the user sees it, and below it
      |                            x_px grows along -x
      v  y_px                      y_px grows along +y
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.readers.small_yaml import as_array, read_small_yaml, shown

FILE = "screen.yaml"
_SIZES = ("width_mm", "height_mm", "width_px", "height_px")
_KEYS = (*_SIZES, "top_left_mm", "rotation_deg")
_SIDE_MM = (40.0, 4000.0)  # sides of a phone and of a projection
_PITCH_MM = (0.02, 3.0)  # size of a pixel, or of an operating system's point
_SQUARE = 1.3  # largest ratio of a pixel's sides
_FARTHEST_MM = 5000.0


@dataclass(frozen=True, eq=False)
class Screen:
    """A flat screen in the camera frame."""

    size_mm: NDArray  # (2,) width, height
    size_px: NDArray  # (2,)
    top_left_mm: NDArray  # (3,)
    axes: NDArray  # (2, 3) directions in which x_px and y_px grow

    def to_mm(self, targets_px: NDArray) -> NDArray:
        """Convert targets (N, 2) in px from the top left corner to (N, 3) in mm in the camera frame."""
        across, down = (targets_px * (self.size_mm / self.size_px)).T[:, :, None]
        return self.top_left_mm + across * self.axes[0] + down * self.axes[1]

    def hit(self, origin_mm: NDArray, direction: NDArray) -> NDArray | None:
        """Return the px (2,) where a ray, (3,) each in the camera frame, meets the screen's plane; None if nowhere."""
        normal = np.cross(*self.axes)
        along = normal @ direction
        distance = normal @ (self.top_left_mm - origin_mm) / along if abs(along) > 1e-9 else -1.0
        if distance <= 0:
            return None
        return self.axes @ (origin_mm + distance * direction - self.top_left_mm) * (self.size_px / self.size_mm)


def read_screen(path: Path) -> Screen:
    """Read a screen.yaml.

    Raises:
        UserError: The file is missing, lacks a key, or contains values that are not those of a screen; the message
            contains file, key and remedy.
    """
    content = read_small_yaml(path)
    unknown = [shown(key) for key in content if key not in _KEYS]
    missing = [key for key in _KEYS[:-1] if key not in content]
    if unknown or missing:
        words = [f"has no {', '.join(missing)}"] if missing else []
        words += [f"has unknown keys {', '.join(unknown)[:100]}"] if unknown else []
        raise UserError(f"{path}: {' and '.join(words)}: the keys are {', '.join(_KEYS)}")
    width_mm, height_mm, width_px, height_px = (_numbers(content, key, (), path)[0] for key in _SIZES)
    _check_size(path, np.array([width_mm, height_mm]), np.array([width_px, height_px]))
    top_left_mm = _numbers(content, "top_left_mm", (3,), path)
    if np.linalg.norm(top_left_mm) > _FARTHEST_MM:
        raise UserError(f"{path}: top_left_mm is more than {_FARTHEST_MM / 1000:g} m from the camera: write it in mm")
    rotation = _rotation(_numbers(content, "rotation_deg", (3,), path) if "rotation_deg" in content else np.zeros(3))
    return Screen(
        size_mm=np.array([width_mm, height_mm]),
        size_px=np.array([width_px, height_px]),
        top_left_mm=top_left_mm,
        axes=np.array([[-1.0, 0, 0], [0, 1.0, 0]]) @ rotation.T,
    )


def _numbers(content: Mapping[str, Any], key: str, shape: tuple[int, ...], path: Path) -> NDArray:
    try:
        values = as_array(content[key])
    except ValueError:
        values = np.array(np.nan)
    if values.shape != shape or not np.isfinite(values).all():
        wanted = f"a list of {shape[0]} numbers" if shape else "a number"
        raise UserError(f"{path}: {key} is {shown(content[key])}, not {wanted}")
    return values.reshape(-1)


def _check_size(path: Path, size_mm: NDArray, size_px: NDArray) -> None:
    """Refuse the sizes of a screen that cannot exist, such as one in cm."""
    if (size_mm < _SIDE_MM[0]).any() or (size_mm > _SIDE_MM[1]).any():
        raise UserError(
            f"{path}: width_mm and height_mm are {size_mm[0]:g} and {size_mm[1]:g}, but a screen's sides have "
            f"{_SIDE_MM[0]:g} to {_SIDE_MM[1]:g} mm: measure the lit area, in mm"
        )
    if (size_px < 1).any():
        raise UserError(f"{path}: width_px and height_px must be at least 1")
    pitch_mm = size_mm / size_px
    if (pitch_mm < _PITCH_MM[0]).any() or (pitch_mm > _PITCH_MM[1]).any():
        raise UserError(
            f"{path}: a pixel would have {pitch_mm[0]:.3g} x {pitch_mm[1]:.3g} mm: check width_px and height_px"
        )
    if max(pitch_mm) > _SQUARE * min(pitch_mm):
        raise UserError(
            f"{path}: a pixel would have {pitch_mm[0]:.3g} x {pitch_mm[1]:.3g} mm, which is not square: are width and "
            "height exchanged?"
        )


def _rotation(angles_deg: NDArray) -> NDArray:
    """Compute the (3, 3) rotation about the camera's x axis, then its y axis, then its z axis."""
    (sin_x, sin_y, sin_z), (cos_x, cos_y, cos_z) = np.sin(np.radians(angles_deg)), np.cos(np.radians(angles_deg))
    about_x = np.array([[1, 0, 0], [0, cos_x, -sin_x], [0, sin_x, cos_x]])
    about_y = np.array([[cos_y, 0, sin_y], [0, 1, 0], [-sin_y, 0, cos_y]])
    about_z = np.array([[cos_z, -sin_z, 0], [sin_z, cos_z, 0], [0, 0, 1]])
    return about_z @ about_y @ about_x
