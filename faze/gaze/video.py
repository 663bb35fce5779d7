"""Read videos as players show them: cropped, rotated and mirrored, with square pixels."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import av
import cv2
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from faze.base.errors import UserError

DAMAGED = "the frame is damaged"


def check_video(path: Path) -> None:
    """Raise a UserError if no frame can be decoded, and report anything that a player would show differently."""
    try:
        with av.open(str(path.absolute())) as container:  # otherwise, "a:b.mp4" would mean a protocol "a"
            stream = container.streams.best("video")
            codec = "none" if stream is None else _describe(container, stream)[0]
            first = None if stream is None else next(filter(None, _decode(container, stream)), None)
            videos = len(container.streams.video)
    except (av.FFmpegError, OSError) as error:
        raise UserError(f"{path} is not a readable video ({error.strerror}); is it complete?") from None
    if first is None:
        raise UserError(
            f"{path} contains no video that can be decoded (codec: {codec}): convert it, for example with "
            f"ffmpeg -i {path.name} -c:v libx264 converted.mp4"
        )
    notes = {
        "the rotation in its metadata is not a multiple of 90 degrees and is ignored": first.rotation % 90,
        "it is interlaced, which distorts moving faces: deinterlace it (ffmpeg -vf bwdif)": first.interlaced_frame,
        "it contains several videos, of which only the best is read": videos > 1,
    }
    for note, applies in notes.items():
        if applies:
            print(f"{path}: {note}", file=sys.stderr)


def read_video(path: Path) -> Iterator[tuple[float, NDArray[np.uint8] | None]]:
    """Yield each frame's time in s, from 0, and its BGR picture (H, W, 3), which is None if the frame is damaged."""
    with av.open(str(path.absolute())) as container:
        stream = container.streams.best("video")
        left, right, top, bottom = _describe(container, stream)[1]
        pixel_aspect = float(stream.sample_aspect_ratio or 1)
        start_s = float((stream.start_time or 0) * stream.time_base)
        to_bgr, time_s = VideoReformatter(), 0.0
        for number, frame in enumerate(_decode(container, stream)):
            if frame is None:
                yield time_s, None
                continue
            time_s = number / float(stream.guessed_rate or 25) if frame.time is None else frame.time - start_s
            image = to_bgr.reformat(frame, format="bgr24").to_ndarray()
            image = np.ascontiguousarray(image[top : image.shape[0] - bottom, left : image.shape[1] - right])
            if pixel_aspect != 1:
                image = cv2.resize(image, None, fx=max(pixel_aspect, 1), fy=max(1 / pixel_aspect, 1))
            matrix = frame.side_data.get("DISPLAYMATRIX")
            yield time_s, image if matrix is None else _turn(image, np.frombuffer(matrix, np.int32))


def _describe(container: InputContainer, stream: VideoStream) -> tuple[str, list[int]]:
    """Return the codec and the pixels to crop on the left, right, top and bottom, from ffmpeg's stream description."""
    # Never call this while threads decode: if messages go to Python, closing the file could wait for them forever.
    av.logging.set_level(av.logging.INFO)
    text = container.dumps_format().split(f"Stream #0:{stream.index}")[1].split("Stream #")[0]
    av.logging.set_level(None)
    cropping = re.search(r"Cropping: (\d+)/(\d+)/(\d+)/(\d+)", text)
    return re.search("Video: ([^,]*)", text)[1], [int(px) for px in cropping.groups()] if cropping else [0, 0, 0, 0]


def _decode(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame | None]:
    """Yield all decoded frames, with None in place of frames that are damaged or depend on a damaged one."""
    stream.thread_type = "AUTO"
    packets, damaged = container.demux(stream), False
    while True:
        try:
            frames = next(packets).decode()
        except StopIteration:
            return
        except av.FFmpegError:
            damaged = True
            yield None
            continue
        for frame in frames:
            damaged = frame.is_corrupt or (damaged and not frame.key_frame)
            yield None if damaged else frame


def _turn(image: NDArray[np.uint8], matrix: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Rotate and mirror a picture as its display matrix (9,) specifies, to the nearest multiple of 90 degrees."""
    x_to_x, x_to_y, _, y_to_x, y_to_y = matrix[:5].tolist()
    if abs(x_to_x) < abs(x_to_y):
        image, x_to_x, y_to_y = cv2.transpose(image), y_to_x, x_to_y
    if x_to_x < 0:
        image = cv2.flip(image, 1)
    return cv2.flip(image, 0) if y_to_y < 0 else image
