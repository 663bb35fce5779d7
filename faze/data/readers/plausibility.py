"""Compare labels with what eyes and heads can do.

An impossible label is a reason to reject a frame. A person whose labels are possible but unusual deserves a warning:
the usual causes are an inverted sign, exchanged columns, and degrees in place of radians.

An eye turns by at most about 55 degrees in the head, and head poses of fitted face models are biased by ten degrees or
more. A gaze that is 90 degrees away from the head is therefore impossible; a typical one of 45 degrees is unusual.
"""

import numpy as np
from numpy.typing import NDArray

from faze.base.geometry import angular_error, vector_from_pitchyaw

_AXIS_DEG, _HEAD_DEG = 60.0, 45.0  # a person's typical gaze, from the camera's axis and from the head: unusual beyond
_FEWEST, _LEAST_SPREAD_DEG, _INVERTED = 30, 4.0, -0.6  # for the correlation of gaze and head


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


def find_unusual(labels: NDArray) -> list[str]:
    """Describe what is unusual about the possible labels of one person.

    Args:
        labels: (N, 4) gaze pitch, yaw, head pitch, yaw in rad.

    Returns:
        A sentence for each observation; [] if there is none.
    """
    if not len(labels):
        return []
    labels = np.asarray(labels, np.float64)
    gaze, head = vector_from_pitchyaw(labels[:, :2]), vector_from_pitchyaw(labels[:, 2:])
    from_axis_deg = float(np.degrees(np.median(angular_error(gaze, [0.0, 0, 1]))))
    from_head_deg = float(np.degrees(np.median(angular_error(gaze, head))))
    found = []
    if from_axis_deg > _AXIS_DEG:
        found.append(
            f"the gaze is typically {from_axis_deg:.0f} degrees from the camera: check the signs of the target"
        )
    if from_head_deg > _HEAD_DEG:
        found.append(f"the gaze is typically {from_head_deg:.0f} degrees from the head: check the signs of both")
    for axis, name in enumerate(("pitch", "yaw")):
        pair = np.degrees(labels[:, [axis, axis + 2]])
        if len(pair) < _FEWEST or (pair.std(axis=0) < _LEAST_SPREAD_DEG).any():
            continue
        correlation = float(np.corrcoef(pair.T)[0, 1])
        if correlation < _INVERTED:
            found.append(
                f"the {name} of gaze and head have opposite signs (correlation {correlation:.2f}): is one inverted?"
            )
    return found
