"""The frames of images, folders, videos, manifests and cameras, and the lens through which they were taken."""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import Reject, check_principal_point
from faze.data.readers.manifest import SUFFIXES as MANIFESTS
from faze.data.readers.manifest_camera import (
    FIELD_OF_VIEW_DEG,
    Camera,
    Size,
    assume_camera,
    check_calibrated_size,
    read_cameras,
)
from faze.data.readers.manifest_lines import ManifestLines, UnposedFrame

IMAGES = (".jpg", ".jpeg", ".png")
ASSUMED_HFOV_DEG = 60.0
DEFAULT_FPS = 25.0  # if a container states none


@dataclass(frozen=True)
class Source:
    """An image or a video."""

    path: Path
    frames: int = 1  # as a video's container states it; 0: not stated
    fps: float = 0.0  # 0: an image, or not stated

    @property
    def is_manifest(self) -> bool:
        """Whether the source is a manifest."""
        return self.path.suffix.lower() in MANIFESTS

    @property
    def is_video(self) -> bool:
        """Whether the source is a video."""
        return not self.is_manifest and self.path.suffix.lower() not in IMAGES


@dataclass(frozen=True, eq=False)
class SourceFrame:
    """One frame of a source, or the reason why it cannot be read."""

    source: Path
    number: int  # from 0, of those that can be decoded; of an image always 0
    time_s: float  # since the beginning of the video; 0 for an image
    image: NDArray[np.uint8] | None  # (H, W, 3) BGR, upright
    reason: str = ""
    camera: Camera | None = None  # as a manifest states it


@dataclass(frozen=True)
class Lens:
    """The camera of frames: a calibration, a focal length, a field of view across upright frames, or an assumption."""

    camera: Camera | None = None
    size: Size | None = None  # of the frames of the calibration, if it states it
    focal_px: float | None = None
    hfov_deg: float | None = None

    @property
    def assumed(self) -> bool:
        """Whether nothing is known about the camera."""
        return self.camera is None and self.focal_px is None and self.hfov_deg is None

    def of(self, image: NDArray[np.uint8]) -> Camera:
        """Return the camera matrix and the distortion for a frame.

        Raises:
            UnusableFrame: the calibration belongs to frames of another size.
        """
        height, width = image.shape[:2]
        if self.size:
            check_calibrated_size(self.size, width, height)
        if self.focal_px is not None:
            center = [[self.focal_px, 0, (width - 1) / 2], [0, self.focal_px, (height - 1) / 2], [0, 0, 1]]
            return np.array(center), np.zeros(5)
        if self.camera is None:
            return assume_camera(self.hfov_deg or ASSUMED_HFOV_DEG, width, height)
        check_principal_point(self.camera[0], width, height)
        return self.camera


def read_lens(path: Path | None, focal_px: float | None = None, hfov_deg: float | None = None) -> Lens:
    """Return the lens that a file, a focal length or a field of view describes, or an assumed one.

    Raises:
        UserError: several are given, or one cannot be used.
    """
    if sum(each is not None for each in (path, focal_px, hfov_deg)) > 1:
        raise UserError("pass only one of --lens, --focal-px and --hfov-deg")
    least, most = FIELD_OF_VIEW_DEG
    if hfov_deg is not None and not least <= hfov_deg <= most:
        raise UserError(f"--hfov-deg {hfov_deg:g} is not between {least:g} and {most:g} degrees")
    if focal_px is not None and not 1 <= focal_px < np.inf:
        raise UserError(f"--focal-px {focal_px:g} is not a focal length in px")
    if path is None:
        return Lens(focal_px=focal_px, hfov_deg=hfov_deg)
    known = read_cameras(path.parent, [path.name])[path.name]
    if isinstance(known, str):
        raise UserError(known)
    return Lens(*known)


def sources_of(paths: Sequence[Path]) -> list[Source]:
    """Check images, folders of images, videos and manifests.

    Raises:
        UserError: a path does not exist, a folder has no images, or a file is of no known kind.
    """
    found: list[Source] = []
    for path in paths:
        if path.is_dir():
            images = sorted(each for each in path.iterdir() if each.suffix.lower() in IMAGES)
            if not images:
                raise UserError(f"{path}: contains no {', '.join(IMAGES)}: pass another folder")
            found += map(Source, images)
        elif not path.exists():
            raise UserError(f"{path}: no such file or folder")
        elif path.suffix.lower() in IMAGES:
            found.append(Source(path))
        elif path.suffix.lower() in MANIFESTS:
            found.append(Source(path, len(ManifestLines(path).table)))
        else:
            found.append(_check_video(path))
    return found


def frames_of(sources: Iterable[Source]) -> Iterator[SourceFrame]:
    """Read all frames of sources (`sources_of`), in order."""
    for source in sources:
        if source.is_manifest:
            lines = ManifestLines(source.path)
            for line in (line for person in lines.persons() for line in lines.unposed(person)):
                yield _of_line(line, lines.folder)
        elif source.is_video:
            yield from _read_video(source.path)
        else:
            yield _read_image(source.path)


def open_camera(index: int) -> Iterator[SourceFrame]:
    """Open a camera of this machine; return its frames, until it stops.

    Raises:
        UserError: there is no such camera.
    """
    camera = cv2.VideoCapture(index)
    found, image = camera.read()
    if not found:
        raise UserError(f"camera {index} cannot be opened: does it exist, or is another program using it?")
    return _camera_frames(camera, index, image)


def _camera_frames(camera: cv2.VideoCapture, index: int, image: NDArray[np.uint8]) -> Iterator[SourceFrame]:
    began, found = time.monotonic(), True
    try:
        for number in itertools.count():
            yield SourceFrame(Path(f"camera-{index}"), number, time.monotonic() - began, image)
            found, image = camera.read()
            if not found:
                break
    finally:
        camera.release()


def _of_line(line: UnposedFrame | Reject, folder: Path) -> SourceFrame:
    if isinstance(line, Reject):
        return SourceFrame(folder / line.file_name, 0, 0.0, None, line.reason)
    return _read_image(line.image_path, (line.camera_matrix, line.distortion))


def _read_image(path: Path, camera: Camera | None = None) -> SourceFrame:
    try:
        return SourceFrame(path, 0, 0.0, read_image(path), camera=camera)
    except UnusableFrame as unusable:
        return SourceFrame(path, 0, 0.0, None, str(unusable))


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
        raise UserError(f"{path}: is neither an image nor a video that OpenCV can read; is the file complete?")
    return Source(path, max(0, int(frames)), fps if fps >= 1 else 0.0)


def _read_video(path: Path) -> Iterator[SourceFrame]:
    """Read a video; OpenCV applies the rotation that its container states.

    If its times stop or restart, as without a container, the frames after that have the stated or a common rate.
    """
    video, number, time_s, shift_s = _open(path), 0, 0.0, 0.0
    fps = video.get(cv2.CAP_PROP_FPS)
    step_s = 1 / fps if fps >= 1 else 1 / DEFAULT_FPS
    try:
        while True:
            found, image = video.read()
            if not found:
                break
            stated_s = video.get(cv2.CAP_PROP_POS_MSEC) / 1000
            if number and stated_s + shift_s <= time_s:
                shift_s = time_s + step_s - stated_s
            time_s = stated_s + shift_s
            yield SourceFrame(path, number, time_s, image)
            number += 1
    finally:
        video.release()
    if not number:
        yield SourceFrame(path, 0, 0.0, None, "the video contains no frame that can be decoded")
