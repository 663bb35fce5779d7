"""Estimate the intrinsics of the front cameras that recorded GazeCapture; neither it nor the manufacturer states them.

devices.csv contains, for each of the 15 devices of GazeCapture, the focal length in px of a frame whose longer side is
640 px. It is computed from the 35 mm equivalent focal length (whose film has a diagonal of 43.27 mm):
focal_px = equivalent_mm / 43.27 mm x 800 px, the diagonal of the frame. The equivalents are commonly quoted values and
were not measured; expect an accuracy of about 10 %. We assume that the principal point is in the middle of the frame,
that the lens has no distortion, and that the frame covers the whole 4:3 sensor.
"""

import csv
import functools
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError

_LONGER_SIDE_PX = 640


@functools.cache
def _focal_lengths_px() -> dict[str, float]:
    with resources.files("faze.data.readers.devices").joinpath("devices.csv").open(encoding="utf-8") as file:
        return {row["device"].casefold(): float(row["focal_px"]) for row in csv.DictReader(file)}


def check_device(device: str) -> None:
    """Raise a UserError if the camera of a device is unknown."""
    if device.casefold() not in _focal_lengths_px():
        raise UserError(f"the camera of device {device!r} is not known: faze's devices.csv has no line for it")


def estimate_camera(device: str, width_px: int, height_px: int) -> NDArray:
    """Estimate fx fy cx cy in px of a device's front camera, in any orientation; raise a UserError if it is unknown."""
    check_device(device)
    focal_px = _focal_lengths_px()[device.casefold()] * max(width_px, height_px) / _LONGER_SIDE_PX
    return np.array([focal_px, focal_px, (width_px - 1) / 2, (height_px - 1) / 2])
