"""Estimate head poses from landmarks that MediaPipe detects, for frames of any camera.

`estimate_head_poses` is the entry point for any data set. gazecapture.py is one caller: it estimates the head pose and
camera that GazeCapture lacks, in the format of FAZE's supplementary file.

No test checks that MediaPipe finds faces, because faze contains no real faces.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.data.landmarks.detector import Detector
from faze.data.landmarks.pose import check_landmarks, estimate_pose
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import UnusableFrame


def estimate_head_poses(
    image_paths: Iterable[Path],
    camera_matrices: Iterable[NDArray],
    distortions: Iterable[NDArray],
    detect: Detector,
) -> Iterator[NDArray | str]:
    """Estimate the head pose in each frame of any camera.

    The head frame is that of FAZE's 14-point face model, so a frame's gaze origin is midway between
    `INNER_EYE_CORNERS_14_MM` in that pose.

    Args:
        image_paths: JPEG or PNG files; frames are rotated according to their EXIF orientation.
        camera_matrices: (3, 3) intrinsics of each upright frame, px from the centre of its first pixel.
        distortions: (d,) distortion coefficients of each frame in OpenCV's order; zeros for a lens without distortion.
        detect: See `open_detector`.

    Yields:
        For each frame, the (6,) rotation vector (rad) and translation (mm), head -> camera; or the reason why it has no
        pose.
    """
    for path, matrix, distortion in zip(image_paths, camera_matrices, distortions, strict=True):
        try:
            yield estimate_head_pose(read_image(path), matrix, distortion, detect)
        except UnusableFrame as unusable:
            yield str(unusable)


def estimate_head_pose(
    image: NDArray[np.uint8], camera_matrix: NDArray, distortion: NDArray, detect: Detector
) -> NDArray:
    """Estimate the head pose in an upright (H, W, 3) BGR frame: see `estimate_head_poses`.

    Raises:
        UnusableFrame: The frame has no face, or its face is covered, cut off, too small or turned away.
    """
    landmarks_px = detect(image)
    if landmarks_px is None:
        raise UnusableFrame("no face found")
    check_landmarks(landmarks_px, (image.shape[1], image.shape[0]))
    return estimate_pose(landmarks_px, camera_matrix, distortion)
