"""Make a strip from a frame, either in a single interpolation or in the two steps of FAZE's released code."""

import functools

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.config.parameters import NormalizedCamera
from faze.data.normalization.pose import NormalizedPose, UnusableFrame
from faze.data.readers.camera import Camera

_PRINCIPAL_SHARE = 0.15  # maximum distance of the principal point from the frame's middle, as a share of the side


def make_strip(
    image: NDArray[np.uint8], lens: Camera, pose: NormalizedPose, camera: NormalizedCamera
) -> NDArray[np.uint8]:
    """Make an RGB strip (height, width, 3) with a single interpolation, which also corrects lens distortion.

    The image is (H, W, 3) BGR, distorted by `lens`. Anything that the virtual camera `camera` sees outside the frame is
    black. Raise UnusableFrame if the frame does not match its lens, or if the gaze origin is outside the frame.
    """
    _check_frame(image, lens, pose)
    size = (camera.width_px, camera.height_px)
    how = pose.rotation, _scaled(camera, pose), size, cv2.CV_32FC1
    maps = cv2.initUndistortRectifyMap(*lens, *how)
    return cv2.cvtColor(cv2.remap(image, *maps, cv2.INTER_LINEAR), cv2.COLOR_BGR2RGB)


def make_strip_in_two_steps(
    image: NDArray[np.uint8], lens: Camera, pose: NormalizedPose, camera: NormalizedCamera, recentred: bool
) -> NDArray[np.uint8]:
    """Make a strip like `make_strip`, but undistort the whole frame and then warp it, as the released code does.

    If `recentred`, the principal point of the undistorted frame is moved to the middle, as the released code does for
    MPIIGaze. The subsequent warp ignores this shift, so the strip is displaced by the same amount.
    """
    _check_frame(image, lens, pose)
    matrix, distortion = lens
    maps = _undistortion(matrix.tobytes(), distortion.tobytes(), image.shape[1::-1], recentred)
    image = cv2.remap(image, *maps, cv2.INTER_LINEAR)
    warp = _scaled(camera, pose) @ pose.rotation @ np.linalg.inv(matrix)
    return cv2.cvtColor(cv2.warpPerspective(image, warp, (camera.width_px, camera.height_px)), cv2.COLOR_BGR2RGB)


@functools.lru_cache(maxsize=1)  # a map costs more than the warp, and a person's frames share one camera
def _undistortion(matrix: bytes, distortion: bytes, size: tuple[int, int], recentred: bool) -> tuple[NDArray, NDArray]:
    old = np.frombuffer(matrix).reshape(3, 3)
    new = cv2.getDefaultNewCameraMatrix(old, size, True) if recentred else old
    return cv2.initUndistortRectifyMap(old, np.frombuffer(distortion), None, new, size, cv2.CV_32FC1)


def _scaled(camera: NormalizedCamera, pose: NormalizedPose) -> NDArray[np.float64]:
    """Return the intrinsics of the virtual camera, scaled as if the face were at the normalised distance."""
    f, scale = camera.focal_length_px, camera.distance_mm / np.linalg.norm(pose.gaze_origin_mm)
    return np.array([[f, 0, camera.width_px / 2], [0, f, camera.height_px / 2], [0, 0, 1]]) @ np.diag([1, 1, scale])


def _check_frame(image: NDArray, lens: Camera, pose: NormalizedPose) -> None:
    """Reject a frame that was scaled, cropped or rotated after calibration, or that does not show the eyes.

    Annotations do not contain the frame size, but the principal point must be near the middle. If an image was halved
    or doubled in size, the point is off by at least a quarter of the width and height. If a 4:3 image was rotated by
    90 degrees, the point is off by about a sixth of one side.
    """
    height, width = image.shape[:2]
    x, y = lens[0][:2, 2]
    if not max(abs(x / width - 0.5), abs(y / height - 0.5)) <= _PRINCIPAL_SHARE:
        where = f"whose principal point is ({x:.0f}, {y:.0f})"
        raise UnusableFrame(f"the {width} x {height} frame does not match its camera, {where}")
    x, y = cv2.projectPoints(pose.gaze_origin_mm, np.zeros(3), np.zeros(3), *lens)[0].ravel()
    if not (0 <= x < width and 0 <= y < height):
        raise UnusableFrame(f"eyes are outside the {width} x {height} frame, at ({x:.0f}, {y:.0f})")
