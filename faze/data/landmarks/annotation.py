"""Estimate the head poses in a person's frames and, for GazeCapture, the cameras.

Neither GazeCapture nor the manufacturer specifies the focal lengths of the 15 devices. They are computed from the 35 mm
equivalent focal lengths (35 mm film has a diagonal of 43.27 mm): focal_px = equivalent_mm / 43.27 mm x 800 px, where
800 px is the diagonal of the frame. The equivalents are commonly quoted values, not measurements, and may be wrong by
about 10 %. The principal point is assumed to be in the middle of the frame, the lens to have no distortion, and the
frame to cover the whole 4:3 sensor.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from faze.data.landmarks.detector import NO_FACE, FaceDetector
from faze.data.landmarks.pose import pose_of
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers.person import Person, camera_matrices, unreadable

# Focal length in px of each device's front camera, for a frame whose longer side is 640 px.
_FOCAL_PX = dict.fromkeys(("iphone 4s", "ipad 2", "ipad 3"), 647)  # VGA: 35 mm, as for the narrowest of the others
_FOCAL_PX |= dict.fromkeys(("iphone 5", "iphone 5c", "ipad 4", "ipad mini"), 610)  # 33 mm, assumed in between
_FOCAL_PX |= dict.fromkeys(("iphone 5s", "iphone 6", "iphone 6 plus", "iphone 6s", "iphone 6s plus"), 573)  # 31 mm
_FOCAL_PX |= dict.fromkeys(("ipad air", "ipad air 2", "ipad pro"), 573)


def estimate_camera(device: str, width_px: int, height_px: int) -> NDArray:
    """Estimate the intrinsics of a device's front camera, (3, 3) in px, for a frame in any orientation."""
    focal_px = _FOCAL_PX[device.casefold()] * max(width_px, height_px) / 640
    return camera_matrices(np.array([[focal_px, focal_px, (width_px - 1) / 2, (height_px - 1) / 2]]))[0]


def annotate(person: Person, detect: FaceDetector) -> Person:
    """Estimate the head pose in each of a person's frames, and the cameras if they are NaN.

    `detect` comes from `open_faces`; only the first face it finds is used. Frames without a head pose are rejected.
    """
    usable = [row for row, reason in enumerate(person.reasons) if not reason]
    unknown = np.isnan(person.cameras[usable]).any()
    if unknown and person.device.casefold() not in _FOCAL_PX:
        reason = f"the camera of device {person.device!r} is unknown: faze knows only GazeCapture's 15 devices"
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
            poses[row] = pose_of(face, image, (cameras[row], person.distortions[row]))
        except UnusableFrame as unusable:
            reasons[row] = str(unusable)
    return replace(person, cameras=cameras, poses=poses, reasons=reasons, source="estimated")
