"""Data normalisation (Zhang et al. 2018; FAZE section 3): a camera frame -> the canonical eye strip and its labels.

A virtual camera of fixed focal length looks at the gaze origin (the midpoint of the inner eye corners) from a fixed
distance, its x axis along the head's. R turns the camera frame into the virtual camera's; S scales the depth of the
gaze origin to the fixed distance. The strip is warped by S R, the labels turn by R alone.

Camera frame: x right, y down, z away from the camera; mm and px. Head frame: the same for a head facing the camera.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.geometry import pitchyaw_from_vector

# Inner eye corners, mm, head frame. In the 6-point face model of MPIIFaceGaze (columns 2 and 3) ...
INNER_EYE_CORNERS_6_MM = np.array([[-21.3129, 0.4838, -2.3970], [21.3129, 0.4838, -2.3970]])
# ... and in the 14-point model (rows 10 and 11) that FAZE's own head poses were fitted with. The numbers are from
# faze_preprocess (swook/faze_preprocess, MIT licence).
INNER_EYE_CORNERS_14_MM = np.array([[-19.0150342, 1.5302906, -3.10160017], [19.16842031, 1.49678993, -2.83671331]])


class UnusableFrame(ValueError):
    """Why one frame cannot become a strip."""


@dataclass(frozen=True)
class NormalizedCamera:
    """The virtual camera; its principal point is the middle of the strip."""

    focal_length_px: float
    distance_mm: float
    width_px: int
    height_px: int

    @property
    def matrix(self) -> NDArray:
        """(3, 3) intrinsics, px."""
        f = self.focal_length_px
        return np.array([[f, 0, self.width_px / 2], [0, f, self.height_px / 2], [0, 0, 1]])


@dataclass(frozen=True, eq=False)
class NormalizedPose:
    """Where the virtual camera looks, and the labels in its frame."""

    rotation: NDArray  # (3, 3) R, camera -> virtual camera
    gaze_origin_mm: NDArray  # (3,) in the camera frame
    labels: NDArray  # (4,) gaze pitch, yaw, head pitch, yaw; rad


def read_image(path: Path) -> NDArray[np.uint8]:
    """Read a frame as (H, W, 3) uint8 BGR, turned as its EXIF orientation says.

    Raises:
        UnusableFrame: the file is missing, unreadable, empty, cut short or not an image.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnusableFrame(f"cannot read the file: {error.strerror}") from None
    if not data:
        raise UnusableFrame("empty file")
    if data.startswith(b"\xff\xd8") and not _jpeg_is_whole(data):
        raise UnusableFrame("JPEG cut short")
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        image = None
    if image is None:
        raise UnusableFrame("not an image that can be decoded")
    return image


def _jpeg_is_whole(data: bytes) -> bool:
    """Whether the image data ends with its marker; OpenCV silently fills what a cut-off file lacks with grey.

    The marker is sought behind the start of the image data, since a thumbnail in the header has one of its own.
    """
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        if data[position + 1] == 0xDA:  # start of scan; within it every 0xFF is escaped
            return data.rfind(b"\xff\xd9") > position
        position += 2 + int.from_bytes(data[position + 2 : position + 4])
    return False


def normalize_pose(
    rotation_vector: ArrayLike, translation_mm: ArrayLike, inner_eye_corners_mm: ArrayLike, gaze_target_mm: ArrayLike
) -> NormalizedPose:
    """Place the virtual camera and turn gaze and head into its frame.

    Args:
        rotation_vector: (3,) head -> camera, rad.
        translation_mm: (3,) head -> camera.
        inner_eye_corners_mm: (2, 3) in the head frame.
        gaze_target_mm: (3,) in the camera frame.

    Raises:
        UnusableFrame: a number is not finite, or the pose or the target gives no direction.
    """
    pose = np.concatenate([rotation_vector, translation_mm]).astype(np.float64)
    target = np.asarray(gaze_target_mm, np.float64)
    if not np.isfinite(pose).all():
        raise UnusableFrame("head pose is not finite")
    if not np.isfinite(target).all():
        raise UnusableFrame("gaze target is not finite")
    if not target.any():
        raise UnusableFrame("gaze target is (0, 0, 0), the mark of a missing one")
    head = cv2.Rodrigues(pose[:3])[0]  # (3, 3) head -> camera
    origin = head @ np.mean(inner_eye_corners_mm, axis=0) + pose[3:]
    if origin[2] <= 0:
        raise UnusableFrame("head pose is behind the camera")
    gaze = target - origin
    if np.linalg.norm(gaze) < 1:
        raise UnusableFrame("gaze target lies at the gaze origin")
    rotation = _look_at(origin, head[:, 0])
    # A frontal gaze points from the face to the camera, along -z; the labels count its mirror image.
    labels = pitchyaw_from_vector(np.stack([-rotation @ gaze, (rotation @ head)[:, 2]]))
    return NormalizedPose(rotation, origin, labels.ravel())


def _look_at(origin: NDArray, head_x: NDArray) -> NDArray:
    """Rotation with z toward the gaze origin and x in the plane of z and the head's x axis."""
    z = origin / np.linalg.norm(origin)
    y = np.cross(z, head_x)
    if np.linalg.norm(y) < 1e-3:
        raise UnusableFrame("head is seen exactly from its side")
    y /= np.linalg.norm(y)
    return np.stack([np.cross(y, z), y, z])


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
    _check_in_frame(image, camera_matrix, distortion, pose)
    maps = cv2.initUndistortRectifyMap(
        camera_matrix,
        distortion,
        pose.rotation,
        _scaled(camera, pose),
        (camera.width_px, camera.height_px),
        cv2.CV_32FC1,
    )
    return cv2.cvtColor(cv2.remap(image, *maps, cv2.INTER_LINEAR), cv2.COLOR_BGR2RGB)


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
    _check_in_frame(image, camera_matrix, distortion, pose)
    height, width = image.shape[:2]
    maps = _undistortion(
        camera_matrix.tobytes(), np.asarray(distortion, np.float64).tobytes(), width, height, undistorted
    )
    image = cv2.remap(image, *maps, cv2.INTER_LINEAR)
    warp = _scaled(camera, pose) @ pose.rotation @ np.linalg.inv(camera_matrix)
    strip = cv2.warpPerspective(image, warp, (camera.width_px, camera.height_px))
    return cv2.cvtColor(strip, cv2.COLOR_BGR2RGB)


@functools.lru_cache(maxsize=1)  # a map costs more than the warp, and a person's frames share one camera
def _undistortion(
    matrix: bytes, distortion: bytes, width: int, height: int, undistorted: str
) -> tuple[NDArray, NDArray]:
    old = np.frombuffer(matrix).reshape(3, 3)
    new = old if undistorted == "keep" else cv2.getDefaultNewCameraMatrix(old, (width, height), True)
    return cv2.initUndistortRectifyMap(old, np.frombuffer(distortion), None, new, (width, height), cv2.CV_32FC1)


def _scaled(camera: NormalizedCamera, pose: NormalizedPose) -> NDArray:
    """Intrinsics of the virtual camera times S."""
    return camera.matrix @ np.diag([1, 1, camera.distance_mm / np.linalg.norm(pose.gaze_origin_mm)])


def _check_in_frame(image: NDArray, camera_matrix: NDArray, distortion: NDArray, pose: NormalizedPose) -> None:
    if not (camera_matrix[0, 0] > 0 and camera_matrix[1, 1] > 0):
        raise UnusableFrame("camera matrix has no positive focal length")
    zero = np.zeros(3)
    x, y = cv2.projectPoints(pose.gaze_origin_mm[None], zero, zero, camera_matrix, distortion)[0].ravel()
    height, width = image.shape[:2]
    if not (0 <= x < width and 0 <= y < height):
        raise UnusableFrame(f"eyes are outside the {width} x {height} frame, at ({x:.0f}, {y:.0f})")


def use_one_thread() -> None:
    """Keep OpenCV from threads of its own in a process of a pool that already fills the cores."""
    cv2.setNumThreads(1)
