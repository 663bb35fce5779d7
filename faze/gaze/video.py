"""Read a video as players show it: cropped, with square pixels, rotated, mirrored, and in standard colours."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import av
import cv2
import numpy as np
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.reformatter import ColorPrimaries, ColorTrc, VideoReformatter
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.machine import usable_cores

DEFAULT_FPS = 25  # if neither times nor a rate are stated
HDR = (ColorTrc.SMPTE2084, ColorTrc.ARIB_STD_B67)
SRGB = {"dst_color_trc": ColorTrc.IEC61966_2_1, "dst_color_primaries": ColorPrimaries.BT709}
DAMAGED = "the frame is damaged"


def check_video(path: Path) -> tuple[int, list[str]]:
    """Decode a frame; return the stated number of frames, 0 if unknown, and sentences about how they are read.

    Raises:
        UserError: the file is not a video, or no frame can be decoded.
    """
    with contextlib.closing(_Video(path)) as video:
        first = next((frame for frame in video.frames() if frame), None)
        if first is None:
            raise UserError(
                f"{path}: no frame can be decoded (codec {video.codec}); convert the video, for example with "
                f"ffmpeg -i {path.name} -c:v libx264 converted.mp4"
            )
        height, width = video.picture(first).shape[:2]
        notes = []
        if {width, height} != {first.width, first.height}:
            notes.append(f"frames of {first.width} x {first.height} px are read as {width} x {height}, as players do")
        if first.rotation % 90:
            notes.append("is to be rotated by an angle that is not a multiple of 90 degrees, which is not done")
        if first.interlaced_frame:
            notes.append("is interlaced, which distorts moving faces: deinterlace it, for example by ffmpeg -vf bwdif")
        if video.several:
            notes.append(f"contains several videos, of which the one with {width} x {height} px is read")
        return video.stream.frames, notes


def read_video(path: Path) -> Iterator[tuple[float, NDArray[np.uint8] | None]]:
    """Yield the time in s, from 0, and the picture (H, W, 3) BGR of each frame; None if it is damaged.

    If times are missing or restart, as without a container, the frames after that have the stated or a common rate.
    """
    with contextlib.closing(_Video(path)) as video:
        step_s = 1 / float(video.stream.guessed_rate or DEFAULT_FPS)
        time_s, shift_s = -step_s, 0.0
        for frame in video.frames():
            if frame is None:
                yield max(time_s, 0.0), None
                continue
            stated_s = frame.time or 0.0
            if time_s < 0 or stated_s + shift_s <= time_s:
                shift_s = time_s + step_s - stated_s
            time_s = stated_s + shift_s
            yield time_s, video.picture(frame)


class _Video:
    """An opened video."""

    def __init__(self, path: Path) -> None:
        try:
            self._container = av.open(str(path.absolute()))  # what precedes a colon would be taken for a protocol
        except (av.FFmpegError, OSError) as error:
            raise UserError(f"{path}: is not a video that can be read ({error.strerror}); is it complete?") from None
        streams = [each for each in self._container.streams.video if Disposition.attached_pic not in each.disposition]
        if not streams:
            raise UserError(f"{path}: contains no video")
        best = self._container.streams.best("video")
        self.stream, self.several = best if best in streams else streams[0], len(streams) > 1
        about = self._describe_stream()
        self.codec = re.search("Video: ([^,]*)", about)[1]
        cropping = re.search(r"Cropping: (\d+)/(\d+)/(\d+)/(\d+)", about)
        self._crop = [int(px) for px in cropping.groups()] if cropping else [0, 0, 0, 0]  # left, right, top, bottom
        self._pixel_aspect = float(self.stream.sample_aspect_ratio or 1)
        self._to_bgr = VideoReformatter()
        if self.stream.codec_context:
            self.stream.thread_type, self.stream.thread_count = "AUTO", usable_cores()

    def close(self) -> None:
        self._container.close()

    def _describe_stream(self) -> str:
        """Return what ffmpeg prints about the stream, which contains the codec and the cropping."""
        av.logging.set_level(av.logging.INFO)
        text = self._container.dumps_format()
        av.logging.set_level(None)
        return text.split(f"Stream #0:{self.stream.index}")[1].split("Stream #")[0]

    def frames(self) -> Iterator[VideoFrame | None]:
        """Decode all frames; None is a frame that is damaged, or that refers to such a frame."""
        packets, damaged = self._container.demux(self.stream), False
        while True:
            try:
                packet = next(packets, None)
                frames = packet.decode() if packet else None
            except av.FFmpegError:
                damaged = True
                yield None
                continue
            if frames is None:
                return
            for frame in frames:
                damaged = frame.is_corrupt or (damaged and not frame.key_frame)
                yield None if damaged else frame

    def picture(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Convert a frame to (H, W, 3) BGR as it is shown."""
        image = self._to_bgr.reformat(frame, format="bgr24", **(SRGB if frame.color_trc in HDR else {})).to_ndarray()
        left, right, top, bottom = self._crop
        image = np.ascontiguousarray(image[top : image.shape[0] - bottom, left : image.shape[1] - right])
        if self._pixel_aspect != 1:
            image = cv2.resize(image, None, fx=max(self._pixel_aspect, 1), fy=max(1 / self._pixel_aspect, 1))
        matrix = frame.side_data.get("DISPLAYMATRIX")
        return image if matrix is None else _turn(image, np.frombuffer(matrix, np.int32))


def _turn(image: NDArray[np.uint8], matrix: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Rotate and mirror a picture by a display matrix (9,), to the nearest multiple of 90 degrees."""
    x_to_x, x_to_y, _, y_to_x, y_to_y = matrix[:5].tolist()
    if abs(x_to_x) < abs(x_to_y):
        image, x_to_x, y_to_y = cv2.transpose(image), y_to_x, x_to_y
    if x_to_x < 0:
        image = cv2.flip(image, 1)
    return cv2.flip(image, 0) if y_to_y < 0 else image
