"""A video with the gaze drawn into each frame: an arrow, the strip in a corner, and the angles or a reason."""

from collections.abc import Generator
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.gaze.estimator import FaceGaze
from faze.gaze.sources import Lens

ARROW_MM = 150.0
ARROW_BGR, REASON_BGR = (80, 220, 60), (60, 60, 235)
STRIP_SHARE = 0.3  # of the frame's width
DEFAULT_FPS, MOST_FPS = 25.0, 120.0  # if a container states none, or a rate that no camera has


def draw(image: NDArray[np.uint8], lens: Lens, found: FaceGaze | str) -> NDArray[np.uint8]:
    """Return a copy of a BGR frame (H, W, 3) with its gaze, or the reason why there is none."""
    picture, scale = image.copy(), image.shape[0] / 720
    thickness = max(1, round(3 * scale))

    def write(text: str, line: int, color: tuple[int, int, int]) -> None:
        at = round(16 * scale), picture.shape[0] - round(16 * scale) - line * round(32 * scale)
        for width, shade in ((3 * thickness, (0, 0, 0)), (thickness, color)):
            cv2.putText(picture, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.9 * scale, shade, width, cv2.LINE_AA)

    if isinstance(found, str):
        write(found, 0, REASON_BGR)
        return picture
    width = round(STRIP_SHARE * image.shape[1])
    height = round(width * found.strip.shape[0] / found.strip.shape[1])
    picture[:height, :width] = cv2.resize(found.strip[:, :, ::-1], (width, height), interpolation=cv2.INTER_AREA)
    camera, zero = lens.of(image), np.zeros(3)
    [[start]] = cv2.projectPoints(found.origin_mm[None], zero, zero, *camera)[0]
    along = camera[0][[0, 1], [0, 1]] / found.origin_mm[2] * ARROW_MM * found.direction[:2]
    start, end = (tuple(map(int, point.round())) for point in (start, start + along))
    cv2.arrowedLine(picture, start, end, ARROW_BGR, thickness, cv2.LINE_AA, tipLength=0.2)
    pitch, yaw = np.degrees(found.pitchyaw)
    write(f"pitch {pitch:+.1f}, yaw {yaw:+.1f} degrees", 0, ARROW_BGR)
    return picture


class Overlay:
    """An H.264 mp4 in fragments, which players read even if the run was stopped before its end."""

    def __init__(self, path: Path, fps: float) -> None:
        """Write to a path with a constant rate; the source's may vary."""
        self._path, self._fps = path, fps if 1 <= fps <= MOST_FPS else DEFAULT_FPS
        self._writer: Generator | None = None
        self._last: NDArray[np.uint8] | None = None
        self._written = 0

    def add(self, image: NDArray[np.uint8], time_s: float) -> None:
        """Add a BGR frame (H, W, 3), which is visible from its time until that of the next one."""
        even = np.ascontiguousarray(image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2])
        if self._writer is None:
            self._writer = self._open(even.shape[1::-1])
        else:
            for _ in range(round(time_s * self._fps) - self._written):
                self._send(self._last)
        self._send(even)
        self._last = even

    def close(self) -> None:
        """Finish the video."""
        if self._writer:
            self._writer.close()

    def _send(self, picture: NDArray[np.uint8]) -> None:
        self._writer.send(picture)
        self._written += 1

    def _open(self, size: tuple[int, int]) -> Generator:
        try:
            import imageio_ffmpeg  # not needed elsewhere
        except ImportError:
            raise UserError("--overlay needs an encoder: pip install imageio-ffmpeg") from None
        fragments = ["-g", str(round(self._fps)), "-movflags", "frag_keyframe+empty_moov+default_base_moof"]
        fragments += ["-tune", "zerolatency", "-flush_packets", "1"]  # the last second is on the disk
        writer = imageio_ffmpeg.write_frames(
            str(self._path),
            size,
            pix_fmt_in="bgr24",
            pix_fmt_out="yuv420p",
            fps=self._fps,
            codec="libx264",
            macro_block_size=2,
            quality=None,
            output_params=["-crf", "20", "-threads", "1", *fragments],
        )
        writer.send(None)
        return writer
