"""Estimate head poses from landmarks that MediaPipe detects, for frames of any camera.

gazecapture.py and manifest.py use them to make an annotation in the format of FAZE's supplementary file; the former
also estimates the camera that GazeCapture lacks.

No test checks that MediaPipe finds faces, because faze contains no real faces.
"""

import numpy as np
from numpy.typing import NDArray

from faze.data.landmarks.detector import Detector
from faze.data.landmarks.pose import check_landmarks, estimate_pose
from faze.data.normalization.pose import UnusableFrame

NO_FACE = "no face found"


def estimate_head_pose(
    image: NDArray[np.uint8], camera_matrix: NDArray, distortion: NDArray, detect: Detector
) -> NDArray:
    """Estimate the head pose in a frame of any camera.

    The head frame is that of FAZE's 14-point face model, so a frame's gaze origin is midway between
    `INNER_EYE_CORNERS_14_MM` in that pose.

    Args:
        image: (H, W, 3) BGR, upright.
        camera_matrix: (3, 3) intrinsics, px from the centre of the frame's first pixel.
        distortion: (d,) distortion coefficients in OpenCV's order; zeros for a lens without distortion.
        detect: See `open_detector`.

    Returns:
        (6,) rotation vector (rad) and translation (mm), head -> camera.

    Raises:
        UnusableFrame: The frame has no face, or its face is covered, cut off, too small or turned away.
    """
    landmarks_px = detect(image)
    if landmarks_px is None:
        raise UnusableFrame(NO_FACE)
    return pose_of(landmarks_px, image, camera_matrix, distortion)


def pose_of(landmarks_px: NDArray, image: NDArray[np.uint8], camera_matrix: NDArray, distortion: NDArray) -> NDArray:
    """Estimate the head pose (6,) of a face from its landmarks (12, 2) px; else as `estimate_head_pose`."""
    check_landmarks(landmarks_px, (image.shape[1], image.shape[0]))
    return estimate_pose(landmarks_px, camera_matrix, distortion)
