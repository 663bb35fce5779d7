"""Intrinsics of the front cameras that recorded GazeCapture: estimates, since neither it nor their maker states them.

devices.csv holds, for each of the 15 devices of GazeCapture, the focal length in px of a frame whose longer side is
640 px: of the focal length that a camera for 35 mm film (a diagonal of 43.27 mm) with the same field of view has,
focal_px = equivalent_mm / 43.27 mm x 800 px, the diagonal of the frame. The equivalents are what is commonly known of
each camera and were not measured; take them for good to a tenth. The principal point is taken for the frame's middle,
the lens for free of distortion, the frame for the whole of the 4:3 sensor.
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
    """Refuse a device whose camera is not known, with a UserError."""
    if device.casefold() not in _focal_lengths_px():
        raise UserError(f"the camera of device {device!r} is not known: devices.csv of faze has no line for it")


def estimate_camera(device: str, width_px: int, height_px: int) -> NDArray:
    """Estimate fx fy cx cy in px of a device's front camera, however it was held; a UserError if it is unknown."""
    check_device(device)
    focal_px = _focal_lengths_px()[device.casefold()] * max(width_px, height_px) / _LONGER_SIDE_PX
    return np.array([focal_px, focal_px, (width_px - 1) / 2, (height_px - 1) / 2])
