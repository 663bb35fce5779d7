"""Estimate where a screen is, and the camera's focal length, from frames in which a person looks at known dots.

The unknowns are fitted together with the person's offset and slope, which look much the same: after 13 dots, most of
the uncertainty is still that of the priors. docs/results.md contains measurements.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from faze.base.geometry import pitchyaw_from_vector, rotation_from_pitchyaw
from faze.data.normalization.pose import normalize_poses
from faze.data.readers.screen import Screen
from faze.gaze.estimator import FaceGaze

# Mean and standard deviation before any dot is seen.
UNKNOWNS = {
    "right_mm": (0.0, 5.0),  # of the camera from the middle of the screen's upper edge, as seen by the person
    "above_mm": (10.0, 6.0),
    "front_mm": (0.0, 3.0),
    "tilt_deg": (0.0, 3.0),  # of the screen relative to the camera: about x, ...
    "turn_deg": (0.0, 1.5),  # ... and about y
    "focal_log": (0.0, 0.1),  # logarithm of the focal length divided by the assumed one
}
# The same of the unadapted estimates: offset and slope of pitch and yaw.
PERSON = ((0.0, 5.0), (0.0, 5.0), (0.6, 0.25), (0.85, 0.2))
MEAN, DEVIATION = np.transpose([*UNKNOWNS.values(), *PERSON])
NOISE_DEG = 4.0


def place(unknowns: NDArray, size_px: NDArray, pixel_mm: float) -> dict[str, Any]:
    """Return the content of screen.yaml for the given unknowns, in the order of UNKNOWNS."""
    right, above, front, tilt, turn = unknowns[:5]
    width_mm, height_mm = size_px * pixel_mm
    corner_mm = rotation_from_pitchyaw(np.radians([tilt, turn])) @ [width_mm / 2 + right, above, front]
    size = {"width_mm": width_mm, "height_mm": height_mm, "width_px": size_px[0], "height_px": size_px[1]}
    pose = {"top_left_mm": corner_mm, "rotation_deg": np.array([tilt, turn, 0])}
    return {name: value.tolist() for name, value in (size | pose).items()}


def fit_screen(
    faces: Sequence[FaceGaze], dots_px: NDArray, size_px: NDArray, pixel_mm: float
) -> dict[str, tuple[float, float]]:
    """Return the most probable UNKNOWNS and their standard deviations, given faces that look at dots (n, 2).

    With another focal length, a face is in the same place of the image, but at another distance.
    """
    seen_deg = np.degrees(pitchyaw_from_vector(np.concatenate([face.seen.gaze_hat for face in faces])))
    origins_mm = np.stack([face.origin_mm for face in faces])
    turns = np.stack([face.head_pose[:3] for face in faces])

    def distances(standard: NDArray) -> NDArray:
        """Return the distances from the priors and from the estimates, in standard deviations."""
        unknowns, offset, slope = np.split(MEAN + DEVIATION * standard, [6, 8])
        scaled_mm = origins_mm * [1, 1, np.exp(unknowns[5])]
        dots_mm = Screen.of(place(unknowns, size_px, pixel_mm)).to_mm(dots_px)
        poses, _ = normalize_poses(turns, scaled_mm, np.zeros((2, 3)), dots_mm)
        labels_deg = np.degrees(poses.labels[:, :2])
        return np.append(standard, (offset + slope * labels_deg - seen_deg) / NOISE_DEG)

    fit = least_squares(distances, np.zeros(len(MEAN)))
    values = MEAN + DEVIATION * fit.x
    deviations = DEVIATION * np.sqrt(np.diag(np.linalg.inv(fit.jac.T @ fit.jac)))
    return dict(zip(UNKNOWNS, zip(values.tolist(), deviations.tolist(), strict=True), strict=False))
