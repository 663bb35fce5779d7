"""Read frames from image files, which OpenCV decodes."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from faze.data.normalization.pose import UnusableFrame

_JPEG, _START_OF_SCAN, _END = b"\xff\xd8", b"\xff\xda", b"\xff\xd9"
_ORIENTATION = 0x0112  # EXIF tag; values 5 to 8 swap width and height


def read_image(path: Path) -> NDArray[np.uint8]:
    """Read a frame as (H, W, 3) uint8 BGR, rotated according to its EXIF orientation, or raise UnusableFrame."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnusableFrame(f"cannot read the file: {error.strerror}") from None
    # OpenCV silently fills missing image data with grey. A thumbnail in the header has its own end marker.
    if data.startswith(_JPEG) and data.rfind(_END) < data.rfind(_START_OF_SCAN):
        raise UnusableFrame("truncated JPEG")
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if data else None
    if image is None:
        raise UnusableFrame("not an image that can be decoded" if data else "empty file")
    return image


def read_upright_size(path: Path) -> tuple[int, int]:
    """Return a frame's width and height in px, after EXIF rotation, without decoding it, or raise UnusableFrame."""
    try:
        with Image.open(path) as image:
            width, height = image.size
            return (height, width) if image.getexif().get(_ORIENTATION, 1) >= 5 else (width, height)
    except OSError as error:
        raise UnusableFrame(f"cannot read the file: {error.strerror or 'not an image'}") from None
