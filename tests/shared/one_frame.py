"""Normalisation of a single frame, which preprocessing does for whole blocks."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.config.parameters import NormalizedCamera
from faze.data.normalization.pose import NormalizedPose, UnusableFrame, normalize_poses
from faze.data.normalization.warp import StripLookup, check_in_frame, look_up


def normalize_pose(
    rotation_vector: ArrayLike, translation_mm: ArrayLike, inner_eye_corners_mm: ArrayLike, gaze_target_mm: ArrayLike
) -> NormalizedPose:
    """Place the virtual camera for one frame, or raise UnusableFrame."""
    one = (rotation_vector, translation_mm, inner_eye_corners_mm, gaze_target_mm)
    poses, (reason,) = normalize_poses(*(np.asarray(array, np.float64)[None] for array in one))
    if reason:
        raise UnusableFrame(reason)
    return poses[0]


def warp_fused(
    image: NDArray[np.uint8],
    camera_matrix: NDArray,
    distortion: NDArray,
    pose: NormalizedPose,
    camera: NormalizedCamera,
) -> NDArray[np.uint8]:
    """Make the (h, w, 3) RGB strip of one BGR frame with a single interpolation, or raise UnusableFrame."""
    block = NormalizedPose(pose.rotation[None], pose.gaze_origin_mm[None], pose.labels[None])
    lookup = StripLookup([camera_matrix], [distortion], block, camera)
    check_in_frame(image.shape[1::-1], camera_matrix, lookup.gaze_origin_px[0])
    strip = np.empty((camera.height_px, camera.width_px, 3), np.uint8)
    look_up(image, lookup.maps(0), strip)
    return strip
