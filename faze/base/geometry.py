"""Angles, vectors and rotations: the one home of faze's sign convention.

A gaze or head direction is a unit vector or (pitch, yaw) in radians, in the normalised camera frame: x right, y down,
z away from the camera, gaze vectors pointing toward the camera with their sign flipped (DESIGN section 3), so that

    v(p, y) = (cos p sin y, sin p, cos p cos y).

The latent frame of the codes turns with R(p, y) = R_y(y) R_x(p). R e_z = (cos p sin y, -sin p, cos p cos y) is the gaze
vector mirrored in y; the paper's code does the same, consistently. Do not mix the two.

numpy only; float64 unless the input is float32. Readers of data with another sign convert on entry.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def vector_from_pitchyaw(pitchyaw: ArrayLike) -> NDArray:
    """Unit vectors of (pitch, yaw).

    Args:
        pitchyaw: (..., 2) radians.

    Returns:
        (..., 3).
    """
    pitchyaw = np.asarray(pitchyaw)
    pitch, yaw = pitchyaw[..., 0], pitchyaw[..., 1]
    return np.stack([np.cos(pitch) * np.sin(yaw), np.sin(pitch), np.cos(pitch) * np.cos(yaw)], axis=-1)


def pitchyaw_from_vector(vector: ArrayLike) -> NDArray:
    """(pitch, yaw) of vectors of any length: pitch = asin(y), yaw = atan2(x, z).

    Args:
        vector: (..., 3).

    Returns:
        (..., 2) radians.
    """
    vector = np.asarray(vector)
    x, y, z = vector[..., 0], vector[..., 1], vector[..., 2]
    # atan2 of the horizontal length equals asin(y / |v|) and stays exact near the poles.
    return np.stack([np.arctan2(y, np.hypot(x, z)), np.arctan2(x, z)], axis=-1)


def rotation_from_pitchyaw(pitchyaw: ArrayLike) -> NDArray:
    """R_y(yaw) R_x(pitch), the rotation that turns a frontal code to (pitch, yaw).

    Args:
        pitchyaw: (..., 2) radians.

    Returns:
        (..., 3, 3).
    """
    pitchyaw = np.asarray(pitchyaw)
    sin_p, cos_p = np.sin(pitchyaw[..., 0]), np.cos(pitchyaw[..., 0])
    sin_y, cos_y = np.sin(pitchyaw[..., 1]), np.cos(pitchyaw[..., 1])
    zero = np.zeros_like(sin_p)
    rows = [cos_y, sin_y * sin_p, sin_y * cos_p, zero, cos_p, -sin_p, -sin_y, cos_y * sin_p, cos_y * cos_p]
    return np.stack(rows, axis=-1).reshape(*sin_p.shape, 3, 3)


def angular_error(a: ArrayLike, b: ArrayLike) -> NDArray:
    """Angle between directions, exact near 0 and pi (atan2, not acos of a clipped cosine).

    Args:
        a: (..., 3) vectors of any length.
        b: (..., 3) vectors of any length.

    Returns:
        (...) radians.
    """
    a, b = np.asarray(a), np.asarray(b)
    cross = np.linalg.norm(np.cross(a, b), axis=-1)
    return np.arctan2(cross, np.sum(a * b, axis=-1))


def mean_angle_deg(a: ArrayLike, b: ArrayLike) -> float:
    """Mean of the angles between directions, in degrees.

    Args:
        a: (..., 3) vectors of any length.
        b: (..., 3) vectors of any length.
    """
    return float(np.degrees(angular_error(a, b).mean()))


def wrapped(angle_rad: ArrayLike) -> NDArray:
    """The same angles in [-pi, pi): a yaw just beyond 180 degrees is near, not far."""
    return np.remainder(np.asarray(angle_rad) + np.pi, 2 * np.pi) - np.pi
