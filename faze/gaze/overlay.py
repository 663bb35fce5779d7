"""A video with the gaze drawn into each frame: an arrow, the strip in a corner, and the angles or a reason."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
STRIP_SHARE = 0.3  # of the frame's width
TICKS_PER_S = 90_000  # of timestamps
GROUP = 25  # frames that are written to the disk together


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

    def __init__(self, path: Path) -> None:
        options = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "flush_packets": "1"}
        self._file = av.open(str(path.absolute()), "w", options=options)
        coding = {"preset": "veryfast", "crf": "20", "tune": "zerolatency", "g": str(GROUP)}
        self._stream = self._file.add_stream("libx264", options=coding, thread_count=1, pix_fmt="yuv420p")
        self._stream.codec_context.time_base = Fraction(1, TICKS_PER_S)
        self._ticks = -1
        self._thread, self._encoded = ThreadPoolExecutor(1), Future()  # encodes a frame while the next one is processed
        self._encoded.set_result(None)

    def __enter__(self) -> "Overlay":
        return self

    def __exit__(self, *_: object) -> None:
        """Finish the video; after an error, keep what there is."""
        self._thread.shutdown()
        self._encoded.result()
        if self._ticks >= 0:
            self._encode(None)
        self._file.close()

    def add(self, image: NDArray[np.uint8], time_s: float) -> None:
        """Add a BGR frame (H, W, 3), which is visible from its time until that of the next one."""
        if self._ticks < 0:
            self._stream.width, self._stream.height = image.shape[1] // 2 * 2, image.shape[0] // 2 * 2
        self._ticks = max(self._ticks + 1, round(time_s * TICKS_PER_S))
        frame = av.VideoFrame.from_ndarray(image, format="bgr24")
        frame.pts, frame.time_base = self._ticks, self._stream.codec_context.time_base
        self._encoded.result()
        self._encoded = self._thread.submit(self._encode, frame)

    def _encode(self, frame: av.VideoFrame | None) -> None:
        self._file.mux(self._stream.encode(frame))
