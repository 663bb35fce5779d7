"""A block of frames of one person -> eye strips and labels."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faze.data.normalization.frame import FrameReader
from faze.data.normalization.lookup import StripLookup
from faze.data.normalization.pose import NormalizedCamera, NormalizedPose, UnusableFrame, normalize_poses
from faze.data.normalization.warp import check_in_frame, look_up, warp_fused
from faze.data.readers import Frame
from faze.data.readers.frame_checks import check_size


@dataclass(frozen=True)
class StripMaker:
    """How strips are made."""

    camera: NormalizedCamera
    warp: Callable[..., NDArray[np.uint8]]  # warp_fused, or another with its arguments
    partial_decode: bool = True  # of a frame only the rows that its strip needs, by warp_fused; changes no pixel

    def make(self, frames: Sequence[Frame], pixels: NDArray[np.uint8], labels: NDArray[np.float32]) -> list[str]:
        """Fill pixels (n, H, W, 3) RGB and labels (n, 4) of n frames of one person.

        Returns:
            per frame why it has no strip, "" where it has one; the rows of frames without one are left undefined.
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
        draw = self._fused(frames, poses) if self.warp is warp_fused else self._whole(frames, poses)
        for row, reason in enumerate(reasons):
            if reason:  # of the annotation: reading the image would be the dear part
                continue
            try:
                draw(row, pixels[row])
            except UnusableFrame as unusable:
                reasons[row] = str(unusable)
        return reasons

    def _fused(self, frames: Sequence[Frame], poses: NormalizedPose) -> Callable[[int, NDArray[np.uint8]], None]:
        """What fills one strip from the rows of its frame that it needs."""
        matrices, reader = [frame.camera_matrix for frame in frames], FrameReader()
        lookup = StripLookup(matrices, [frame.distortion for frame in frames], poses, self.camera)

        def draw(row: int, strip: NDArray[np.uint8]) -> None:
            encoded = reader.read(frames[row].image_path)
            size_px = encoded.size_px if self.partial_decode else None
            image = None
            if size_px is None:
                image = encoded.decode()
                size_px = image.shape[1::-1]
            check_size(frames[row], *size_px)
            check_in_frame(size_px, matrices[row], lookup.gaze_origin_px[row])
            maps = lookup.maps(row)
            if image is None:
                image = encoded.decode(rows_needed(maps[1]))
            look_up(image, maps, strip)

        return draw

    def _whole(self, frames: Sequence[Frame], poses: NormalizedPose) -> Callable[[int, NDArray[np.uint8]], None]:
        """What fills one strip from its whole frame."""
        reader = FrameReader()

        def draw(row: int, strip: NDArray[np.uint8]) -> None:
            frame, image = frames[row], reader.read(frames[row].image_path).decode()
            check_size(frame, *image.shape[1::-1])
            strip[:] = self.warp(image, frame.camera_matrix, frame.distortion, poses[row], self.camera)

        return draw


def rows_needed(map_y: NDArray[np.float32]) -> int | None:
    """How many upper rows of a frame an interpolation at these heights (h, w) looks at; None: not known."""
    lowest = float(map_y.max())
    return int(min(max(lowest, -1.0), 2.0**20)) + 2 if math.isfinite(lowest) else None
