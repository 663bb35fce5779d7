"""Normalisation of a single frame, which preprocessing does for many."""

import numpy as np
from numpy.typing import ArrayLike

from faze.data.normalization.pose import NormalizedPose, UnusableFrame, normalize_poses


def normalize_pose(
    rotation_vector: ArrayLike, translation_mm: ArrayLike, inner_eye_corners_mm: ArrayLike, gaze_target_mm: ArrayLike
) -> NormalizedPose:
    """Place the virtual camera for one frame, or raise UnusableFrame."""
    one = (rotation_vector, translation_mm, inner_eye_corners_mm, gaze_target_mm)
    poses, (reason,) = normalize_poses(*(np.asarray(array, np.float64)[None] for array in one))
    if reason:
        raise UnusableFrame(reason)
    return poses[0]
