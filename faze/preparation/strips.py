"""A block of frames of one person -> eye strips and labels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faze.datasets import Frame, check_size
from faze.normalization import NormalizedCamera, UnusableFrame, normalize_pose, read_image


@dataclass(frozen=True)
class StripMaker:
    """How strips are made."""

    camera: NormalizedCamera
    warp: Callable[..., NDArray[np.uint8]]  # warp_fused, or another with its arguments

    def make(self, frames: Sequence[Frame], pixels: NDArray[np.uint8], labels: NDArray[np.float32]) -> list[str]:
        """Fill pixels (n, H, W, 3) RGB and labels (n, 4) of n frames of one person.

        Returns:
            per frame why it has no strip, "" where it has one; the rows of frames without one are left undefined.
        """
        reasons = []
        for row, frame in enumerate(frames):
            try:
                # The annotation first: reading the image is the dear part.
                pose = normalize_pose(
                    frame.rotation_vector, frame.translation_mm, frame.inner_eye_corners_mm, frame.gaze_target_mm
                )
                image = read_image(frame.image_path)
                check_size(frame, image.shape[1], image.shape[0])
                pixels[row] = self.warp(image, frame.camera_matrix, frame.distortion, pose, self.camera)
                labels[row] = pose.labels
            except UnusableFrame as reason:
                reasons.append(str(reason))
            else:
                reasons.append("")
        return reasons
