"""Reading frames of any size into reused memory."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from jpegs import encode, exif, with_segment

from faze.data.normalization.images import PADDING, FrameReader, read_header

FIRST_BUFFER = 1 << 20
FULL = FIRST_BUFFER - len(PADDING)


@pytest.mark.parametrize("size", [FULL - 1, FULL, FULL + 1, FIRST_BUFFER, FIRST_BUFFER + 1, 2 * FULL, 5 * FULL])
def test_a_file_of_any_size_is_read_whole_and_leaves_room_for_the_padding(size: int, tmp_path: Path) -> None:
    data = encode()
    content = (data + bytes(range(1, 250)) * (size // 249))[:size]  # bytes in the wrong place would be noticed
    path = tmp_path / "large.jpg"
    path.write_bytes(content)
    reader = FrameReader()
    for _ in range(2):
        frame = reader.read(path)
        assert frame.length == size <= len(frame.data) - len(PADDING)
        assert frame.data[:size] == content
        np.testing.assert_array_equal(frame.decode(), cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))


def test_a_header_is_read_again_where_any_byte_of_it_differs(tmp_path: Path) -> None:
    """The last byte is changed: the number of components in the first scan."""
    data = encode()
    header = read_header(data, len(data))
    (tmp_path / "plain.jpg").write_bytes(data)
    (tmp_path / "scans.jpg").write_bytes(data[: header.scan_at + 4] + b"\1" + data[header.scan_at + 5 :])
    reader = FrameReader()
    for name, can_be_cut in (("plain", True), ("scans", False), ("plain", True)):
        assert reader.read(tmp_path / f"{name}.jpg").header.can_be_cut == can_be_cut


def test_a_size_is_told_only_where_the_frame_will_be_decoded_as_it_is_stored(tmp_path: Path) -> None:
    turned = with_segment(encode(), 0xE1, exif(6))
    png = cv2.imencode(".png", np.zeros((4, 5, 3), np.uint8))[1].tobytes()
    for data, size_px, shape in (
        (encode(), (320, 240), (240, 320, 3)),
        (turned, None, (320, 240, 3)),
        (png, None, (4, 5, 3)),
    ):
        (tmp_path / "frame").write_bytes(data)
        frame = FrameReader().read(tmp_path / "frame")
        assert frame.size_px == size_px
        assert frame.decode().shape == shape
