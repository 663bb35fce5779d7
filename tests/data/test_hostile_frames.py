"""Frames that ask a decoder for more than any frame does, or are none.

Each was red before: they were decoded (3 GiB of a file of 1 kB), read without end, or ended in an IndexError.
"""

import os
import tracemalloc
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from jpegs import encode, with_segment

from faze.data.normalization.frame import MOST_PIXELS, MOST_SCANS, FrameReader, read_image
from faze.data.normalization.jpeg import read_header
from faze.data.normalization.pose import UnusableFrame

PNG = cv2.imencode(".png", np.zeros((4, 5, 3), np.uint8))[1].tobytes()


def of_size(content: bytes, width: int, height: int) -> bytes:
    """State another size in the header of a JPEG or PNG."""
    if content.startswith(b"\x89"):
        head = b"IHDR" + width.to_bytes(4) + height.to_bytes(4) + content[24:29]
        return content[:12] + head + zlib.crc32(head).to_bytes(4) + content[33:]
    at = max(content.find(b"\xff\xc0"), content.find(b"\xff\xc2"))
    return content[: at + 5] + height.to_bytes(2) + width.to_bytes(2) + content[at + 9 :]


@pytest.mark.parametrize("size", [(65535, 65535), (32767, 32767), (5793, 5793)])
@pytest.mark.parametrize(
    "content",
    [encode(48, 32), encode(48, 32, cv2.IMWRITE_JPEG_PROGRESSIVE, 1), PNG],
    ids=["baseline", "progressive", "png"],
)
def test_a_small_file_of_a_huge_frame_is_not_decoded(content: bytes, size: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "frame").write_bytes(of_size(content, *size))
    tracemalloc.start()
    with pytest.raises(UnusableFrame, match=rf"{size[0]} x {size[1]} px, 1?\d* ?scans: larger than any camera's frame"):
        read_image(tmp_path / "frame")
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()
    assert size[0] * size[1] > MOST_PIXELS >= 7680 * 4320


def test_a_second_frame_header_counts_too(tmp_path: Path) -> None:
    data = encode(48, 32)
    huge = b"\x08" + (40000).to_bytes(2) * 2 + data[read_header(data, len(data)).frame_at + 5 :][:10]
    (tmp_path / "frame").write_bytes(with_segment(data, 0xC0, huge))
    with pytest.raises(UnusableFrame, match="40000 x 40000 px"):
        read_image(tmp_path / "frame")


def test_thousands_of_scans_are_refused_and_those_of_a_camera_are_not(tmp_path: Path) -> None:
    data = encode(48, 32, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    at = data.rfind(b"\xff\xda")
    (tmp_path / "frame").write_bytes(data)
    assert read_image(tmp_path / "frame").shape == (32, 48, 3)
    (tmp_path / "frame").write_bytes(data[:-2] + data[at:-2] * MOST_SCANS + data[-2:])
    with pytest.raises(UnusableFrame, match="scans: larger than any"):
        read_image(tmp_path / "frame")


@pytest.mark.parametrize("kind", [".bmp", ".webp", ".tiff", ".jp2", ".ppm", ".gif"])
def test_only_the_decoders_of_jpeg_and_png_are_used(kind: str, tmp_path: Path) -> None:
    """A dozen others come with OpenCV, and no data set needs them."""
    content = cv2.imencode(kind, np.zeros((64, 64, 3), np.uint8))[1].tobytes()
    (tmp_path / "frame.jpg").write_bytes(content)
    with pytest.raises(UnusableFrame, match="not an image that can be decoded"):
        read_image(tmp_path / "frame.jpg")


@pytest.mark.parametrize("marker", [0x00, 0x01, *range(0xD0, 0xDA)])
def test_a_marker_without_a_length_hides_no_header(marker: int) -> None:
    """The decoder reads on behind it, where a reader of lengths would skip the header that counts."""
    data = encode(48, 32)
    assert read_header(data[:2] + bytes([0xFF, marker]) + data[2:], len(data) + 2) is None


@pytest.mark.parametrize("length", [0, 1])
def test_a_segment_shorter_than_its_length_is_none(length: int) -> None:
    data = encode(48, 32)
    assert read_header(data[:2] + b"\xff\xe3" + length.to_bytes(2) + data[2:], len(data) + 4) is None


def test_a_frame_header_that_the_file_ends_in_is_none() -> None:
    """Seen as an IndexError."""
    assert read_header(b"\xff\xd8\xff\xc0\x00\x02\xff\xda\x00\x02", 10) is None
    assert read_header(b"\xff\xd8\xff\xc0\x00\x0b\x08\x00", 8) is None


@pytest.mark.parametrize("target", ["frame", "/dev/zero", "pipe", "/"])
def test_what_is_no_file_is_not_read(target: str, tmp_path: Path) -> None:
    """A device has no end, a pipe no beginning."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "frame").symlink_to(target if target.startswith("/") else tmp_path / target)
    with pytest.raises(UnusableFrame, match="cannot read the file: "):
        FrameReader().read(tmp_path / "frame")


def test_a_file_too_large_for_a_frame_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "frame").open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(UnusableFrame, match="cannot read the file: 256 MiB are too large"):
        FrameReader().read(tmp_path / "frame")
