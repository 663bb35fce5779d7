"""Estimate the head pose from the landmarks of a face, by PnP with 13 of the 14 points of FAZE's face model.

The 14th point of the model has no corresponding landmark.
"""

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, UnusableFrame

# FAZE's face model, head frame, mm, from faze_preprocess (swook/faze_preprocess, MIT licence): bridge of the nose from
# above to its tip (4), below the nose from the image's left to right (5), eye corners from left to right (4).
FACE_MODEL_MM = np.array(
    [
        [0.05832857, -7.60688782, -15.69785643],
        [-0.10377414, 8.64764404, -22.13105822],
        [-0.24472262, 23.37460136, -31.45995176],
        [-0.37655398, 35.09374356, -36.40296197],
        [-12.36220503, 46.71208954, -14.98328161],
        [-7.14245749, 49.0878067, -18.29475546],
        [-0.20381828, 50.27907181, -19.5088048],
        [6.80970144, 49.12047958, -18.35101175],
        [12.06582785, 46.73353767, -15.02448034],
        [-46.25580263, -1.64848328, 2.87227488],
        *INNER_EYE_CORNERS_14_MM,
        [46.10241652, -1.37859726, 3.06603861],
    ]
)
OUTER_EYE_CORNERS = (9, 12)
# Largest difference of a face from the model: root mean square, as a fraction of the distance of the outer eye corners.
MAX_ERROR_SHARE = 0.08

# (H, W, 3) uint8 BGR frame -> (13, 2) px of the points of FACE_MODEL_MM, pixel centres at integers; None: no face.
Detector = Callable[[NDArray[np.uint8]], NDArray | None]


def estimate_pose(landmarks_px: NDArray, camera: NDArray) -> NDArray:
    """Find the head pose that projects the face model onto the landmarks.

    Args:
        landmarks_px: (13, 2) of FACE_MODEL_MM.
        camera: (4,) fx fy cx cy, px; without distortion.

    Returns:
        (6,) rotation vector (rad) and translation (mm), head -> camera.

    Raises:
        UnusableFrame: No pose in front of the camera fits.
    """
    if landmarks_px.shape != (len(FACE_MODEL_MM), 2) or not np.isfinite(landmarks_px).all():
        raise UnusableFrame(f"landmarks are not {len(FACE_MODEL_MM)} points")
    fx, fy, cx, cy = camera
    lens = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]]), np.zeros(5)
    points = np.asarray(landmarks_px, np.float64)
    try:
        found, rotation, translation = cv2.solvePnP(FACE_MODEL_MM, points, *lens, flags=cv2.SOLVEPNP_SQPNP)
        if found:
            rotation, translation = cv2.solvePnPRefineLM(FACE_MODEL_MM, points, *lens, rotation, translation)
    except cv2.error:
        found = False
    pose = np.concatenate([rotation.ravel(), translation.ravel()]) if found else np.full(6, np.nan)
    if not np.isfinite(pose).all():
        raise UnusableFrame("no head pose fits the landmarks")
    if (FACE_MODEL_MM @ cv2.Rodrigues(pose[:3])[0][2] + pose[5] <= 0).any():
        raise UnusableFrame("head pose is behind the camera")
    seen = cv2.projectPoints(FACE_MODEL_MM, pose[:3], pose[3:], *lens)[0].reshape(-1, 2)
    error_px = np.sqrt(np.mean(np.sum((seen - points) ** 2, axis=1)))
    left, right = points[list(OUTER_EYE_CORNERS)]
    if error_px > MAX_ERROR_SHARE * np.linalg.norm(right - left):
        raise UnusableFrame(f"landmarks are not those of a face: {error_px:.1f} px from the face model")
    return pose
