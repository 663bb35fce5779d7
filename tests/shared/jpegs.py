"""JPEGs of all kinds, for tests of their readers."""

import cv2
import numpy as np


def encode(width: int = 320, height: int = 240, *options: int, gray: bool = False) -> bytes:
    """Return a JPEG of noise over smooth colours, so that no two rows have the same brightness or chroma."""
    rng = np.random.default_rng(width + height)
    smooth = cv2.resize(rng.uniform(0, 200, (9, 12, 3)), (width, height), interpolation=cv2.INTER_CUBIC)
    image = np.clip(smooth + rng.normal(0, 25, smooth.shape), 0, 255).astype(np.uint8)
    return cv2.imencode(".jpg", image[..., 0] if gray else image, [cv2.IMWRITE_JPEG_QUALITY, 90, *options])[1].tobytes()


def with_segment(data: bytes, marker: int, contents: bytes) -> bytes:
    """Insert a segment before the first one of a JPEG."""
    return data[:2] + bytes([0xFF, marker]) + (len(contents) + 2).to_bytes(2) + contents + data[2:]


def exif(orientation: int, order: str = "little") -> bytes:
    """Return the contents of an APP1 segment with this EXIF orientation."""
    sign = b"II*\0" if order == "little" else b"MM\0*"
    entries = ((0x0100, 3, 1, 5), (0x0112, 3, 1, orientation))
    directory = len(entries).to_bytes(2, order)
    for tag, kind, count, value in entries:
        directory += tag.to_bytes(2, order) + kind.to_bytes(2, order) + count.to_bytes(4, order)
        directory += value.to_bytes(2, order) + bytes(2)
    return b"Exif\0\0" + sign + (8).to_bytes(4, order) + directory + bytes(4)
