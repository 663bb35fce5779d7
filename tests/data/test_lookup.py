"""Frame positions of strip pixels, compared with OpenCV's own map of every pixel."""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from faze.config.parameters import NormalizedCamera
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM, NormalizedPose, normalize_poses
from faze.data.normalization.warp import StripLookup

CAMERA = NormalizedCamera(focal_length_px=1300, distance_mm=600, width_px=256, height_px=64)
MATRIX = np.array([[900.0, 0, 330], [0, 905, 235], [0, 0, 1]])


def poses_and_cameras(n: int, *distortion: float) -> tuple[list[NDArray], list[NDArray], NormalizedPose]:
    """Draw random poses, seen by two cameras in turn."""
    rng = np.random.default_rng(1)
    corners = np.tile(INNER_EYE_CORNERS_6_MM, (n, 1, 1))
    shifts = rng.normal(0, 50, (n, 3)) + [0, 0, 450]
    poses, _ = normalize_poses(rng.normal(0, 0.3, (n, 3)), shifts, corners, rng.normal(0, 100, (n, 3)))
    return [MATRIX, MATRIX * [[0.7], [0.7], [1]]] * (n // 2), [np.array(distortion)] * n, poses


def opencvs_maps(
    matrix: NDArray, distortion: NDArray, pose: NormalizedPose, camera: NormalizedCamera = CAMERA
) -> NDArray:
    focal_px, middle_px = camera.focal_length_px, (camera.width_px / 2, camera.height_px / 2)
    intrinsics = np.array([[focal_px, 0, middle_px[0]], [0, focal_px, middle_px[1]], [0, 0, 1]])
    scaled = intrinsics @ np.diag([1, 1, camera.distance_mm / np.linalg.norm(pose.gaze_origin_mm)])
    size = (camera.width_px, camera.height_px)
    return np.stack(cv2.initUndistortRectifyMap(matrix, distortion, pose.rotation, scaled, size, cv2.CV_32FC1))


@pytest.mark.parametrize(
    "distortion",
    [
        (0.0, 0, 0, 0),
        (0.15, -0.3, 0.002, -0.003),
        (0.15, -0.3, 0.002, -0.003, 0.1),
        (0.15, -0.3, 0.002, -0.003, 0.1, 0.2, -0.1, 0.05),
        (0.15, -0.3, 0.002, -0.003, 0.1, 0.2, -0.1, 0.05, 0.01, 0.02, -0.01, 0.02),
        (0.15, -0.3, 0.002, -0.003, 0.1, 0.2, -0.1, 0.05, 0.01, 0.02, -0.01, 0.02, 0.03, -0.02),
    ],
)
def test_maps_through_nodes_are_opencvs_own(distortion: tuple[float, ...]) -> None:
    """All lens models are exact to two thousandths of a pixel. A fallback that computes every pixel would hide errors.

    Regression: nodes were in the wrong order; the scale of the virtual camera was left out; all positions were half a
    pixel off.
    """
    matrices, distortions, poses = poses_and_cameras(40, *distortion)
    lookup = StripLookup(matrices, distortions, poses, CAMERA)
    assert lookup.is_smooth.mean() > 0.9
    for row in range(40):
        wanted = opencvs_maps(matrices[row], distortions[row], poses[row])
        np.testing.assert_allclose(lookup.maps(row), wanted, atol=2e-3)


def test_a_lens_that_no_polynomial_follows_is_looked_up_pixel_by_pixel() -> None:
    """Fails without the accuracy check."""
    matrices, distortions, poses = poses_and_cameras(40, 0.0, 0, 0, 0, 0, -20, 80, 0)  # a pole within the frame
    lookup = StripLookup(matrices, distortions, poses, CAMERA)
    assert not lookup.is_smooth.all()
    for row in range(40):
        wanted = opencvs_maps(matrices[row], distortions[row], poses[row])
        if not lookup.is_smooth[row]:
            np.testing.assert_array_equal(lookup.maps(row), wanted)


@pytest.mark.parametrize("strength", [1, 3, 10, 30, 100])
def test_no_lens_is_followed_by_a_polynomial_that_errs(strength: float) -> None:
    """The stronger the distortion, the fewer strips are smooth; those stay exact. Regression: errors reached a
    pixel."""
    matrices, distortions, poses = poses_and_cameras(40, *np.multiply((0.15, -0.3, 0.002, -0.003, 0.1), strength))
    lookup = StripLookup(matrices, distortions, poses, CAMERA)
    for row in range(40):
        wanted = opencvs_maps(matrices[row], distortions[row], poses[row])
        np.testing.assert_allclose(lookup.maps(row), wanted, atol=4e-3)
