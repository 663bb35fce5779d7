"""A video with the gaze drawn into each frame: an arrow, the strip in a corner, and the angles or a reason."""

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.readers.manifest_camera import Camera
from faze.gaze.estimator import FaceGaze
from faze.gaze.sources import DEFAULT_FPS, Lens

ARROW_MM = 150.0
ARROW_BGR, REASON_BGR = (80, 220, 60), (60, 60, 235)
STRIP_SHARE = 0.3  # of the frame's width
MOST_FPS = 60.0  # the frames of faster cameras are thinned out
LONGEST_S = 10.0  # for which a frame stays visible, whatever the timestamps of a damaged video


def draw(image: NDArray[np.uint8], lens: Lens, found: Sequence[FaceGaze | str]) -> NDArray[np.uint8]:
    """Return a copy of a BGR frame with the gaze of each face, or the reason why there is none.

    Args:
        image: (H, W, 3).
        lens: the lens of the frame.
        found: the faces; the strip and the angles are those of the first.
    """
    picture = image.copy()
    faces = [face for face in found if not isinstance(face, str)]
    if not faces:
        _write(picture, found[0], REASON_BGR)
        return picture
    width = round(STRIP_SHARE * image.shape[1])
    height = round(width * faces[0].strip.shape[0] / faces[0].strip.shape[1])
    picture[:height, :width] = cv2.resize(faces[0].strip[:, :, ::-1], (width, height), interpolation=cv2.INTER_AREA)
    for face in faces:
        _draw_arrow(picture, lens.of(image), face)
    pitch, yaw = np.degrees(faces[0].pitchyaw)
    _write(picture, f"pitch {pitch:+.1f}, yaw {yaw:+.1f} degrees", ARROW_BGR)
    return picture


def _draw_arrow(picture: NDArray[np.uint8], camera: Camera, face: FaceGaze) -> None:
    zero, thickness = np.zeros(3), max(1, round(3 * picture.shape[0] / 720))
    [[start]] = cv2.projectPoints(face.origin_mm[None], zero, zero, *camera)[0]
    along = camera[0][[0, 1], [0, 1]] / face.origin_mm[2] * ARROW_MM * face.direction[:2]
    start, end = (tuple(map(int, point.round())) for point in (start, start + along))
    cv2.arrowedLine(picture, start, end, ARROW_BGR, thickness, cv2.LINE_AA, tipLength=0.2)


def _write(picture: NDArray[np.uint8], text: str, color: tuple[int, int, int]) -> None:
    """Write a line at the bottom, as large as the frame's width allows."""
    height, width = picture.shape[:2]
    margin, font = height // 45, cv2.FONT_HERSHEY_SIMPLEX
    size = 0.9 * height / 720
    size *= min(1.0, (width - 2 * margin) / cv2.getTextSize(text, font, size, 1)[0][0])
    thin = max(1, round(2 * size))
    for thickness, shade in ((3 * thin, (0, 0, 0)), (thin, color)):
        cv2.putText(picture, text, (margin, height - margin), font, size, shade, thickness, cv2.LINE_AA)


class Overlay:
    """An H.264 mp4 in fragments, which players read even if the run was stopped before its end."""

    def __init__(self, path: Path, fps: float) -> None:
        """Write to a path with a constant rate; the source's may vary.

        Raises:
            UserError: the encoder is not installed.
        """
        try:
            import imageio_ffmpeg  # not needed elsewhere
        except ImportError:
            raise UserError("--overlay needs an encoder: pip install imageio-ffmpeg") from None
        self._encoder = imageio_ffmpeg.get_ffmpeg_exe()
        self._path, self._fps = path, min(fps, MOST_FPS) if fps >= 1 else DEFAULT_FPS
        self._process: subprocess.Popen | None = None
        self._last = b""
        self._written, self._skipped = 0, 0  # frames; the latter of gaps that are too long

    def __enter__(self) -> "Overlay":
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """Finish the video; after an error, keep what there is.

        Raises:
            UserError: the encoder failed.
        """
        if self._process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.wait() and kind is None:
            raise self._failure()

    @property
    def begun(self) -> bool:
        """Whether there is a frame."""
        return self._process is not None

    def add(self, image: NDArray[np.uint8], time_s: float) -> None:
        """Add a BGR frame (H, W, 3), which is visible from its time until that of the next one.

        Raises:
            UserError: the encoder failed.
        """
        even = image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2].tobytes()
        slot = round(time_s * self._fps)
        if self._process is None:
            self._start(image.shape[1] // 2 * 2, image.shape[0] // 2 * 2)
            self._skipped = slot
        gap, longest = slot - self._skipped - self._written, round(LONGEST_S * self._fps)
        self._skipped += max(0, gap - longest)
        for picture in [self._last] * min(gap, longest) + [even] * (gap >= 0):
            try:
                self._process.stdin.write(picture)
            except BrokenPipeError:
                raise self._failure() from None
            self._written += 1
        self._last = even

    def _start(self, width: int, height: int) -> None:
        raw = ["-f", "rawvideo", "-pix_fmt", "bgr24", "-s", f"{width}x{height}", "-r", f"{self._fps:g}", "-i", "-"]
        coded = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-threads", "1", "-g", f"{self._fps:.0f}"]
        # With these, the last second is on the disk.
        coded += ["-tune", "zerolatency", "-flush_packets", "1"]
        coded += ["-movflags", "frag_keyframe+empty_moov+default_base_moof"]
        command = [self._encoder, "-y", "-loglevel", "quiet", *raw, *coded, str(self._path.resolve())]
        # The Ctrl-C that ends this process must not reach the encoder.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def _failure(self) -> UserError:
        return UserError(f"{self._path}: the encoder failed; is the disk full?")
