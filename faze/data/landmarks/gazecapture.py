"""Estimate the head pose and camera that GazeCapture lacks, in the format of FAZE's supplementary file.

The intrinsics are estimated from the device; the gaze target is the data set's own.

devices.csv contains the focal length of each of GazeCapture's 15 devices, in px for a frame whose longer side is 640
px. Neither the data set nor the manufacturer specifies it. It is computed from the 35 mm equivalent focal length (35 mm
film has a diagonal of 43.27 mm): focal_px = equivalent_mm / 43.27 mm x 800 px, where 800 px is the diagonal of the
frame. The equivalents are commonly quoted values and were not measured; expect an accuracy of about 10 %. The principal
point is assumed to be in the middle of the frame, the lens to have no distortion, and the frame to cover the whole 4:3
sensor.
"""

import csv
import functools
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.landmarks import estimate_head_pose
from faze.data.landmarks.detector import Detector
from faze.data.landmarks.parts import entries_of
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import OUTSIDE, is_inside
from faze.data.readers.gazecapture import Recording, read_recording
from faze.data.store.supplementary import Supplementary

_LONGER_SIDE_PX = 640


@functools.cache
def _focal_lengths_px() -> dict[str, float]:
    with resources.files("faze.data.landmarks").joinpath("devices.csv").open(encoding="utf-8") as file:
        return {row["device"].casefold(): float(row["focal_px"]) for row in csv.DictReader(file)}


def check_device(device: str) -> None:
    """Raise a UserError if the camera of a device is unknown."""
    if device.casefold() not in _focal_lengths_px():
        raise UserError(f"the camera of device {device!r} is unknown: faze's devices.csv does not list it")


def estimate_camera(device: str, width_px: int, height_px: int) -> NDArray:
    """Estimate fx fy cx cy in px of a device's front camera, in any orientation; raise a UserError if it is unknown."""
    check_device(device)
    focal_px = _focal_lengths_px()[device.casefold()] * max(width_px, height_px) / _LONGER_SIDE_PX
    return np.array([focal_px, focal_px, (width_px - 1) / 2, (height_px - 1) / 2])


def annotate(raw: Path, person: str, detect: Detector) -> Supplementary:
    """Estimate an annotation like FAZE's for a recording; entries without one have a reason instead.

    Args:
        raw: Folder of the recordings.
        person: The recording's folder name.
        detect: Finds the landmarks of a frame.

    Returns:
        One entry per frame of frames.json; a single entry without a file name if the recording is incomplete or its
        device is unknown.
    """
    try:
        recording = read_recording(raw / person)
        if recording.targets_mm is None or not (raw / person / "screen.json").exists():
            raise UserError("dotInfo.json or screen.json: No such file or directory")
        check_device(recording.device)
        if not recording.names:
            raise UserError("frames.json: contains no frames")
    except UserError as error:
        return entries_of([""], np.full((1, 13), np.nan), np.zeros((1, 5)), [str(error)])
    names = [f"{person}/frames/{name}" for name in recording.names]
    numbers, reasons = np.full((len(names), 13), np.nan), [""] * len(names)
    for row, name in enumerate(names):
        try:
            numbers[row] = _annotate_frame(raw, name, recording, row, detect)
        except UnusableFrame as unusable:
            reasons[row] = str(unusable)
    return entries_of(names, numbers, np.zeros((len(names), 5)), reasons)


def _annotate_frame(raw: Path, name: str, recording: Recording, row: int, detect: Detector) -> NDArray:
    """Compute the (13,) numbers of a frame: camera, head pose and target."""
    if recording.faults[row]:
        raise UnusableFrame(recording.faults[row])
    if not is_inside(name):
        raise UnusableFrame(OUTSIDE)
    image = read_image(raw / name)
    fx, fy, cx, cy = camera = estimate_camera(recording.device, image.shape[1], image.shape[0])
    pose = estimate_head_pose(image, np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), np.zeros(5), detect)
    return np.concatenate([camera, pose, recording.targets_mm[row]])
