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
ASSUMED_HFOV_DEG = 60.0


@dataclass(frozen=True)
class Source:
    """An image or a video."""

    path: Path
    frames: int = 1  # as a video's container states it; at least 1
    fps: float = 0.0  # 0: an image, or not stated


@dataclass(frozen=True, eq=False)
class SourceFrame:
    """One frame of a source, or the reason why it cannot be read."""

    source: Path
    number: int  # from 0, of those that can be decoded; of an image always 0
    time_s: float  # since the beginning of the video; 0 for an image
    image: NDArray[np.uint8] | None  # (H, W, 3) BGR, upright
    reason: str = ""


@dataclass(frozen=True)
class Lens:
    """The camera of frames: a calibration, a field of view across the width of the upright frame, or an assumed one."""

    camera: Camera | None = None
    hfov_deg: float | None = None

    @property
    def assumed(self) -> bool:
        """Whether nothing is known about the camera."""
        return self.camera is None and self.hfov_deg is None

    def of(self, image: NDArray[np.uint8]) -> Camera:
        """Return the camera matrix and the distortion for a frame.

        Raises:
            UnusableFrame: the principal point of the calibration is far from the frame's centre.
        """
        height, width = image.shape[:2]
        if self.camera is None:
            return assume_camera(self.hfov_deg or ASSUMED_HFOV_DEG, width, height)
        check_principal_point(self.camera[0], width, height)
        return self.camera


def sources_of(paths: Sequence[Path]) -> list[Source]:
    """Check images, folders of images and videos.

    Raises:
        UserError: a path does not exist, a folder has no images, or a file is neither an image nor a video.
    """
    found: list[Source] = []
    for path in paths:
        if path.is_dir():
            images = sorted(each for each in path.iterdir() if each.suffix.lower() in IMAGES)
            if not images:
                raise UserError(f"{path}: contains no {', '.join(IMAGES)}")
            found += map(Source, images)
        elif not path.exists():
            raise UserError(f"{path}: no such file or folder")
        elif path.suffix.lower() in IMAGES:
            found.append(Source(path))
        else:
            found.append(_check_video(path))
    return found


def frames_of(paths: Sequence[Path]) -> Iterator[SourceFrame]:
    """Read all frames of images, folders of images and videos, in order; see `sources_of`."""
    for source in sources_of(paths):
        if source.path.suffix.lower() not in IMAGES:
            yield from _read_video(source.path)
            continue
        try:
            yield SourceFrame(source.path, 0, 0.0, read_image(source.path))
        except UnusableFrame as unusable:
            yield SourceFrame(source.path, 0, 0.0, None, str(unusable))


def _open(path: Path) -> cv2.VideoCapture:
    # ffmpeg would take what precedes a colon in a relative path for a protocol.
    return cv2.VideoCapture(str(path.resolve()), cv2.CAP_FFMPEG)


def _check_video(path: Path) -> Source:
    video = _open(path)
    opened = video.isOpened()
    width, height = (int(video.get(side)) for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
    frames, fps = video.get(cv2.CAP_PROP_FRAME_COUNT), video.get(cv2.CAP_PROP_FPS)
    video.release()
    if not opened or width * height <= 0:
        raise UserError(f"{path}: is neither an image nor a video that OpenCV can read")
    if width * height > MOST_PIXELS:
        raise UserError(f"{path}: {width} x {height} px is too large; scale the video down")
    return Source(path, max(1, int(frames)), fps)


def _read_video(path: Path) -> Iterator[SourceFrame]:
    """Read a video; OpenCV applies the rotation that its container states."""
    video, number = _open(path), 0
    try:
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
