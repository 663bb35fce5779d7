"""Normalisation compared with closed forms, and with points drawn into frames."""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from raw_data import jpeg, with_exif

from faze.config.parameters import NormalizedCamera
from faze.data.normalization.images import read_image, read_upright_size
from faze.data.normalization.pose import NormalizedPose, UnusableFrame, normalize_poses
from faze.data.normalization.warp import make_strip, make_strip_in_two_steps

CAMERA = NormalizedCamera(focal_length_px=1300, distance_mm=600, width_px=256, height_px=64)
MATRIX = np.array([[900.0, 0, 330], [0, 905, 235], [0, 0, 1]])
LENS = (0.15, -0.3, 0.002, -0.003, 0.1, 0.2, -0.1, 0.05, 0.01, 0.02, -0.01, 0.02, 0.03, -0.02)
CENTRED_CORNERS_MM = np.array([[-20.0, 0, 0], [20, 0, 0]])
SOUND = {
    "rotation_vectors": [0, 0, 0],
    "translations_mm": [0, 0, 500],
    "inner_eye_corners_mm": CENTRED_CORNERS_MM,
    "gaze_targets_mm": [0, 0, 1e-9],
}


def pose_with(**changes: object) -> NormalizedPose:
    """Return the pose of a frontal face that looks into the camera, with changes, or raise its reason."""
    given = {name: np.array([value], float) for name, value in (SOUND | changes).items()}
    poses, (reason,) = normalize_poses(**given)
    if reason:
        raise UnusableFrame(reason)
    return poses[0]


@pytest.mark.parametrize(
    ("changes", "labels_deg"),
    [
        ({}, (0, 0, 0, 0)),
        ({"gaze_targets_mm": [500, 0, 0]}, (0, -45, 0, 0)),  # to the camera's right
        ({"gaze_targets_mm": [0, -500, 0]}, (45, 0, 0, 0)),  # up
        ({"rotation_vectors": np.radians([0, 20, 0])}, (0, 0, 0, 20)),
        ({"rotation_vectors": np.radians([-10, 0, 0])}, (0, 0, 10, 0)),
    ],
)
def test_signs_of_the_labels(changes: dict, labels_deg: tuple) -> None:
    pose = pose_with(**changes)
    np.testing.assert_allclose(np.degrees(pose.labels), labels_deg, atol=1e-6)
    np.testing.assert_allclose(pose.rotation, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(pose.gaze_origin_mm, [0, 0, 500])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rotation_vectors": [0, np.nan, 0]}, "head pose is not finite"),
        ({"translations_mm": [0, 0, np.inf]}, "head pose is not finite"),
        ({"translations_mm": [0, 0, -500]}, "behind the camera"),
        ({"translations_mm": [30, 20, 0]}, "behind the camera"),
        ({"gaze_targets_mm": [0, np.nan, 0]}, "gaze target is not finite"),
        ({"gaze_targets_mm": [0, 0, 0]}, r"\(0, 0, 0\)"),
        ({"gaze_targets_mm": [0, 0, 500]}, "at the gaze origin"),
        ({"rotation_vectors": [0, np.pi / 2, 0]}, "from the side"),
        ({"rotation_vectors": [0, np.pi / 2 - 9e-4, 0]}, "from the side"),
    ],
)
def test_a_pose_that_gives_no_direction_has_a_reason(changes: dict[str, list[float]], reason: str) -> None:
    with pytest.raises(UnusableFrame, match=reason):
        pose_with(**changes)
    for nearly in ({"translations_mm": [30, 20, 1]}, {"rotation_vectors": [0, np.pi / 2 - 1.1e-3, 0]}):
        pose_with(**nearly)


def frame_with_dot(position_px: NDArray) -> NDArray[np.uint8]:
    rows, columns = np.mgrid[:480, :640]
    dot = 250 * np.exp(-((columns - position_px[0]) ** 2 + (rows - position_px[1]) ** 2) / (2 * 2.0**2))
    return np.repeat(dot.round().astype(np.uint8)[..., None], 3, axis=2)


def centre_of(strip: NDArray[np.uint8]) -> NDArray:
    brightness = strip.mean(axis=2)
    rows, columns = np.mgrid[: strip.shape[0], : strip.shape[1]]
    return np.array([(columns * brightness).sum(), (rows * brightness).sum()]) / brightness.sum()


TILTED = pose_with(rotation_vectors=[0.15, -0.2, 0.3], translations_mm=[25, -30, 480], gaze_targets_mm=[10, 100, 0])
VIRTUAL = np.array([[1300.0, 0, 128], [0, 1300, 32], [0, 0, 1]])
SCALED = VIRTUAL @ np.diag([1, 1, CAMERA.distance_mm / np.linalg.norm(TILTED.gaze_origin_mm)])


@pytest.mark.parametrize("coefficients", [4, 5, 8, 12, 14])
@pytest.mark.parametrize("make", [make_strip, lambda *given: make_strip_in_two_steps(*given, recentred=False)])
def test_points_in_space_appear_where_the_virtual_camera_sees_them(make: Callable, coefficients: int) -> None:
    """Dots drawn through the lens appear at f S R p. This tests distortion, R, S and both cameras at once."""
    lens = np.array(LENS[:coefficients])
    for wanted in np.array([[40.0, 20], [128, 32], [200, 45]]):
        ray = np.linalg.inv(SCALED @ TILTED.rotation) @ [*wanted, 1]
        frame_px = cv2.projectPoints(400 * ray[None], np.zeros(3), np.zeros(3), MATRIX, lens)[0].ravel()
        strip = make(frame_with_dot(frame_px), (MATRIX, lens), TILTED, CAMERA)
        np.testing.assert_allclose(centre_of(strip), wanted, atol=0.1)


def test_the_strip_is_rgb_and_black_beyond_the_frame() -> None:
    frame = np.zeros((480, 640, 3), np.uint8)
    frame[..., 0] = 200  # blue
    strip = make_strip(frame, (MATRIX, np.zeros(5)), pose_with(translations_mm=[-170, 0, 500]), CAMERA)
    assert strip.shape == (64, 256, 3) and strip.dtype == np.uint8
    assert (strip[32, 200] == [0, 0, 200]).all() and (strip[32, 0] == 0).all()
    with pytest.raises(UnusableFrame, match="eyes are outside the 640 x 480 frame"):
        make_strip(frame, (MATRIX, np.zeros(5)), pose_with(translations_mm=[-190, 0, 500]), CAMERA)


def with_segment(data: bytes, marker: int, contents: bytes) -> bytes:
    """Insert a segment before the first one of a JPEG."""
    return data[:2] + bytes([0xFF, marker]) + (len(contents) + 2).to_bytes(2) + contents + data[2:]


def test_jpegs_of_cameras_and_phones_are_read_whole(tmp_path: Path) -> None:
    path, data = tmp_path / "a.jpg", jpeg(0)
    expected = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    for framed in (
        data,
        with_exif(data, 1),
        with_segment(data, 0xE0, jpeg(1)),  # a thumbnail
        data + jpeg(1),  # a phone's second picture
    ):
        path.write_bytes(framed)
        np.testing.assert_array_equal(read_image(path), expected)
        assert read_upright_size(path) == (320, 240)
    for orientation, turned in ((3, np.rot90(expected, 2)), (6, np.rot90(expected, -1))):
        path.write_bytes(with_exif(data, orientation))
        np.testing.assert_array_equal(read_image(path), turned)
        assert read_upright_size(path) == turned.shape[1::-1]
    path.write_bytes(with_segment(data, 0xE0, jpeg(1))[: -len(data) // 2])  # the thumbnail is complete
    with pytest.raises(UnusableFrame, match="truncated JPEG"):
        read_image(path)
