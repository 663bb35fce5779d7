"""Compute the poses of virtual cameras, and the labels relative to them, for n frames at once.

Camera frame: x right, y down, z away from the camera; mm. Head frame: the same axes for a head that faces the camera.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.geometry import pitchyaw_from_vector

# Inner eye corners, mm, head frame: in the 6-point face model of MPIIFaceGaze (columns 2 and 3), ...
INNER_EYE_CORNERS_6_MM = np.array([[-21.3129, 0.4838, -2.3970], [21.3129, 0.4838, -2.3970]])
# ... and in the 14-point model (rows 10 and 11) to which FAZE's own head poses were fitted. The numbers are from
# faze_preprocess (swook/faze_preprocess, MIT licence).
INNER_EYE_CORNERS_14_MM = np.array([[-19.0150342, 1.5302906, -3.10160017], [19.16842031, 1.49678993, -2.83671331]])


class UnusableFrame(ValueError):
    """The reason why a frame or a face cannot be used."""


@dataclass(frozen=True, eq=False)
class NormalizedPose:
    """The orientation of a frame's virtual camera and the labels relative to it, for one frame or for n frames."""

    rotation: NDArray  # (3, 3) R, camera -> virtual camera
    gaze_origin_mm: NDArray  # (3,) in the camera frame
    labels: NDArray  # (4,) gaze pitch, yaw, head pitch, yaw; rad

    def __getitem__(self, row: int) -> "NormalizedPose":
        """Return the pose of one of n frames."""
        return NormalizedPose(self.rotation[row], self.gaze_origin_mm[row], self.labels[row])


def normalize_poses(
    rotation_vectors: NDArray, translations_mm: NDArray, inner_eye_corners_mm: NDArray, gaze_targets_mm: NDArray
) -> tuple[NormalizedPose, list[str]]:
    """Compute the virtual cameras of n frames, and rotate gaze and head directions into their coordinates.

    Return the poses (arrays (n, 3, 3), (n, 3) and (n, 4)) and, for each frame, the reason to leave it out, or "".

    Frames whose labels are impossible get a reason. A sign may be wrong, columns may be swapped, or angles may be in
    degrees. An eye turns by at most about 55 degrees in the head. Even if the head pose of a fitted face model is off
    by ten degrees or more, a gaze direction 90 degrees away from the head's is impossible.

    Args:
        rotation_vectors: (n, 3) head -> camera, rad; float64, like all arrays.
        translations_mm: (n, 3) head -> camera.
        inner_eye_corners_mm: (2, 3) or (n, 2, 3) in the head frame.
        gaze_targets_mm: (n, 3) in the camera frame.
    """
    with np.errstate(all="ignore"):  # frames whose numbers are not finite get a reason below
        heads = _rotations(rotation_vectors)  # (n, 3, 3) head -> camera
        origins = gaze_origins_mm(rotation_vectors, translations_mm, inner_eye_corners_mm)
        gazes = gaze_targets_mm - origins
        rotations, across = _look_at(origins, heads[:, :, 0])
        # A frontal gaze points from the face to the camera, along -z; the labels describe its mirror image.
        directions = np.stack([-gazes, heads[:, :, 2]], axis=1) @ np.swapaxes(rotations, 1, 2)  # (n, 2, 3)
        labels = pitchyaw_from_vector(directions).reshape(-1, 4)
        gaze, head = directions[:, 0], directions[:, 1]
        reasons = {
            "head pose is not finite": ~np.isfinite(np.hstack([rotation_vectors, translations_mm])).all(axis=1),
            "gaze target is not finite": ~np.isfinite(gaze_targets_mm).all(axis=1),
            "gaze target is (0, 0, 0), which means that it is missing": ~gaze_targets_mm.any(axis=1),
            "head pose is behind the camera": origins[:, 2] <= 0,
            "gaze target is at the gaze origin": np.linalg.norm(gazes, axis=1) < 1,
            "head is seen exactly from the side": across < 1e-3,
            "the head faces away from the camera: check the unit and the axes of the head pose": head[:, 2] < 0,
            "the gaze points away from the camera: check the signs of target and head pose": gaze[:, 2] < 0,
            "the gaze target is behind the head: check the signs of target and head pose": (gaze * head).sum(1) <= 0,
        }
    first = np.select(list(reasons.values()), list(range(1, 1 + len(reasons))), 0)
    return NormalizedPose(rotations, origins, labels), [("", *reasons)[number] for number in first]


def gaze_origins_mm(rotation_vectors: NDArray, translations_mm: NDArray, inner_eye_corners_mm: NDArray) -> NDArray:
    """Compute gaze origins (n, 3) in the camera frame; the arguments are as in `normalize_poses`."""
    middle_mm = inner_eye_corners_mm.mean(axis=-2)[..., None]
    return (_rotations(rotation_vectors) @ middle_mm)[:, :, 0] + translations_mm


def _rotations(vectors: NDArray) -> NDArray:
    """Convert rotation vectors (n, 3), in rad, to rotation matrices (n, 3, 3)."""
    return np.array([cv2.Rodrigues(vector)[0] for vector in vectors]).reshape(-1, 3, 3)


def _look_at(origins: NDArray, head_x: NDArray) -> tuple[NDArray, NDArray]:
    """Return rotations (z toward the origins, x in the plane of z and head_x), and the sine of z's angle to head_x."""
    z = origins / np.linalg.norm(origins, axis=1, keepdims=True)
    y = np.cross(z, head_x)
    across = np.linalg.norm(y, axis=1)
    y /= across[:, None]
    return np.stack([np.cross(y, z), y, z], axis=1), across
