"""Read frames from their files."""

import math
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.files import open_plain, reason_of
from faze.data.normalization.jpeg import PADDING, JpegHeader, count_scans, cut, is_whole, read_header
from faze.data.normalization.pose import UnusableFrame

_BUFFER_BYTES = 1 << 20  # initially; it grows for larger files
_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
# A file of a few bytes may request any amount of work from a decoder. 8K video, and ten times the scans of any camera:
MOST_PIXELS, MOST_SCANS = 2**25, 100


def read_image(path: Path) -> NDArray[np.uint8]:
    """Read a frame as (H, W, 3) uint8 BGR, rotated according to its EXIF orientation.

    Raises:
        UnusableFrame: The file is missing, unreadable, empty, cut short, too large, or neither JPEG nor PNG.
    """
    return FrameReader().read(path).decode()


class FrameReader:
    """Read frames, one after the other, into the same memory."""

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._beginning, self._header = b"", None  # of the last JPEG

    def read(self, path: Path) -> "EncodedFrame":
        """Read a file; the frame can be decoded until the next one is read.

        Raises:
            UnusableFrame: The file is missing, unreadable, empty, cut short, too large, or neither JPEG nor PNG.
        """
        try:
            length = self._fill(path)
        except OSError as error:
            raise UnusableFrame(f"cannot read the file: {reason_of(error)}") from None
        if not length:
            raise UnusableFrame("empty file")
        header = None
        if self._buffer.startswith(_JPEG, 0, length):
            header = self._read_header(length)
            if header is None or not is_whole(self._buffer, length, header):
                raise UnusableFrame("JPEG cut short")
            _check_work(header.stated_px, 1 if header.can_be_cut else count_scans(self._buffer, length, header))
        elif self._buffer.startswith(_PNG, 0, length):
            _check_work(tuple(int.from_bytes(self._buffer[at : at + 4]) for at in (16, 20)), 1)
        else:  # OpenCV decodes a dozen other formats, which no data set needs
            raise UnusableFrame("not an image that can be decoded")
        return EncodedFrame(self._buffer, length, header)

    def _read_header(self, length: int) -> JpegHeader | None:
        """Read the header; the files of a camera begin alike, so it is usually that of the previous file."""
        if not (self._beginning and self._buffer.startswith(self._beginning, 0, length)):
            self._header = read_header(self._buffer, length)
            self._beginning = bytes(self._buffer[: self._header.end]) if self._header else b""
        return self._header

    def _fill(self, path: Path) -> int:
        length = 0
        with open_plain(path) as file:
            while True:
                with memoryview(self._buffer) as view:
                    count = file.readinto(view[length : len(view) - len(PADDING)])
                length += count
                if length == len(self._buffer) - len(PADDING):
                    self._buffer.extend(bytes(len(self._buffer)))
                elif not count:
                    return length


def _check_work(size_px: tuple[int, ...], scans: int) -> None:
    """Refuse a file that would need more memory or time than any camera's frame."""
    if math.prod(size_px) > MOST_PIXELS or scans > MOST_SCANS:
        raise UnusableFrame("{} x {} px, {} scans: larger than any camera's frame".format(*size_px, scans))


@dataclass(frozen=True, eq=False)
class EncodedFrame:
    """A frame before it is decoded."""

    data: bytearray
    length: int
    header: JpegHeader | None  # None: not a JPEG

    @property
    def size_px(self) -> tuple[int, int] | None:
        """Width and height, if the header determines how the frame will be decoded; otherwise None."""
        if self.header is None or not self.header.can_be_cut:
            return None
        return self.header.width_px, self.header.height_px

    def decode(self, rows: int | None = None) -> NDArray[np.uint8]:
        """Decode to (H, W, 3) BGR, upright; given `rows`, only once, and at least that many upper rows.

        Raises:
            UnusableFrame: The file is not an image.
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
