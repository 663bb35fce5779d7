"""A truncated JPEG decodes to the same upper rows without a warning; a file that is unsafe to truncate is unchanged."""

import itertools

import cv2
import numpy as np
import pytest
from jpegs import encode, exif, with_segment
from numpy.typing import NDArray

from faze.data.normalization.images import PADDING, JpegHeader, cut, is_whole, read_header

SAMPLINGS = {
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}
XMP = b"http://ns.adobe.com/xap/1.0/\0<x/>"


def decode(data: bytes | bytearray) -> NDArray[np.uint8]:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


def header_of(data: bytes) -> JpegHeader:
    header = read_header(data, len(data))
    assert header is not None
    return header


def upper_rows(data: bytes, rows: int) -> NDArray[np.uint8]:
    work = bytearray(data + bytes(len(PADDING)))
    length = cut(work, len(data), header_of(data), rows)
    assert len(work) == len(data) + len(PADDING)  # nothing is moved
    return decode(work[:length])


def assert_cut_is_the_same(data: bytes, capfd: pytest.CaptureFixture) -> None:
    """Regression: rows after the needed ones were missing; a restart marker came too early; the file's end remained."""
    full = decode(data)
    heights = []
    for rows in (0, 1, 15, 16, 17, 100, len(full) - 20, len(full) - 1, len(full), len(full) + 5):
        upper = upper_rows(data, rows)
        assert min(rows, len(full)) <= len(upper) <= len(full)
        np.testing.assert_array_equal(upper[:rows], full[:rows])
        heights.append(len(upper))
    assert heights[0] <= 32 and heights[-1] == len(full)  # two rows of units of at most 16 px
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("restart", [0, 1, 7, 1000])
@pytest.mark.parametrize("size", [(320, 240), (333, 251), (17, 300)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_upper_rows_of_each_sampling(
    sampling: str, size: tuple[int, int], restart: int, capfd: pytest.CaptureFixture
) -> None:
    options = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling], cv2.IMWRITE_JPEG_RST_INTERVAL, restart]
    data = encode(*size, *options)
    header = header_of(data)
    assert (header.width_px, header.height_px, header.restart_interval) == (*size, restart)
    assert header.can_be_cut
    assert_cut_is_the_same(data, capfd)


@pytest.mark.parametrize("restart", [0, 3])
def test_upper_rows_of_gray_frames(restart: int, capfd: pytest.CaptureFixture) -> None:
    """The sampling factors stated in a grey JPEG do not matter. Regression: they were trusted."""
    data = bytearray(encode(333, 251, cv2.IMWRITE_JPEG_RST_INTERVAL, restart, gray=True))
    assert_cut_is_the_same(bytes(data), capfd)
    data[header_of(data).frame_at + 7] = 0x22
    assert_cut_is_the_same(bytes(data), capfd)


def test_upper_rows_of_plain_colours(capfd: pytest.CaptureFixture) -> None:
    """The rows below the cut have only a few bytes, fewer than a decoder prefetches."""
    for width, restart in itertools.product((8, 16, 320), (0, 1, 7)):
        image, options = np.full((240, width, 3), (10, 200, 90), np.uint8), [cv2.IMWRITE_JPEG_RST_INTERVAL, restart]
        assert_cut_is_the_same(cv2.imencode(".jpg", image, options)[1].tobytes(), capfd)


def test_what_stands_around_the_image_does_no_harm(capfd: pytest.CaptureFixture) -> None:
    """Regression: fill bytes were read as a segment; there was one restart marker too many."""
    data = encode()
    for framed in (
        encode(320, 240, cv2.IMWRITE_JPEG_OPTIMIZE, 1),
        with_segment(data, 0xE1, exif(1)),
        with_segment(data, 0xE1, exif(1, "big")),
        with_segment(data, 0xE1, exif(1)[:-4]),  # nothing behind the directory
        with_segment(with_segment(data, 0xE1, XMP), 0xE1, exif(1)),
        with_segment(data, 0xE0, data),  # a thumbnail
        *(data[:2] + b"\xff" * number + data[2:] for number in (1, 2, 3)),  # fill bytes
        data + encode(64, 48),  # a phone's second picture
        encode(320, 240, cv2.IMWRITE_JPEG_RST_INTERVAL, 90) + encode(64, 48, cv2.IMWRITE_JPEG_RST_INTERVAL, 1),
        data + b"some phone's notes" * 100,
    ):
        assert header_of(framed).can_be_cut
        assert_cut_is_the_same(framed, capfd)


# Markers of frames (T.81, table B.1); between them lie those of Huffman tables, extensions and arithmetic conditioning.
FRAMES = [marker for marker in range(0xC0, 0xD0) if marker not in (0xC4, 0xC8, 0xCC)]


def test_only_frames_are_taken_for_frames() -> None:
    data = encode()
    for marker in (0xBF, 0xC8, 0xCC):
        assert header_of(with_segment(data, marker, bytes(9))).can_be_cut
    at = header_of(data).frame_at
    assert header_of(data[: at - 3] + b"\xc1" + data[at - 2 :]).can_be_cut  # sequential, with more tables


def not_cut() -> dict[str, bytes]:
    data = encode()
    header = header_of(data)
    other_frame, two_scans, no_height = bytearray(data), bytearray(data), bytearray(data)
    other_frame[header.frame_at - 3] = 0xC9  # arithmetic coding
    two_scans[header.scan_at + 4] = 1
    no_height[header.frame_at + 1 : header.frame_at + 3] = bytes(2)  # a marker behind the scan says it
    return {
        "progressive": encode(320, 240, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        "turned": with_segment(data, 0xE1, exif(6)),
        "turned, big-endian": with_segment(data, 0xE1, exif(3, "big")),
        "turned behind XMP": with_segment(with_segment(data, 0xE1, exif(8)), 0xE1, XMP),
        "unknown orientation": with_segment(data, 0xE1, exif(6)[:-12]),
        "directory one byte short": with_segment(data, 0xE1, exif(1)[:-5]),
        "unknown segment": with_segment(data, 0xE1, b"what a camera notes"),
        "unknown byte order": with_segment(data, 0xE1, exif(1).replace(b"II*", b"IX*")),
        "not Exif": with_segment(data, 0xE1, b"Exit\0\0" + exif(1)[6:]),
        **{f"frames C0, {m:X}": with_segment(data, m, data[header.frame_at : header.frame_at + 15]) for m in FRAMES},
        "arithmetic": bytes(other_frame),
        "several scans": bytes(two_scans),
        "height said later": bytes(no_height),
    }


@pytest.mark.parametrize("kind", not_cut())
def test_what_cannot_be_cut_safely_stays_whole(kind: str) -> None:
    """Regression: every orientation was read as upright, progressive files as baseline; components were not counted."""
    data = not_cut()[kind]
    header = header_of(data)
    stated = (0, 0) if kind == "height said later" else (320, 240)
    # Nothing is half known, and what the decoder may be asked for is.
    known = {"stated_px": stated, "is_upright": header.is_upright}
    assert header == JpegHeader(header.scan_at, 0, 0, 0, 0, 0, 0, can_be_cut=False, **known)
    work = bytearray(data + bytes(len(PADDING)))
    assert cut(work, len(data), header, 16) == len(data)
    assert work[: len(data)] == data


def test_a_header_that_ends_early_is_none() -> None:
    data = encode()
    scan_at = header_of(data).scan_at
    for length in (2, 3, 20, scan_at, scan_at + 3):
        assert read_header(data, length) is None
    assert read_header(data[:20] + b"x" + data[21:], len(data)) is None
    for length in range(scan_at + 4, scan_at + 20):
        header = read_header(data, length)
        assert header is not None and not is_whole(data, length, header)
        assert header.can_be_cut == (length > scan_at + 4)
    assert is_whole(data, len(data), header_of(data))
    assert not is_whole(data, len(data) - 1, header_of(data))


def test_nothing_is_cut_where_the_last_row_of_units_is_needed() -> None:
    data = encode(320, 240)  # 15 rows of units
    for rows, whole in ((208, False), (209, True), (224, True), (240, True)):
        work = bytearray(data + bytes(len(PADDING)))
        assert (cut(work, len(data), header_of(data), rows) == len(data)) == whole
        assert (work[: len(data)] == data) == whole


def test_fewer_restart_markers_than_stated_leave_the_image_data_whole() -> None:
    """The file is truncated after its last marker."""
    data = with_segment(encode(), 0xDD, (1).to_bytes(2))
    work = bytearray(data + bytes(len(PADDING)))
    assert cut(work, len(data), header_of(data), 16) == len(data) - 2 + len(PADDING)


@pytest.mark.parametrize("component", [0, 1, 2])
@pytest.mark.parametrize(
    ("sampling", "units"),
    [(0x14, (8, 32)), (0x41, (32, 8)), (0x15, None), (0x51, None), (0x01, None), (0x10, None)],
)
def test_units_are_as_large_as_the_sampling_says(sampling: int, units: tuple[int, int] | None, component: int) -> None:
    """A unit has up to four blocks in each direction, for the component that has the most (T.81, A.2 and B.2.2)."""
    data = bytearray(encode())
    at = header_of(data).frame_at + 7
    for place in (at, at + 3, at + 6):
        data[place] = 0x11 if units else sampling
    data[at + 3 * component] = sampling
    header = header_of(data)
    assert header.can_be_cut == (units is not None)
    assert (header.mcu_width_px, header.mcu_height_px) == (units or (0, 0))


def test_damaged_headers_raise_nothing() -> None:
    """Whichever byte is wrong, the file is either truncated or left unchanged."""
    data, rng = encode(64, 48), np.random.default_rng(0)
    scan_at, cuts = header_of(data).scan_at, []
    for _ in range(3000):
        damaged = bytearray(data + bytes(len(PADDING)))
        damaged[int(rng.integers(2, scan_at + 12))] = int(rng.integers(256))
        header = read_header(damaged, len(data))
        if header is not None and is_whole(damaged, len(data), header):
            cuts.append(cut(damaged, len(data), header, 8))
            assert cuts[-1] <= len(damaged)
    assert len(cuts) > 1000 and len(data) in cuts and max(cuts) > len(data)  # PADDING follows a cut


@pytest.mark.parametrize("marker", [0x00, 0x01, *range(0xD0, 0xDA)])
def test_a_marker_without_a_length_hides_no_header(marker: int) -> None:
    """The decoder continues after such a marker; a parser that follows lengths would miss the header that matters."""
    data = encode(48, 32)
    assert read_header(data[:2] + bytes([0xFF, marker]) + data[2:], len(data) + 2) is None


@pytest.mark.parametrize(
    "data",
    [
        *(encode(48, 32)[:2] + b"\xff\xe3" + length.to_bytes(2) + encode(48, 32)[2:] for length in (0, 1)),
        *(b"\xff\xd8\xff\xc0\x00\x02\xff\xda\x00\x02", b"\xff\xd8\xff\xc0\x00\x0b\x08\x00"),
    ],
)
def test_a_segment_or_header_that_ends_early_is_none(data: bytes) -> None:
    assert read_header(data, len(data)) is None
