"""Make a strip from a frame: by one interpolation, or by the two steps of the released procedure.

The combination of rotation, scale, perspective and lens is smooth over the few degrees of a strip. Therefore OpenCV's
lens model is evaluated at a few nodes of each strip, for a whole shard at once, and a polynomial interpolates between
them. The polynomial is checked where its error is largest. If it is not accurate enough, OpenCV computes the position
of every pixel.
"""

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from faze.config.parameters import NormalizedCamera
from faze.data.normalization.pose import NormalizedPose, UnusableFrame, matrix_of

ACROSS, DOWN = 6, 4  # nodes
EXACT_PX = 1e-3  # largest error at the checked positions; beyond it, a strip is computed pixel by pixel


@dataclass(frozen=True, eq=False)
class _Basis:
    """Quantities that depend only on the strip's size: N nodes, C checked positions in the strip (px), and weights."""

    positions_px: NDArray  # (N + C, 2)
    checked: NDArray  # (N, C) weights of the nodes at the checked positions
    columns: NDArray  # (ACROSS, width) weights at each column
    rows: NDArray  # (height, DOWN) weights at each row; float32


@functools.lru_cache(maxsize=2)
def _basis(width_px: int, height_px: int) -> _Basis:
    sides = []
    for count, size in ((ACROSS, width_px), (DOWN, height_px)):
        nodes = chebyshev.chebpts1(count)
        to_coefficients = np.linalg.inv(chebyshev.chebvander(nodes, count - 1))
        weights = chebyshev.chebvander(np.linspace(-1, 1, size), count - 1) @ to_coefficients  # (size, count)
        sides.append(((nodes + 1) / 2 * (size - 1), weights))
    (x, columns), (y, rows) = sides
    # The corners, where the error of an interpolation from Chebyshev nodes is largest, and a position between nodes.
    corners = [(j, i) for j in (0, width_px - 1) for i in (0, height_px - 1)] + [(width_px // 2, height_px // 2)]
    nodes_px = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)  # row by row
    checked = np.stack([np.outer(rows[i], columns[j]).ravel() for j, i in corners], axis=1)
    return _Basis(np.concatenate([nodes_px, corners]), checked, columns.T.copy(), rows.astype(np.float32))


class StripLookup:
    """The maps for n frames, as required by cv2.remap."""

    def __init__(
        self,
        camera_matrices: Sequence[NDArray],
        distortions: Sequence[NDArray],
        poses: NormalizedPose,
        camera: NormalizedCamera,
    ) -> None:
        """Evaluate the lens model at the nodes of n strips for n (3, 3) camera matrices, (d,) distortions and poses."""
        self._camera_matrices, self._distortions = camera_matrices, distortions
        self._poses, self._camera = poses, camera
        self._basis = basis = _basis(camera.width_px, camera.height_px)
        self._scale = camera.distance_mm / np.linalg.norm(poses.gaze_origin_mm, axis=1)  # (n,) of S
        found = self._project(self._rays())  # (n, 1 + N + C, 2)
        self.gaze_origin_px = found[:, 0]  # (n, 2) in the frame
        nodes, checked = np.split(found[:, 1:], [ACROSS * DOWN], axis=1)
        error_px = np.abs(np.swapaxes(nodes, 1, 2) @ basis.checked - np.swapaxes(checked, 1, 2))
        self.is_smooth = (error_px < EXACT_PX).all(axis=(1, 2))  # (n,) whether the nodes suffice; False if not finite
        grids = np.swapaxes(nodes, 1, 2).reshape(-1, 2, DOWN, ACROSS)
        self._columns = (grids @ basis.columns).astype(np.float32)  # (n, 2, DOWN, width)
        self._buffer = np.empty((2, camera.height_px, camera.width_px), np.float32)

    def maps(self, row: int) -> NDArray[np.float32]:
        """Map each pixel of a strip to x, y in frame `row`, (2, height, width) px; valid until the next call."""
        if self.is_smooth[row]:
            return np.matmul(self._basis.rows, self._columns[row], out=self._buffer)
        scaled = matrix_of(self._camera) @ np.diag([1, 1, self._scale[row]])
        size = (self._camera.width_px, self._camera.height_px)
        rotation, model = self._poses.rotation[row], (self._camera_matrices[row], self._distortions[row])
        return np.stack(cv2.initUndistortRectifyMap(*model, rotation, scaled, size, cv2.CV_32FC1))

    def _rays(self) -> NDArray:
        """Compute (n, 1 + N + C, 3) rays in the camera frame, to the gaze origin and through positions in the strip."""
        camera = self._camera
        through = np.empty((len(self._scale), len(self._basis.positions_px), 3))
        middle_px = (camera.width_px / 2, camera.height_px / 2)
        through[:, :, :2] = (self._basis.positions_px - middle_px) / camera.focal_length_px
        through[:, :, 2] = 1 / self._scale[:, None]
        return np.concatenate([self._poses.gaze_origin_mm[:, None], through @ self._poses.rotation], axis=1)

    def _project(self, rays: NDArray) -> NDArray:
        """Project each frame's rays into the frame, (n, P, 3) -> (n, P, 2) px, all frames of one camera at once."""
        rows_by_camera = defaultdict(list)
        for row, (matrix, distortion) in enumerate(zip(self._camera_matrices, self._distortions, strict=True)):
            rows_by_camera[matrix.tobytes(), distortion.tobytes()].append(row)
        found, zero = np.empty((*rays.shape[:2], 2)), np.zeros(3)
        for rows in rows_by_camera.values():
            model = self._camera_matrices[rows[0]], self._distortions[rows[0]]
            found[rows] = cv2.projectPoints(rays[rows].reshape(-1, 3), zero, zero, *model)[0].reshape(len(rows), -1, 2)
        return found


# The camera matrix of an undistorted frame. keep: the frame's own, as in the released code for GazeCapture.
# recentred: with its principal point moved to the middle of the frame, as in the released code for MPIIGaze. The
# subsequent warp ignores the move, so the strip is displaced by the same amount.
Undistorted = Literal["keep", "recentred"]


def look_up(image: NDArray[np.uint8], maps: NDArray[np.float32], strip: NDArray[np.uint8]) -> None:
    """Fill an RGB strip (h, w, 3) from a BGR frame at the positions (2, h, w) of `StripLookup`.

    Pixels outside the frame are black. The positions account for lens distortion, so this is the only interpolation.
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
    scaled = matrix_of(camera) @ np.diag([1, 1, camera.distance_mm / np.linalg.norm(pose.gaze_origin_mm)])
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
        UnusableFrame: The message contains the position of the eyes.
    """
    if not (camera_matrix[0, 0] > 0 and camera_matrix[1, 1] > 0):
        raise UnusableFrame("camera matrix has no positive focal length")
    (width, height), (x, y) = size_px, gaze_origin_px
    if not (0 <= x < width and 0 <= y < height):
        raise UnusableFrame(f"eyes are outside the {width} x {height} frame, at ({x:.0f}, {y:.0f})")
