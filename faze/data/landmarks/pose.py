"""Compute the head pose from landmarks, and reject landmarks that would give an unreliable pose.

The pose is computed by PnP from 8 of the 14 points of FAZE's face model. The other six points, most of them on
the bridge and wings of the nose, are not used, because no vertex of MediaPipe's mesh corresponds to them: see
docs/decisions.md.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, UnusableFrame
from faze.data.readers.camera import Camera

# Points of FAZE's face model, head frame, mm, from faze_preprocess (swook/faze_preprocess, MIT licence): the tip of the
# nose, three points below the nose, and four eye corners, the latter two from the image's left to right.
FACE_MODEL_MM = np.array(
    [
        [-0.37655398, 35.09374356, -36.40296197],
        [-7.14245749, 49.0878067, -18.29475546],
        [-0.20381828, 50.27907181, -19.5088048],
        [6.80970144, 49.12047958, -18.35101175],
        [-46.25580263, -1.64848328, 2.87227488],
        *INNER_EYE_CORNERS_14_MM,
        [46.10241652, -1.37859726, 3.06603861],
    ]
)
# Vertices of MediaPipe's mesh that are used, in the order of all (12, 2) arrays of landmarks: those that correspond to
# FACE_MODEL_MM, then the middles of the upper and lower lids, first of the eye on the image's left, then on its right.
VERTICES = (4, 97, 2, 326, 33, 133, 362, 263, 159, 145, 386, 374)
MIRRORED = (0, 3, 2, 1, 7, 6, 5, 4, 10, 11, 8, 9)  # index of each landmark's counterpart in the mirrored frame
EYE_LANDMARKS = slice(4, 12)
_EYES = (4, 5, 8, 9), (7, 6, 10, 11)  # outer and inner corner, upper and lower lid

# Limits, which decision 4 explains; a face's width is the distance between the outer eye corners.
_MIN_WIDTH_PX = 40
_MAX_ERROR = 0.04  # root mean square distance from the projected face model, as a fraction of the width
_MAX_TURN_DEG = 50  # angle between the direction of the face and the direction from the face to the camera
_MIN_OPENING = 0.12  # see `eye_opening`


def face_width_px(landmarks_px: NDArray) -> float:
    """Return the distance between the outer eye corners, given the landmarks (12, 2)."""
    return float(np.linalg.norm(landmarks_px[7] - landmarks_px[4]))


def eye_opening(landmarks_px: NDArray) -> float:
    """Return the distance between the lids divided by that between the corners, of the wider open eye (12, 2)."""
    outer, inner, upper, lower = landmarks_px[np.array(_EYES).T]  # each (2 eyes, 2)
    widths = np.maximum(np.linalg.norm(outer - inner, axis=1), 1e-9)
    return float(np.max(np.linalg.norm(upper - lower, axis=1) / widths))


def pose_of(landmarks_px: NDArray, image: NDArray[np.uint8], lens: Camera) -> NDArray:
    """Estimate the head pose (6,) of a face: rotation vector (rad) and translation (mm), head -> camera.

    The head frame belongs to FAZE's 14-point face model, so the gaze origin is midway between
    `INNER_EYE_CORNERS_14_MM` in that pose; it projects to the middle of the corners found. Raise UnusableFrame if the
    face is cut off, too small or turned away, its eyes are closed, or no pose fits.

    The landmarks are the positions (12, 2) of VERTICES in an upright image (H, W, 3). Like the principal point, they
    are in px from the centre of the first pixel.
    """
    size_px, width_px = image.shape[1::-1], face_width_px(landmarks_px)
    if (landmarks_px < -0.5).any() or (landmarks_px >= np.array(size_px) - 0.5).any():
        raise UnusableFrame("the frame's edge cuts off the eyes or the nose")
    if width_px < _MIN_WIDTH_PX:
        raise UnusableFrame(f"face is too small: {width_px:.0f} px between the outer eye corners")
    if eye_opening(landmarks_px) < _MIN_OPENING:
        raise UnusableFrame("both eyes are closed")
    points = landmarks_px[: len(FACE_MODEL_MM)]
    found, rotation, translation = cv2.solvePnP(FACE_MODEL_MM, points, *lens, flags=cv2.SOLVEPNP_SQPNP)
    if not found:
        raise UnusableFrame("no head pose fits the landmarks")
    rotation, translation = cv2.solvePnPRefineLM(FACE_MODEL_MM, points, *lens, rotation, translation)
    seen = cv2.projectPoints(FACE_MODEL_MM, rotation, translation, *lens)[0].reshape(-1, 2)
    error_px = np.sqrt(np.mean(np.sum((seen - points) ** 2, axis=1)))
    if not error_px <= _MAX_ERROR * width_px:  # also if it is not a number
        raise UnusableFrame(f"landmarks do not form a face: they are {error_px:.1f} px from the face model")
    along = cv2.Rodrigues(rotation)[0][:, 2] @ translation[:, 0] / np.linalg.norm(translation)
    if (turn_deg := np.degrees(np.arccos(np.clip(along, -1, 1)))) > _MAX_TURN_DEG:
        raise UnusableFrame(f"face is turned away from the camera by {turn_deg:.0f} degrees")
    # Faces differ from the model, so the head is moved until the middle of the inner eye corners is where it was found.
    moved_px = (points - seen)[5:7].mean(axis=0)
    translation[:2, 0] += translation[2] * moved_px / np.diag(lens[0])[:2]
    return np.concatenate([rotation.ravel(), translation.ravel()])
