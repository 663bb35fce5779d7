"""Make a strip from a frame: by one interpolation at known positions, or by the released procedure in two steps."""

import functools
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.normalization.pose import NormalizedCamera, NormalizedPose, UnusableFrame

# The camera matrix of an undistorted frame. keep: the frame's own, as in the released code for GazeCapture.
# recentred: with its principal point moved to the middle of the frame, as in the released code for MPIIGaze. The
# subsequent warp ignores the move, so the strip is displaced by the same amount.
Undistorted = Literal["keep", "recentred"]


def look_up(image: NDArray[np.uint8], maps: NDArray[np.float32], strip: NDArray[np.uint8]) -> None:
    """Fill an RGB strip (h, w, 3) from a BGR frame at the positions (2, h, w) of `StripLookup`.

    Pixels outside the frame are black. The positions include the lens, so this is the only interpolation.
    """
    cv2.remap(image, *maps, cv2.INTER_LINEAR, dst=strip)
    cv2.cvtColor(strip, cv2.COLOR_BGR2RGB, dst=strip)


def warp_two_step(
    image: NDArray[np.uint8],
    camera_matrix: NDArray,
    distortion: NDArray,
    pose: NormalizedPose,
    camera: NormalizedCamera,
    undistorted: Undistorted,
) -> NDArray[np.uint8]:
    """Make a strip by the released procedure: undistort the whole frame, then apply a perspective warp.

    Args:
        image: (H, W, 3) BGR, distorted.
        camera_matrix: (3, 3) of the frame, px.
        distortion: (d,) in OpenCV's order.
        pose: Pose of the virtual camera.
        camera: Virtual camera.
        undistorted: Camera matrix of the undistorted frame.

    Returns:
        (height, width, 3) RGB strip; pixels outside the frame are black.

    Raises:
        UnusableFrame: The gaze origin is outside the frame.
    """
    height, width = image.shape[:2]
    zero = np.zeros(3)
    origin_px = cv2.projectPoints(pose.gaze_origin_mm[None], zero, zero, camera_matrix, distortion)[0].ravel()
    check_in_frame((width, height), camera_matrix, origin_px)
    lens = camera_matrix.tobytes(), np.asarray(distortion, np.float64).tobytes()
    image = cv2.remap(image, *_undistortion(*lens, width, height, undistorted), cv2.INTER_LINEAR)
    scaled = camera.matrix @ np.diag([1, 1, camera.distance_mm / np.linalg.norm(pose.gaze_origin_mm)])
    warp = scaled @ pose.rotation @ np.linalg.inv(camera_matrix)
    strip = cv2.warpPerspective(image, warp, (camera.width_px, camera.height_px))
    return cv2.cvtColor(strip, cv2.COLOR_BGR2RGB)


@functools.lru_cache(maxsize=1)  # a map costs more than the warp, and a person's frames share one camera
def _undistortion(
    matrix: bytes, distortion: bytes, width: int, height: int, undistorted: Undistorted
) -> tuple[NDArray, NDArray]:
    old = np.frombuffer(matrix).reshape(3, 3)
    new = old if undistorted == "keep" else cv2.getDefaultNewCameraMatrix(old, (width, height), True)
    return cv2.initUndistortRectifyMap(old, np.frombuffer(distortion), None, new, (width, height), cv2.CV_32FC1)


def check_in_frame(size_px: tuple[int, int], camera_matrix: NDArray, gaze_origin_px: NDArray) -> None:
    """Refuse a frame whose camera does not see the eyes.

    Args:
        size_px: Width and height of the frame.
        camera_matrix: (3, 3), px.
        gaze_origin_px: (2,) position of the gaze origin in the frame.

    Raises:
        UnusableFrame: States the position of the eyes.
    """
    if not (camera_matrix[0, 0] > 0 and camera_matrix[1, 1] > 0):
        raise UnusableFrame("camera matrix has no positive focal length")
    (width, height), (x, y) = size_px, gaze_origin_px
    if not (0 <= x < width and 0 <= y < height):
        raise UnusableFrame(f"eyes are outside the {width} x {height} frame, at ({x:.0f}, {y:.0f})")
