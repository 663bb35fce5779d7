"""Compare labels with what eyes and heads can do.

An impossible label is a reason to reject a frame. The usual causes are an inverted sign, exchanged columns, and degrees
in place of radians. An eye turns by at most about 55 degrees in the head, and head poses of fitted face models are
biased by ten degrees or more. A gaze that is 90 degrees away from the head is therefore impossible.
"""

import numpy as np
from numpy.typing import NDArray

from faze.base.geometry import vector_from_pitchyaw


def find_impossible(labels: NDArray) -> list[str]:
    """Explain why labels cannot be true.

    Args:
        labels: (N, 4) gaze pitch, yaw, head pitch, yaw in rad, in the normalised camera.

    Returns:
        For each row the reason, or "" if the labels are possible.
    """
    if not len(labels):
        return []
    labels = np.asarray(labels, np.float64)
    finite = np.isfinite(labels).all(axis=1)
    known = np.where(finite[:, None], labels, 0)
    beyond = np.abs(known) > np.pi / 2 + 1e-3
    gaze, head = vector_from_pitchyaw(known[:, :2]), vector_from_pitchyaw(known[:, 2:])
    reasons = {
        "labels are not finite": ~finite,
        "pitch is beyond 90 degrees: are the angles in degrees instead of radians?": beyond[:, [0, 2]].any(axis=1),
        "the head faces away from the camera: check the unit and the axes of the head pose": beyond[:, 3],
        "the gaze points away from the camera: check the signs of the target and of the head pose": beyond[:, 1],
        "the gaze target is behind the head: check the signs of the target and of the head pose": (gaze * head).sum(1)
        <= 0,
    }
    first = np.select(list(reasons.values()), list(range(1, 1 + len(reasons))), 0)
    return [("", *reasons)[number] for number in first]
