"""Read frames from JPEG and PNG files; OpenCV decodes them."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.normalization.pose import UnusableFrame

_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of frame headers, which contain the size
_START_OF_SCAN, _APP1 = 0xDA, 0xE1
_END = b"\xff\xd9"
_ORIENTATION = 0x0112  # EXIF tag
_BEGINNING_BYTES = 1 << 16  # contains the header of nearly all JPEGs


@dataclass(frozen=True)
class _JpegHeader:
    """The content of the segments before the image data (ITU-T T.81, annex B)."""

    scan_at: int  # position of the first scan
    size_px: tuple[int, int]  # width and height
    is_upright: bool  # whether the EXIF orientation certainly does not rotate the image


def read_image(path: Path) -> NDArray[np.uint8]:
    """Read a frame as (H, W, 3) uint8 BGR, rotated according to its EXIF orientation.

    Raises:
        UnusableFrame: The file is missing, unreadable, empty, truncated, or neither JPEG nor PNG.
    """
    data = _read(path)
    if data.startswith(_JPEG):
        header = _read_header(data)
        # OpenCV silently fills missing image data with grey. A thumbnail in the header has its own end marker.
        if header is None or data.rfind(_END, header.scan_at) < 0:
            raise UnusableFrame("truncated JPEG")
    elif not data.startswith(_PNG):  # OpenCV decodes other formats, which no data set needs
        raise UnusableFrame("not an image that can be decoded")
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        image = None
    if image is None:
        raise UnusableFrame("not an image that can be decoded")
    return image


def read_upright_size(path: Path) -> tuple[int, int]:
    """Return the width and height of a JPEG or PNG in px, without decoding it.

    Raises:
        UnusableFrame: The file is missing, has no header of a JPEG or PNG, or its EXIF orientation may rotate it, so
            that its width and height may be exchanged.
    """
    data = _read(path, _BEGINNING_BYTES)
    if data.startswith(_PNG):
        return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if not data.startswith(_JPEG):
        raise UnusableFrame("not an image that can be decoded")
    header = _read_header(data) or _read_header(_read(path))
    if header is None:
        raise UnusableFrame("truncated JPEG")
    if not header.is_upright:
        raise UnusableFrame(
            "the image is rotated by its EXIF orientation, so its field of view is ambiguous: save it upright"
        )
    return header.size_px


def _read(path: Path, most: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most)
    except OSError as error:
        raise UnusableFrame(f"cannot read the file: {error.strerror}") from None
    if not data:
        raise UnusableFrame("empty file")
    return data


def _read_header(data: bytes) -> _JpegHeader | None:
    """Read the segments before the image data; return None if the data end before it."""
    position, size_px, is_upright = 2, (0, 0), True
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        if marker == _START_OF_SCAN:
            return _JpegHeader(position, size_px, is_upright)
        contents, end = position + 4, position + 2 + int.from_bytes(data[position + 2 : position + 4])
        if marker in _FRAMES:
            height, width = data[contents + 1 : contents + 3], data[contents + 3 : contents + 5]
            size_px = int.from_bytes(width), int.from_bytes(height)
        elif marker == _APP1:
            is_upright = is_upright and _is_upright(data[contents:end])
        position = end
    return None


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
    entries = (tiff[directory + 2 + 12 * i :][:12] for i in range(count))
    return all(int.from_bytes(e[8:10], order) == 1 for e in entries if int.from_bytes(e[:2], order) == _ORIENTATION)
