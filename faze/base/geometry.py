"""Angles, vectors and rotations, and faze's sign convention, which is defined only here.

A gaze or head direction is a unit vector or (pitch, yaw) in radians, in the normalised camera frame: x right, y down,
z away from the camera. Gaze vectors, which point toward the camera, have their sign flipped, so that

    v(p, y) = (cos p sin y, sin p, cos p cos y).

The latent frame of the codes rotates with R(p, y) = R_y(y) R_x(p). R e_z = (cos p sin y, -sin p, cos p cos y) is the
gaze vector mirrored in y, as throughout the paper's code. Do not mix the two frames.

Functions take an array namespace `xp`, numpy or torch, which must match their arguments. Results are float64 unless the
input is float32. Readers of data with a different sign convention convert the data when they read it.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def vector_from_pitchyaw(pitchyaw: ArrayLike, xp: Any = np) -> Any:
    """Return the unit vectors (..., 3) with the given pitch and yaw (..., 2) in radians."""
    sin, cos = xp.sin(pitchyaw), xp.cos(pitchyaw)
    cos_p = cos[..., 0]
    return xp.stack([cos_p * sin[..., 1], sin[..., 0], cos_p * cos[..., 1]], axis=-1)


def pitchyaw_from_vector(vector: ArrayLike, xp: Any = np) -> Any:
    """Return pitch and yaw (..., 2) of vectors v (..., 3), in radians: pitch = asin(y / |v|), yaw = atan2(x, z)."""
    x, y, z = xp.moveaxis(vector, -1, 0)
    # atan2 of the horizontal length equals asin(y / |v|) and stays exact near the poles.
    return xp.stack([xp.arctan2(y, xp.hypot(x, z)), xp.arctan2(x, z)], axis=-1)


def rotation_from_pitchyaw(pitchyaw: ArrayLike, xp: Any = np) -> Any:
    """Return R_y(yaw) R_x(pitch), which rotates a frontal code to pitch and yaw: (..., 2) radians -> (..., 3, 3)."""
    (sin_p, sin_y), (cos_p, cos_y) = (xp.moveaxis(each, -1, 0) for each in (xp.sin(pitchyaw), xp.cos(pitchyaw)))
    zero = xp.zeros_like(sin_p)
    rows = [cos_y, sin_y * sin_p, sin_y * cos_p, zero, cos_p, -sin_p, -sin_y, cos_y * sin_p, cos_y * cos_p]
    return xp.stack(rows, axis=-1).reshape(*sin_p.shape, 3, 3)


def angular_error(a: ArrayLike, b: ArrayLike) -> NDArray:
    """Return the angles (...) between vectors (..., 3) of any length, in radians, accurate even near 0 and pi."""
    a, b = np.asarray(a), np.asarray(b)
    cross = np.linalg.norm(np.cross(a, b), axis=-1)
    return np.arctan2(cross, np.sum(a * b, axis=-1))


def mean_angle_deg(a: ArrayLike, b: ArrayLike) -> float:
    """Return the mean angle between vectors (..., 3) of any length, in degrees."""
    return float(np.degrees(angular_error(a, b).mean()))


def pitchyaw_difference(first: ArrayLike, second: ArrayLike) -> NDArray:
    """Return `first` minus `second`, pitch and yaw (..., 2) in radians, with the yaw wrapped to [-pi, pi)."""
    difference = np.asarray(first) - np.asarray(second)
    difference[..., 1] = np.remainder(difference[..., 1] + np.pi, 2 * np.pi) - np.pi
    return difference
