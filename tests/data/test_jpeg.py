"""JPEGs of cameras and phones are read whole; truncated ones are refused, and turned ones have no size."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from jpegs import encode, exif, with_segment

from faze.data.normalization.images import read_image, read_upright_size
from faze.data.normalization.pose import UnusableFrame

XMP = b"http://ns.adobe.com/xap/1.0/\0<x/>"


def test_what_surrounds_the_image_does_no_harm(tmp_path: Path) -> None:
    path, data = tmp_path / "a.jpg", encode()
    for framed in (
        data,
        encode(320, 240, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        with_segment(data, 0xE1, exif(1)),
        with_segment(data, 0xE1, exif(1, "big")),
        with_segment(with_segment(data, 0xE1, XMP), 0xE1, exif(1)),
        with_segment(data, 0xE0, encode(64, 48)),  # a thumbnail
        data[:2] + b"\xff\xff" + data[2:],  # fill bytes
        data + encode(64, 48),  # a phone's second picture
    ):
        path.write_bytes(framed)
        expected = cv2.imdecode(np.frombuffer(framed, np.uint8), cv2.IMREAD_COLOR)
        np.testing.assert_array_equal(read_image(path), expected)
        assert read_upright_size(path) == (320, 240)


def test_a_thumbnail_does_not_hide_a_truncation(tmp_path: Path) -> None:
    data = with_segment(encode(), 0xE0, encode(64, 48))
    (tmp_path / "a.jpg").write_bytes(data[: 3 * len(data) // 4])
    with pytest.raises(UnusableFrame, match="truncated JPEG"):
        read_image(tmp_path / "a.jpg")


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_turned_image_has_no_upright_size(tmp_path: Path, orientation: int) -> None:
    (tmp_path / "a.jpg").write_bytes(with_segment(encode(), 0xE1, exif(orientation)))
    with pytest.raises(UnusableFrame, match="EXIF"):
        read_upright_size(tmp_path / "a.jpg")
