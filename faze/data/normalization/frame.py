"""Frames from their files."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.files import reason_of
from faze.data.normalization.jpeg import PADDING, JpegHeader, cut, is_whole, read_header
from faze.data.normalization.pose import UnusableFrame

_BUFFER_BYTES = 1 << 20  # at first; larger files make it grow


def read_image(path: Path) -> NDArray[np.uint8]:
    """Read a frame as (H, W, 3) uint8 BGR, turned as its EXIF orientation says.

    Raises:
        UnusableFrame: the file is missing, unreadable, empty, cut short or not an image.
    """
    return FrameReader().read(path).decode()


class FrameReader:
    """Reads frames one after the other into the same memory."""

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._beginning, self._header = b"", None  # of the last JPEG

    def read(self, path: Path) -> "EncodedFrame":
        """Read a file; the frame can be decoded until the next is read.

        Raises:
            UnusableFrame: the file is missing, unreadable, empty or cut short.
        """
        try:
            length = self._fill(path)
        except OSError as error:
            raise UnusableFrame(f"cannot read the file: {reason_of(error)}") from None
        if not length:
            raise UnusableFrame("empty file")
        header = None
        if self._buffer.startswith(b"\xff\xd8", 0, length):
            header = self._read_header(length)
            if header is None or not is_whole(self._buffer, length, header):
                raise UnusableFrame("JPEG cut short")
        return EncodedFrame(self._buffer, length, header)

    def _read_header(self, length: int) -> JpegHeader | None:
        """Read the header; a camera's files begin alike, so it is most often the one that was read last."""
        if not (self._beginning and self._buffer.startswith(self._beginning, 0, length)):
            self._header = read_header(self._buffer, length)
            self._beginning = bytes(self._buffer[: self._header.end]) if self._header else b""
        return self._header

    def _fill(self, path: Path) -> int:
        length = 0
        with open(path, "rb", buffering=0) as file:
            while True:
                with memoryview(self._buffer) as view:
                    count = file.readinto(view[length : len(view) - len(PADDING)])
                length += count
                if length == len(self._buffer) - len(PADDING):
                    self._buffer.extend(bytes(len(self._buffer)))
                elif not count:
                    return length


@dataclass(frozen=True, eq=False)
class EncodedFrame:
    """A frame before it is decoded."""

    data: bytearray
    length: int
    header: JpegHeader | None  # None: not a JPEG

    @property
    def size_px(self) -> tuple[int, int] | None:
        """Width and height, where the header tells how the frame will be decoded; None where it does not."""
        if self.header is None or not self.header.can_be_cut:
            return None
        return self.header.width_px, self.header.height_px

    def decode(self, rows: int | None = None) -> NDArray[np.uint8]:
        """Decode to (H, W, 3) BGR, upright; with `rows`, only once, and at least that many of the upper rows.

        Raises:
            UnusableFrame: not an image.
        """
        length = self.length
        if rows is not None and self.header is not None:
            length = cut(self.data, length, self.header, rows)
        try:
            image = cv2.imdecode(np.frombuffer(self.data, np.uint8, length), cv2.IMREAD_COLOR)
        except cv2.error:
            image = None
        if image is None:
            raise UnusableFrame("not an image that can be decoded")
        return image
