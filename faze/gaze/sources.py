"""Frames from images, folders, videos, manifests and cameras, and the lenses that captured them."""

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
from faze.data.readers.camera import FIELD_OF_VIEW_DEG, Camera, assumed_camera, read_camera
from faze.data.readers.person import Person
from faze.gaze.video import DAMAGED, check_video, read_video

IMAGES = (".jpg", ".jpeg", ".png")
VIDEOS = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mts", ".wmv", ".3gp")  # in a folder
MANIFESTS = (".csv", ".tsv", ".parquet")
ASSUMED_HFOV_DEG = 60.0


@dataclass(frozen=True)
class Source:
    """An image, a video or a manifest."""

    path: Path
    is_video: bool = False
    people: Sequence[Person] = ()  # of a manifest


@dataclass(frozen=True, eq=False)
class SourceFrame:
    """One frame of a source, or the reason why it cannot be read."""

    source: Path
    number: int  # from 0; always 0 for an image
    time_s: float  # since the beginning of the video; 0 for an image
    image: NDArray[np.uint8] | None  # (H, W, 3) BGR, upright
    reason: str = ""
    camera: Camera | None = None  # if a manifest contains it
    head: tuple[NDArray, NDArray] | None = None  # head pose (6,) and inner eye corners (2, 3), if a manifest has them


@dataclass(frozen=True)
class Lens:
    """The lens that captured the frames: a camera calibration, or the horizontal field of view of upright frames."""

    camera: Camera | None = None
    size: tuple[int, int] | None = None  # of the calibrated frames, if the calibration contains it
    hfov_deg: float = ASSUMED_HFOV_DEG

    def of(self, image: NDArray[np.uint8]) -> Camera:
        """Return the camera for a frame; raise UnusableFrame if the calibration is for frames of another size."""
        height, width = image.shape[:2]
        if self.camera is None:
            return assumed_camera(self.hfov_deg, width, height)
        if self.size not in (None, (width, height)):
            lens = "the lens was calibrated with {} x {} px".format(*self.size)
            raise UnusableFrame(f"{lens}, but the frame has {width} x {height} px: calibrate at the frame's size")
        return self.camera


def read_lens(path: Path | None, hfov_deg: float | None) -> Lens:
    """Return the lens given by --lens or --hfov-deg, or an assumed lens; raise UserError if an option is invalid."""
    if path and hfov_deg is not None:
        raise UserError("pass only one of --lens and --hfov-deg")
    least, most = FIELD_OF_VIEW_DEG
    if hfov_deg is not None and not least <= hfov_deg <= most:
        raise UserError(f"--hfov-deg {hfov_deg:g} is not between {least:g} and {most:g} degrees")
    if path:
        matrix, distortion, size = read_camera(path)
        return Lens((matrix, distortion), size)
    return Lens(hfov_deg=hfov_deg or ASSUMED_HFOV_DEG)


def sources_of(paths: Iterable[Path]) -> list[Source]:
    """Return the sources for images, videos, folders of both, and manifests; raise UserError if any is unreadable."""
    files: list[Path] = []
    for path in paths:
        inside = [path]
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix.lower() in IMAGES + VIDEOS)
        if not inside:
            raise UserError(f"{path} contains no image or video ({', '.join(IMAGES + VIDEOS)}): pass another folder")
        files += inside
    return [_check_file(file) for file in files]


def _check_file(path: Path) -> Source:
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    if path.suffix.lower() in IMAGES:
        return Source(path)
    if path.suffix.lower() in MANIFESTS:
        from faze.data.readers.manifest import read_manifest  # importing pandas takes 0.3 s

        return Source(path, people=read_manifest(path, posed=False))
    check_video(path)
    return Source(path, is_video=True)


def frames_of(sources: Iterable[Source]) -> Iterator[SourceFrame]:
    """Yield all frames of the sources (from `sources_of`) in order."""
    for source in sources:
        if source.is_video:
            for number, (time_s, image) in enumerate(read_video(source.path)):
                yield SourceFrame(source.path, number, time_s, image, DAMAGED if image is None else "")
        elif source.people:
            for person in source.people:
                yield from frames_of_person(person)
        else:
            yield _read_image(source.path)


def frames_of_person(person: Person) -> Iterator[SourceFrame]:
    """Yield a person's frames from a manifest."""
    for row, file in enumerate(person.files):
        camera, pose = (person.cameras[row], person.distortions[row]), person.poses[row]
        head = (pose, person.corners_mm[row]) if np.isfinite(pose).all() else None
        yield _read_image(person.folder / file, person.reasons[row], camera, head)


def _read_image(path: Path, reason: str = "", *stated: object) -> SourceFrame:
    try:
        image = None if reason else read_image(path)
    except UnusableFrame as unusable:
        image, reason = None, str(unusable)
    return SourceFrame(path, 0, 0.0, image, reason, *stated)


def camera_frames(index: int) -> Iterator[SourceFrame]:
    """Yield frames from a camera attached to this machine until the camera stops."""
    camera = cv2.VideoCapture(index)
    if not camera.isOpened():
        raise UserError(f"camera {index} cannot be opened: check that it exists and that no other program uses it")
    began = time.monotonic()
    for number in itertools.count():
        found, image = camera.read()
        if not found:
            return
        yield SourceFrame(Path(f"camera-{index}"), number, time.monotonic() - began, image)
