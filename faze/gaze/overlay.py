"""Gaze overlays for video frames: an arrow, the strip and the angles, or the reason why there is no gaze."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.readers.camera import Camera
from faze.gaze.estimator import FaceGaze
from faze.gaze.sources import Lens

ARROW_MM = 150.0
ARROW_BGR, REASON_BGR = (80, 220, 60), (60, 60, 235)
STRIP_SHARES = np.array([0.25, 0.3])  # at most, of the frame's height and width
TICKS_PER_S = 90_000  # unit of timestamps


def draw(image: NDArray[np.uint8], lens: Lens, found: Sequence[FaceGaze | str]) -> NDArray[np.uint8]:
    """Return a copy of a BGR frame (H, W, 3) that shows each face's gaze, and the first face's strip and angles."""
    picture = image.copy()
    faces = [face for face in found if not isinstance(face, str)]
    if not faces:
        _write(picture, found[0], REASON_BGR)
        return picture
    sides = np.array(faces[0].strip.shape[:2])
    height, width = np.rint(sides * np.min(STRIP_SHARES * image.shape[:2] / sides)).astype(int).tolist()
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
    """Write a line of text at the bottom, scaled down if it is wider than the frame."""
    height, width = picture.shape[:2]
    margin, font = height // 45, cv2.FONT_HERSHEY_SIMPLEX
    size = 0.9 * height / 720
    size *= min(1.0, (width - 2 * margin) / cv2.getTextSize(text, font, size, 1)[0][0])
    thin = max(1, round(2 * size))
    for thickness, shade in ((3 * thin, (0, 0, 0)), (thin, color)):
        cv2.putText(picture, text, (margin, height - margin), font, size, shade, thickness, cv2.LINE_AA)


@contextlib.contextmanager
def open_overlay(path: Path) -> Iterator[Callable[[NDArray[np.uint8], float], None]]:
    """Open an H.264 mp4 file; yield a function that adds a BGR frame (H, W, 3) and its start time in s."""
    with av.open(str(path.absolute()), "w", format="mp4") as file:
        coding = {"preset": "ultrafast", "crf": "20"}
        stream = file.add_stream("libx264", options=coding, thread_count=1, pix_fmt="yuv420p")
        stream.codec_context.time_base = Fraction(1, TICKS_PER_S)
        ticks = -1

        def add(image: NDArray[np.uint8], time_s: float) -> None:
            nonlocal ticks
            if ticks < 0:
                stream.width, stream.height = image.shape[1] // 2 * 2, image.shape[0] // 2 * 2
            ticks = max(ticks + 1, round(time_s * TICKS_PER_S))
            frame = av.VideoFrame.from_ndarray(image, format="bgr24")
            frame.pts, frame.time_base = ticks, stream.codec_context.time_base
            file.mux(stream.encode(frame))

        try:
            yield add
        finally:
            if ticks >= 0:
                file.mux(stream.encode())
