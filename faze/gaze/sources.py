"""The frames of images, folders of images and videos, and the lens through which they were taken."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.normalization.images import MOST_PIXELS, read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import check_principal_point
from faze.data.readers.manifest_camera import Camera, assume_camera

IMAGES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True, eq=False)
class SourceFrame:
    """One frame of a source, or the reason why it cannot be read."""

    source: Path
    number: int  # from 0; of an image always 0
    time_s: float  # since the beginning of the video; 0 for an image
    image: NDArray[np.uint8] | None  # (H, W, 3) BGR, upright
    reason: str = ""


@dataclass(frozen=True)
class Lens:
    """The camera of frames: a calibration, or a horizontal field of view."""

    camera: Camera | None = None
    hfov_deg: float = 60.0
    assumed: bool = True

    def of(self, image: NDArray[np.uint8]) -> Camera:
        """Return the camera matrix and the distortion for a frame.

        Raises:
            UnusableFrame: the calibration is for frames of another size.
        """
        height, width = image.shape[:2]
        if self.camera is None:
            return assume_camera(self.hfov_deg, width, height)
        check_principal_point(self.camera[0], width, height)
        return self.camera

    def __str__(self) -> str:
        return f"a field of view of {self.hfov_deg:g} degrees is assumed: pass --lens or --hfov-deg"


def count_frames(paths: Sequence[Path]) -> int:
    """Count the frames, as far as the containers of videos state them."""
    total = 0
    for path in paths:
        if path.is_dir():
            total += len(_images(path))
        elif path.suffix.lower() in IMAGES:
            total += 1
        else:
            total += max(0, int(cv2.VideoCapture(str(path), cv2.CAP_FFMPEG).get(cv2.CAP_PROP_FRAME_COUNT)))
    return max(total, 1)


def rate_of(path: Path) -> float:
    """Return the frames per second that a video's container states; 0 if it states none."""
    return cv2.VideoCapture(str(path), cv2.CAP_FFMPEG).get(cv2.CAP_PROP_FPS)


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGES)


def frames_of(paths: Sequence[Path]) -> Iterator[SourceFrame]:
    """Read all frames of images, folders of images and videos, in order.

    Raises:
        UserError: a path does not exist, a folder has no images, or a file is neither an image nor a video.
    """
    for path in paths:
        if path.is_dir():
            images = _images(path)
            if not images:
                raise UserError(f"{path}: contains no {', '.join(IMAGES)}")
            yield from map(_read_image, images)
        elif not path.exists():
            raise UserError(f"{path}: no such file or folder")
        elif path.suffix.lower() in IMAGES:
            yield _read_image(path)
        else:
            yield from _read_video(path)


def _read_image(path: Path) -> SourceFrame:
    try:
        return SourceFrame(path, 0, 0.0, read_image(path))
    except UnusableFrame as unusable:
        return SourceFrame(path, 0, 0.0, None, str(unusable))


def _read_video(path: Path) -> Iterator[SourceFrame]:
    """Read a video; OpenCV applies the rotation that its container states."""
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    try:
        width, height = (int(video.get(side)) for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
        if not video.isOpened() or width * height == 0:
            raise UserError(f"{path}: is no image, and no video that OpenCV can read")
        if width * height > MOST_PIXELS:
            raise UserError(f"{path}: {width} x {height} px are more than any camera's video; scale it down")
        number = 0
        while True:
            found, image = video.read()
            if not found:
                break
            yield SourceFrame(path, number, video.get(cv2.CAP_PROP_POS_MSEC) / 1000, image)
            number += 1
    finally:
        video.release()
    if not number:
        raise UserError(f"{path}: contains no frame that can be decoded")
