"""The screen of a manifest and its pose relative to the camera, used to convert targets from px to mm.

The camera faces the user, so the camera frame's x axis points to the user's left: on an unrotated screen, x_px grows
along -x, and y_px along +y. See the drawing in docs/how-to/own-frames.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.readers.camera import read_small_yaml

_KEYS = ("width_mm", "height_mm", "width_px", "height_px", "top_left_mm", "rotation_deg")


@dataclass(frozen=True, eq=False)
class Screen:
    """A flat screen in the camera frame."""

    size_px: NDArray  # (2,) width and height
    pixel_mm: NDArray  # (2,) width and height of a pixel
    top_left_mm: NDArray  # (3,)
    axes: NDArray  # (2, 3) directions in which x_px and y_px grow

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Screen":
        """Return the screen that the keys and values of a screen.yaml describe."""
        size_mm, size_px = np.array([content[key] for key in _KEYS[:4]], float).reshape(2, 2)
        top_left_mm, rotation_deg = np.array([content[key] for key in _KEYS[4:]], float).reshape(2, 3)
        about_x, about_y, about_z = (cv2.Rodrigues(axis)[0] for axis in np.diag(np.radians(rotation_deg)))
        axes = np.array([[-1.0, 0, 0], [0, 1.0, 0]]) @ (about_z @ about_y @ about_x).T
        return cls(size_px, size_mm / size_px, top_left_mm, axes)

    def to_mm(self, targets_px: NDArray) -> NDArray:
        """Convert targets (n, 2), in px from the top left corner, to points (n, 3), in mm in the camera frame."""
        across, down = (targets_px * self.pixel_mm).T[:, :, None]
        return self.top_left_mm + across * self.axes[0] + down * self.axes[1]

    def hit(self, origin_mm: NDArray, direction: NDArray) -> NDArray | None:
        """Return the point (2,) in px where a ray (camera frame) meets the screen's plane, or None if it misses."""
        normal = np.cross(*self.axes)
        along = normal @ direction
        distance = normal @ (self.top_left_mm - origin_mm) / along if abs(along) > 1e-9 else -1.0
        if distance <= 0:
            return None
        return self.axes @ (origin_mm + distance * direction - self.top_left_mm) / self.pixel_mm


def read_screen(path: Path) -> Screen:
    """Read a screen.yaml, in which `rotation_deg` (about x, then y, then z) is optional, or raise a UserError."""
    content = {"rotation_deg": [0, 0, 0]} | read_small_yaml(path)
    if set(content) != set(_KEYS):
        raise UserError(f"{path}: must have the keys {', '.join(_KEYS)}, but has {', '.join(map(str, content))}")
    with reading(path, "each value must be a number, except that top_left_mm and rotation_deg must be lists of three"):
        screen = Screen.of(content)
    size_mm = screen.size_px * screen.pixel_mm
    if not (min(size_mm) >= 40 and max(size_mm) <= 4000):  # from a phone's side to a projector's
        raise UserError(f"{path}: width_mm and height_mm must be the size of the visible area, in mm")
    if not 0 < max(screen.pixel_mm) <= 1.3 * min(screen.pixel_mm):
        raise UserError(f"{path}: width_px and height_px give pixels that are not square: are they swapped?")
    return screen
