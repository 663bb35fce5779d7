"""Turn frames of one person into eye strips and labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faze.config.parameters import NormalizedCamera, Preprocess
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import UnusableFrame, normalize_poses
from faze.data.normalization.warp import StripLookup, Undistorted, check_in_frame, look_up, warp_two_step
from faze.data.readers import Frame, check_size
from faze.data.readers.plausibility import find_impossible

RECENTRED = ("mpiifacegaze", "mpiigaze")  # layouts whose frames the released procedure undistorts with a centred camera


@dataclass(frozen=True)
class StripMaker:
    """Make strips with one virtual camera, in one or two steps."""

    camera: NormalizedCamera
    # None: one interpolation. Otherwise: the released procedure in two steps, which undistorts the frame in this way.
    released: Undistorted | None = None

    @classmethod
    def of(cls, settings: Preprocess, layout: str) -> "StripMaker":
        """Create the maker of the strips of a data set in a layout."""
        released: Undistorted = "recentred" if layout in RECENTRED else "keep"
        return cls(settings, released if settings.compatibility == "two_step" else None)

    def make(self, frames: Sequence[Frame], pixels: NDArray[np.uint8], labels: NDArray[np.float32]) -> list[str]:
        """Fill pixels (n, H, W, 3) RGB and labels (n, 4) for n frames of one person.

        Returns:
            For each frame, the reason why it has no strip, or "" if it has one. Rows of frames without a strip are
            undefined.
        """
        if not frames:
            return []
        poses, reasons = normalize_poses(
            np.array([frame.rotation_vector for frame in frames], np.float64),
            np.array([frame.translation_mm for frame in frames], np.float64),
            np.array([frame.inner_eye_corners_mm for frame in frames], np.float64),
            np.array([frame.gaze_target_mm for frame in frames], np.float64),
        )
        labels[:] = poses.labels
        reasons = [reason or fault for reason, fault in zip(reasons, find_impossible(poses.labels), strict=True)]
        lookup = None
        if self.released is None:
            matrices, distortions = zip(*((frame.camera_matrix, frame.distortion) for frame in frames), strict=True)
            lookup = StripLookup(matrices, distortions, poses, self.camera)
        for row, frame in enumerate(frames):
            if reasons[row]:  # found in the annotation; reading the image, the largest cost, is not needed
                continue
            try:
                image = read_image(frame.image_path)
                size_px, lens = image.shape[1::-1], (frame.camera_matrix, frame.distortion)
                check_size(frame, *size_px)
                if lookup is None:
                    pixels[row] = warp_two_step(image, *lens, poses[row], self.camera, self.released)
                else:
                    check_in_frame(size_px, frame.camera_matrix, lookup.gaze_origin_px[row])
                    look_up(image, lookup.maps(row), pixels[row])
            except UnusableFrame as unusable:
                reasons[row] = str(unusable)
        return reasons
