"""Read frames from files, decoding only the required rows of a JPEG.

A decoder works from the top down and stops at the height given in the JPEG header. To decode only the upper rows, that
height is lowered (ITU-T T.81, B.2.2); the pixels of these rows do not change. OpenCV does the decoding.
"""

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.files import named, open_plain, reason_of
from faze.data.normalization.pose import UnusableFrame

_BASELINE = (0xC0, 0xC1)  # Huffman-coded, sequential
_NO_FRAMES = (0xC4, 0xC8, 0xCC)  # markers in the range of frame markers that begin no frame: tables, and a reserved one
_START_OF_SCAN, _RESTART_INTERVAL, _APP1 = 0xDA, 0xDD, 0xE1
_FIRST_RESTART, _END_OF_IMAGE = 0xD0, 0xD9
# Markers without a length, and the stuffed zero, which is no marker: no header has them, and a reader of lengths would
# interpret the following bytes differently from the decoder.
_ALONE = (0x00, 0x01, *range(_FIRST_RESTART, _END_OF_IMAGE + 1))
END = b"\xff\xd9"
# Written after the cut, for a decoder that looks ahead: bytes that are no marker. If there was a marker, libjpeg would
# report the bytes before it, which belong to no row, on stderr.
PADDING = bytes(64)


@dataclass(frozen=True)
class JpegHeader:
    """The content of the segments before the image data."""

    scan_at: int  # position of the first scan
    frame_at: int = 0  # position of the frame header's content
    width_px: int = 0  # as stored; 0 if `can_be_cut` is False
    height_px: int = 0
    mcu_width_px: int = 0  # of a minimum coded unit, the smallest piece that is coded
    mcu_height_px: int = 0
    restart_interval: int = 0  # minimum coded units between restart markers; 0: there are none
    can_be_cut: bool = False  # baseline, all components in the first scan, upright by its EXIF orientation
    stated_px: tuple[int, int] = (0, 0)  # width and height, for any kind of JPEG
    is_upright: bool = True  # whether the EXIF orientation certainly does not rotate the image

    @property
    def end(self) -> int:
        """End of the bytes from which the header was read."""
        return self.scan_at + 5


def read_header(data: bytes | bytearray, length: int) -> JpegHeader | None:
    """Read the segments before the image data from the first `length` bytes; return None if these end before it."""
    position, frame_at, frames, interval, upright, stated = 2, 0, [], 0, True, (0, 0)
    while position + 4 <= length and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        contents, end = position + 4, position + 2 + _number(data, position + 2)
        if marker in _ALONE or end < contents:
            return None
        if marker == _START_OF_SCAN:
            plain = upright and len(frames) == 1 and frames[0] in _BASELINE
            header = (
                _read_baseline(data, min(end, length), position, frame_at, interval) if plain else JpegHeader(position)
            )
            return dataclasses.replace(header, stated_px=stated, is_upright=upright)
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES:
            if end < contents + 6 or end > length:
                return None
            frames.append(marker)
            size = _number(data, contents + 3), _number(data, contents + 1)
            frame_at, stated = contents, max(stated, size, key=math.prod)
        elif marker == _RESTART_INTERVAL:
            interval = _number(data, contents)
        elif marker == _APP1:
            upright &= _is_upright(bytes(data[contents : min(end, length)]))
        position = end
    return None


def count_scans(data: bytes | bytearray, length: int, header: JpegHeader) -> int:
    """Return a lower bound on the number of scans; a decoder may process the whole image for each scan."""
    return data.count(bytes([0xFF, _START_OF_SCAN]), header.scan_at, length)


def is_whole(data: bytes | bytearray, length: int, header: JpegHeader) -> bool:
    """Return whether the image data has its end marker; OpenCV silently fills missing data with grey.

    The search begins at the image data, because a thumbnail in the header has its own end marker.
    """
    return data.rfind(END, header.scan_at, length) > header.scan_at


def lacks_only_end(data: bytes | bytearray, length: int, header: JpegHeader) -> bool:
    """Return whether all image data of a baseline frame are present, so that only the end marker is missing.

    If data are missing, a decoder also reads the bytes that follow, so the pixels depend on them.
    """
    if not header.can_be_cut:
        return False
    present = bytes(data[:length]).rstrip(b"\0")  # an interrupted download may be filled with zeros
    present += b"\0" if present.endswith(b"\xff") else b""  # in image data, a 0 follows each 0xFF
    images = [_decode(np.frombuffer(present + bytes([byte]) * len(PADDING), np.uint8)) for byte in (0x00, 0x55, 0xAA)]
    return images[0] is not None and all(np.array_equal(images[0], image) for image in images[1:])


def _decode(data: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
    try:
        return cv2.imdecode(data, cv2.IMREAD_COLOR)
    except cv2.error:
        return None


def cut(data: bytearray, length: int, header: JpegHeader, rows: int) -> int:
    """Truncate a file so that only its upper rows are decoded, at least `rows` of them.

    The data must have room for PADDING after `length`.

    Returns:
        The new length; or `length`, with the data unchanged, if all rows are needed or the file cannot be truncated.
    """
    # One more row of units than needed: the last row of an image has no chroma below it for the interpolation.
    mcu_rows = -(-max(rows, 1) // max(header.mcu_height_px, 1)) + 1
    height = mcu_rows * header.mcu_height_px
    if not header.can_be_cut or height >= header.height_px:
        return length
    end = _find_end(data, length, header, mcu_rows)
    data[header.frame_at + 1 : header.frame_at + 3] = height.to_bytes(2)
    data[end : end + len(PADDING)] = PADDING
    return end + len(PADDING)


def _find_end(data: bytearray, length: int, header: JpegHeader, mcu_rows: int) -> int:
    """Find the first marker that ends a section of image data after the first `mcu_rows` rows of coded units."""
    units = mcu_rows * -(-header.width_px // header.mcu_width_px)
    skipped = -(-units // header.restart_interval) - 1 if header.restart_interval else 0
    view = np.frombuffer(data, np.uint8, length)
    starts = header.scan_at + 1 + np.flatnonzero(view[header.scan_at + 1 : -1] == 0xFF)
    kinds = view[starts + 1]  # in image data, every 0xFF that is no marker is followed by a 0
    markers = starts[(kinds >= _FIRST_RESTART) & (kinds <= _END_OF_IMAGE)]
    return int(markers[min(skipped, len(markers) - 1)])  # a whole file has at least one


def _read_baseline(data: bytes | bytearray, end: int, scan_at: int, frame_at: int, interval: int) -> JpegHeader:
    """Read the rest of the header of an upright baseline frame, and determine whether it can be truncated."""
    precision, height, width = data[frame_at], _number(data, frame_at + 1), _number(data, frame_at + 3)
    components = data[frame_at + 5]
    sampling = data[frame_at + 7 : frame_at + 6 + 3 * components : 3]
    across, down = max((s >> 4 for s in sampling), default=0), max((s & 15 for s in sampling), default=0)
    if components == 1:
        across = down = 1  # regardless of the header: the unit of a scan of one component is one block
    known = precision == 8 and components in (1, 3) and 1 <= across <= 4 and 1 <= down <= 4 and width and height
    if not known or scan_at + 4 >= end or data[scan_at + 4] != components:
        return JpegHeader(scan_at)
    return JpegHeader(scan_at, frame_at, width, height, 8 * across, 8 * down, interval, can_be_cut=True)


def _is_upright(segment: bytes) -> bool:
    """Return whether an APP1 segment certainly does not rotate the image."""
    if segment.startswith(b"http://"):  # XMP
        return True
    order = {b"II*\0": "little", b"MM\0*": "big"}.get(segment[6:10])
    if not segment.startswith(b"Exif\0\0") or order is None:
        return False
    tiff = segment[6:]
    directory = int.from_bytes(tiff[4:8], order)
    count = int.from_bytes(tiff[directory : directory + 2], order)
    if directory + 2 + 12 * count > len(tiff):
        return False
    entries = (tiff[directory + 2 + 12 * i :][:12] for i in range(count))
    turned = (int.from_bytes(e[8:10], order) for e in entries if int.from_bytes(e[:2], order) == 0x0112)
    return all(orientation == 1 for orientation in turned)


def _number(data: bytes | bytearray, position: int) -> int:
    return int.from_bytes(data[position : position + 2])


_BUFFER_BYTES = 1 << 20  # initially; it grows for larger files
_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
# A file of a few bytes may request any amount of work from a decoder. 8K video, and ten times the scans of any camera:
MOST_PIXELS, MOST_SCANS = 2**25, 100


def read_image(path: Path) -> NDArray[np.uint8]:
    """Read a frame as (H, W, 3) uint8 BGR, rotated according to its EXIF orientation.

    Raises:
        UnusableFrame: The file is missing, unreadable, empty, truncated, too large, or neither JPEG nor PNG.
    """
    return FrameReader().read(path).decode()


class FrameReader:
    """Read frames, one after the other, into the same memory."""

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._beginning, self._header = b"", None  # of the last JPEG

    def read(self, path: Path) -> "EncodedFrame":
        """Read a file; its frame can be decoded until the next file is read.

        Raises:
            UnusableFrame: The file is missing, unreadable, empty, truncated, too large, or neither JPEG nor PNG.
        """
        try:
            with named(path):
                length = self._fill(path)
        except OSError as error:
            raise UnusableFrame(f"cannot read the file: {reason_of(error)}") from None
        if not length:
            raise UnusableFrame("empty file")
        header = None
        if self._buffer.startswith(_JPEG, 0, length):
            header = self._read_header(length)
            if header is None:
                raise UnusableFrame("truncated JPEG")
            _check_work(header.stated_px, 1 if header.can_be_cut else count_scans(self._buffer, length, header))
            if not is_whole(self._buffer, length, header):
                length = self._add_end(length, header)
        elif self._buffer.startswith(_PNG, 0, length):
            _check_work(tuple(int.from_bytes(self._buffer[at : at + 4]) for at in (16, 20)), 1)
        else:  # OpenCV decodes a dozen other formats, which no data set needs
            raise UnusableFrame("not an image that can be decoded")
        return EncodedFrame(self._buffer, length, header)

    def _read_header(self, length: int) -> JpegHeader | None:
        """Read the header; files from one camera usually have identical headers, so the previous one is tried first."""
        if not (self._beginning and self._buffer.startswith(self._beginning, 0, length)):
            self._header = read_header(self._buffer, length)
            self._beginning = bytes(self._buffer[: self._header.end]) if self._header else b""
        return self._header

    def _add_end(self, length: int, header: JpegHeader) -> int:
        """Write the end marker that a JPEG lacks, as those of some webcams do, and return the new length."""
        if not lacks_only_end(self._buffer, length, header):
            raise UnusableFrame("truncated JPEG")
        self._buffer[length : length + len(END)] = END  # the buffer keeps its size, since it has room for PADDING
        return length + len(END)

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
    """Refuse a file that needs more memory or time than any camera's frame."""
    if math.prod(size_px) > MOST_PIXELS or scans > MOST_SCANS:
        raise UnusableFrame("{} x {} px, {} scans: larger than any camera's frame".format(*size_px, scans))


@dataclass(frozen=True, eq=False)
class EncodedFrame:
    """A frame that is not decoded yet."""

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
        """Decode to an upright (H, W, 3) BGR image: all rows, or at least the upper `rows` (possible only once).

        Raises:
            UnusableFrame: The file is not an image.
        """
        length = self.length
        if rows is not None and self.header is not None:
            length = cut(self.data, length, self.header, rows)
        image = _decode(np.frombuffer(self.data, np.uint8, length))
        if image is None:
            raise UnusableFrame("not an image that can be decoded")
        return image
