"""The synthetic cameras are OpenCV's camera model."""

import cv2
import numpy as np
import pytest

from faze.data.synthetic.setting import Camera, sample_camera


@pytest.fixture(params=range(4))
def camera(request: pytest.FixtureRequest) -> Camera:
    return sample_camera(np.random.default_rng(request.param), 640, 480, (545.0, 600.0))


def points_before(camera: Camera, count: int) -> np.ndarray:
    """Return points that the camera sees at a depth of 300 mm."""
    rng = np.random.default_rng(0)
    pixels = rng.uniform([0, 0], [camera.width_px, camera.height_px], (count, 2))
    return np.column_stack([(pixels - camera.principal_px) / camera.focal_px, np.ones(count)]) * 300.0


def test_project_equals_opencv(camera: Camera) -> None:
    points = points_before(camera, 50)
    expected = cv2.projectPoints(points, np.zeros(3), np.zeros(3), camera.matrix, camera.distortion)[0][:, 0]
    np.testing.assert_allclose(camera.project(points), expected, atol=1e-9)
    undistorted = points[:, :2] / points[:, 2:] * camera.focal_px + camera.principal_px
    assert np.abs(expected - undistorted).max() > 0.5, "the lens must distort, or this tests nothing"


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_turned_camera_sees_the_turned_image(camera: Camera, quarters: int) -> None:
    points = points_before(camera, 20)
    pixels, turned_points = camera.project(points), points
    turned = camera.turned(quarters)
    height = camera.height_px, camera.width_px
    for quarter in range(quarters):  # clockwise: what was at the bottom comes to the left
        pixels = np.column_stack([height[quarter % 2] - 1 - pixels[:, 1], pixels[:, 0]])
        turned_points = np.column_stack([-turned_points[:, 1], turned_points[:, 0], turned_points[:, 2]])
    np.testing.assert_allclose(turned.project(turned_points), pixels, atol=1e-9)
    assert (turned.width_px, turned.height_px) == ((640, 480) if quarters == 2 else (480, 640))
