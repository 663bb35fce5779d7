"""From a frame to a strip: looked up in one interpolation, or as the released procedure in two."""

import functools
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.normalization.lookup import StripLookup
from faze.data.normalization.pose import NormalizedCamera, NormalizedPose, UnusableFrame


def warp_fused(
    image: NDArray[np.uint8],
    camera_matrix: NDArray,
    distortion: NDArray,
    pose: NormalizedPose,
    camera: NormalizedCamera,
) -> NDArray[np.uint8]:
    """Look up each pixel of the strip in the frame as it is, lens distortion included: one interpolation.

    Args:
        image: (H, W, 3) BGR, distorted.
        camera_matrix: (3, 3) of the frame, px.
        distortion: (d,) in OpenCV's order.
        pose: of the virtual camera.
        camera: the virtual camera.

    Returns:
        (height, width, 3) RGB strip; black where it reaches beyond the frame.

    Raises:
        UnusableFrame: the gaze origin lies outside the frame.
    """
    block = NormalizedPose(pose.rotation[None], pose.gaze_origin_mm[None], pose.labels[None])
    lookup = StripLookup([camera_matrix], [distortion], block, camera)
    check_in_frame(image.shape[1::-1], camera_matrix, lookup.gaze_origin_px[0])
    strip = np.empty((camera.height_px, camera.width_px, 3), np.uint8)
    look_up(image, lookup.maps(0), strip)
    return strip


def look_up(image: NDArray[np.uint8], maps: NDArray[np.float32], strip: NDArray[np.uint8]) -> None:
    """Fill an RGB strip (h, w, 3) from a BGR frame at the places (2, h, w) that `StripLookup` found."""
    cv2.remap(image, *maps, cv2.INTER_LINEAR, dst=strip)
    cv2.cvtColor(strip, cv2.COLOR_BGR2RGB, dst=strip)


def warp_two_step(
    image: NDArray[np.uint8],
    camera_matrix: NDArray,
    distortion: NDArray,
    pose: NormalizedPose,
    camera: NormalizedCamera,
    undistorted: Literal["keep", "recentred"],
) -> NDArray[np.uint8]:
    """As the released procedure: undistort the whole frame, then warp it in perspective.

    Args and returns as `warp_fused`, and
        undistorted: the camera matrix of the undistorted frame. `keep`: the frame's own, as the released code does for
            GazeCapture. `recentred`: its principal point moved to the frame's middle, as there for MPIIGaze; the second
            step does not know of it, so the strip is displaced by as much.
    """
    height, width = image.shape[:2]
    zero = np.zeros(3)
    origin_px = cv2.projectPoints(pose.gaze_origin_mm[None], zero, zero, camera_matrix, distortion)[0].ravel()
    check_in_frame((width, height), camera_matrix, origin_px)
    maps = _undistortion(
        camera_matrix.tobytes(), np.asarray(distortion, np.float64).tobytes(), width, height, undistorted
    )
    image = cv2.remap(image, *maps, cv2.INTER_LINEAR)
    scaled = camera.matrix @ np.diag([1, 1, camera.distance_mm / np.linalg.norm(pose.gaze_origin_mm)])
    warp = scaled @ pose.rotation @ np.linalg.inv(camera_matrix)
    strip = cv2.warpPerspective(image, warp, (camera.width_px, camera.height_px))
    return cv2.cvtColor(strip, cv2.COLOR_BGR2RGB)


@functools.lru_cache(maxsize=1)  # a map costs more than the warp, and a person's frames share one camera
def _undistortion(
    matrix: bytes, distortion: bytes, width: int, height: int, undistorted: str
) -> tuple[NDArray, NDArray]:
    old = np.frombuffer(matrix).reshape(3, 3)
    new = old if undistorted == "keep" else cv2.getDefaultNewCameraMatrix(old, (width, height), True)
    return cv2.initUndistortRectifyMap(old, np.frombuffer(distortion), None, new, (width, height), cv2.CV_32FC1)


def check_in_frame(size_px: tuple[int, int], camera_matrix: NDArray, gaze_origin_px: NDArray) -> None:
    """See that the camera sees the eyes.

    Args:
        size_px: width and height of the frame.
        camera_matrix: (3, 3), px.
        gaze_origin_px: (2,) where the camera sees the gaze origin.

    Raises:
        UnusableFrame: it does not.
    """
    if not (camera_matrix[0, 0] > 0 and camera_matrix[1, 1] > 0):
        raise UnusableFrame("camera matrix has no positive focal length")
    (width, height), (x, y) = size_px, gaze_origin_px
    if not (0 <= x < width and 0 <= y < height):
        raise UnusableFrame(f"eyes are outside the {width} x {height} frame, at ({x:.0f}, {y:.0f})")
