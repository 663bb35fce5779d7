"""Estimate the head poses of a person's frames and, for GazeCapture, the cameras.

devices.csv contains the focal length of each of GazeCapture's 15 devices, in px for a frame whose longer side is 640
px. Neither the data set nor the manufacturer specifies it. It is computed from the 35 mm equivalent focal length (35 mm
film has a diagonal of 43.27 mm): focal_px = equivalent_mm / 43.27 mm x 800 px, where 800 px is the diagonal of the
frame. The equivalents are commonly quoted values and were not measured; expect an accuracy of about 10 %. The principal
point is assumed to be in the middle of the frame, the lens to have no distortion, and the frame to cover the whole 4:3
sensor.
"""

import csv
import functools
from dataclasses import replace
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from faze.data.landmarks import NO_FACE
from faze.data.landmarks.detector import FaceDetector
from faze.data.landmarks.pose import pose_of
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers.person import Person, unreadable


@functools.cache
def _focal_lengths_px() -> dict[str, float]:
    with resources.files("faze.data.landmarks").joinpath("devices.csv").open(encoding="utf-8") as file:
        return {row["device"].casefold(): float(row["focal_px"]) for row in csv.DictReader(file)}


def estimate_camera(device: str, width_px: int, height_px: int) -> NDArray:
    """Estimate the intrinsics (3, 3) in px of a device's front camera, in any orientation."""
    focal_px = _focal_lengths_px()[device.casefold()] * max(width_px, height_px) / 640
    return np.array([[focal_px, 0, (width_px - 1) / 2], [0, focal_px, (height_px - 1) / 2], [0, 0, 1]])


def annotate(person: Person, detect: FaceDetector) -> Person:
    """Estimate the head pose of each frame of a person and, if the person's cameras are NaN, the cameras.

    Args:
        person: A person without head poses.
        detect: Finds the landmarks of a frame's largest face; see `open_faces`.

    Returns:
        The same person, with a reason for each frame without a head pose.
    """
    usable = [row for row, reason in enumerate(person.reasons) if not reason]
    unknown = np.isnan(person.cameras[usable]).any()
    if unknown and person.device.casefold() not in _focal_lengths_px():
        reason = f"the camera of device {person.device!r} is unknown: faze's devices.csv does not list it"
        return unreadable(person.name, person.folder, reason)
    cameras, reasons, poses = person.cameras.copy(), list(person.reasons), np.full((len(person.files), 6), np.nan)
    for row in usable:
        try:
            image = read_image(person.folder / person.files[row])
            if unknown:
                cameras[row] = estimate_camera(person.device, image.shape[1], image.shape[0])
            face = next(iter(detect(image)), UnusableFrame(NO_FACE))
            if isinstance(face, UnusableFrame):
                raise face
            poses[row] = pose_of(face, image, cameras[row], person.distortions[row])
        except UnusableFrame as unusable:
            reasons[row] = str(unusable)
    return replace(person, cameras=cameras, poses=poses, reasons=reasons, source="estimated")
