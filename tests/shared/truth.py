"""Labels of rendered people by geometry."""

import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.layouts import PersonFrames


def annotated_labels(frames: PersonFrames) -> NDArray:
    """Compute (N, 4) labels of the annotation by trigonometry, without the code that normalises poses."""
    scene = frames.scene
    origin, head_x = scene.annotated_origin_mm, scene.annotated_rotation[:, :, 0]
    forward = unit(origin)
    right = unit(head_x - np.sum(head_x * forward, axis=1, keepdims=True) * forward)
    down = np.cross(forward, right)
    angles = []
    for vector in (unit(scene.target_mm - origin), -scene.annotated_rotation[:, :, 2]):
        across, below, along = (np.sum(vector * axis, axis=1) for axis in (right, down, forward))
        angles += [np.arcsin(-below), np.arctan2(-across, -along)]
    return np.column_stack(angles)


def unit(vectors: NDArray) -> NDArray:
    """Scale (N, 3) vectors to the length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
