"""Data normalisation (Zhang et al. 2018; FAZE section 3): a camera frame -> the canonical eye strip and its labels.

A virtual camera of fixed focal length looks at the gaze origin (the midpoint of the inner eye corners) from a fixed
distance, its x axis along the head's. R turns the camera frame into the virtual camera's; S scales the depth of the
gaze origin to the fixed distance. The strip is warped by S R, the labels turn by R alone.
"""

import cv2

from faze.data.normalization.frame import EncodedFrame, FrameReader, read_image
from faze.data.normalization.lookup import StripLookup
from faze.data.normalization.pose import (
    INNER_EYE_CORNERS_6_MM,
    INNER_EYE_CORNERS_14_MM,
    NormalizedCamera,
    NormalizedPose,
    UnusableFrame,
    normalize_pose,
    normalize_poses,
)
from faze.data.normalization.warp import check_in_frame, look_up, warp_fused, warp_two_step

__all__ = [
    "INNER_EYE_CORNERS_14_MM",
    "INNER_EYE_CORNERS_6_MM",
    "EncodedFrame",
    "FrameReader",
    "NormalizedCamera",
    "NormalizedPose",
    "StripLookup",
    "UnusableFrame",
    "check_in_frame",
    "look_up",
    "normalize_pose",
    "normalize_poses",
    "read_image",
    "use_one_thread",
    "warp_fused",
    "warp_two_step",
]


def use_one_thread() -> None:
    """Keep OpenCV from threads of its own in a process of a pool that already fills the cores."""
    cv2.setNumThreads(1)
