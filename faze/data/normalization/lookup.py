"""Compute the position in the frame at which each pixel of a strip is looked up.

Rotation, scale, perspective and lens together are smooth over the few degrees of a strip. Therefore OpenCV's lens model
is evaluated at a few nodes of each strip, for a whole shard at once, and a polynomial interpolates between the nodes.
It is checked where its error is largest; if it is not exact enough, OpenCV computes every pixel.
"""

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from faze.data.normalization.pose import NormalizedCamera, NormalizedPose

ACROSS, DOWN = 6, 4  # nodes
EXACT_PX = 1e-3  # largest error at the checked positions; beyond it, a strip is computed pixel by pixel


@dataclass(frozen=True, eq=False)
class _Basis:
    """Quantities that depend on the strip's size alone: N nodes, C checked positions in the strip (px), and weights."""

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
    """The maps of n frames for cv2.remap."""

    def __init__(
        self,
        camera_matrices: Sequence[NDArray],
        distortions: Sequence[NDArray],
        poses: NormalizedPose,
        camera: NormalizedCamera,
    ) -> None:
        """Evaluate the lens model at the nodes of n strips; n (3, 3) camera matrices, n (d,) distortions, n poses."""
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
        """Compute (2, height, width) x, y in frame `row`, px, of each pixel of its strip; valid until the next call."""
        if self.is_smooth[row]:
            return np.matmul(self._basis.rows, self._columns[row], out=self._buffer)
        scaled = self._camera.matrix @ np.diag([1, 1, self._scale[row]])
        size = (self._camera.width_px, self._camera.height_px)
        rotation, model = self._poses.rotation[row], (self._camera_matrices[row], self._distortions[row])
        return np.stack(cv2.initUndistortRectifyMap(*model, rotation, scaled, size, cv2.CV_32FC1))

    def _rays(self) -> NDArray:
        """Compute (n, 1 + N + C, 3) rays in the camera frame, to the gaze origin and through positions of the strip."""
        camera = self._camera
        through = np.empty((len(self._scale), len(self._basis.positions_px), 3))
        middle_px = (camera.width_px / 2, camera.height_px / 2)
        through[:, :, :2] = (self._basis.positions_px - middle_px) / camera.focal_length_px
        through[:, :, 2] = 1 / self._scale[:, None]
        return np.concatenate([self._poses.gaze_origin_mm[:, None], through @ self._poses.rotation], axis=1)

    def _project(self, rays: NDArray) -> NDArray:
        """Project each frame's rays into it, (n, P, 3) -> (n, P, 2) px, all frames of one camera at once."""
        rows_by_camera = defaultdict(list)
        for row, (matrix, distortion) in enumerate(zip(self._camera_matrices, self._distortions, strict=True)):
            rows_by_camera[matrix.tobytes(), distortion.tobytes()].append(row)
        found, zero = np.empty((*rays.shape[:2], 2)), np.zeros(3)
        for rows in rows_by_camera.values():
            model = self._camera_matrices[rows[0]], self._distortions[rows[0]]
            found[rows] = cv2.projectPoints(rays[rows].reshape(-1, 3), zero, zero, *model)[0].reshape(len(rows), -1, 2)
        return found
