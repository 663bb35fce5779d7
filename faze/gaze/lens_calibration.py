"""Calibrate a lens from views of a board, with OpenCV, and judge how well the views determine it."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import check_principal_point
from faze.gaze.board import View

MOST_VIEWS, FEWEST_VIEWS = 40, 8
SIMILAR_SHARE = 0.02  # of the frame's width: two views are similar if no outer corner of the board moved farther
HIGH_ERROR_PX, OUTLIER = 1.0, 3.0  # an outlier's error is above both, OUTLIER being a multiple of the median
LEAST_COVERED = 0.5  # of the frame's area
TILT_DEG, FEWEST_TILTED = 10.0, 4
REMEDY = "move the board through the whole frame, and tilt it in several directions"


@dataclass(frozen=True, eq=False)
class LensCalibration:
    """A lens, and how well its views determine it."""

    size_px: tuple[int, int]  # width and height
    matrix: NDArray[np.float64]  # (3, 3), px; the first pixel has its centre at (0, 0)
    distortion: NDArray[np.float64]  # (1, 5), OpenCV's order
    error_px: float  # rms of the reprojection error
    focal_std_px: tuple[float, float]
    views: int
    covered: float  # share of the frame's area that is within the convex hull of all corners
    tilted: int  # boards that are turned by at least TILT_DEG from their mean direction
    distances_mm: tuple[float, float]  # of the nearest and the farthest board

    @property
    def field_of_view_deg(self) -> tuple[float, float]:
        """Horizontal and vertical field of view, without the distortion."""
        return cv2.calibrationMatrixValues(self.matrix, self.size_px, 1, 1)[:2]

    def yaml(self) -> str:
        """Return the lens as OpenCV's FileStorage writes it, with the keys of OpenCV's calibration sample."""
        file = cv2.FileStorage(".yaml", cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY)
        for name, value in zip(("image_width", "image_height", "nframes"), (*self.size_px, self.views), strict=True):
            file.write(name, value)
        file.write("camera_matrix", self.matrix)
        file.write("distortion_coefficients", self.distortion)
        file.write("avg_reprojection_error", self.error_px)
        return file.releaseAndGetString()

    def warnings(self) -> list[str]:
        """Return one sentence for each reason to doubt the calibration."""
        found = []
        if self.covered < LEAST_COVERED:
            found.append(f"the boards reach only {self.covered:.0%} of the frame: also hold them near its corners")
        if self.tilted < FEWEST_TILTED:
            found.append(f"the boards are almost parallel, so the focal lengths may be wrong: {REMEDY}")
        if self.error_px > HIGH_ERROR_PX:
            found.append(f"the error is above {HIGH_ERROR_PX:g} px: keep the board flat and still, and the focus fixed")
        return found


def choose_different(views: Sequence[View], width_px: int) -> list[View]:
    """Return at most MOST_VIEWS views that differ most in the position of the board; leave out similar ones."""
    if not views:
        return []
    corners = np.stack([_extremes(view.image_px) for view in views])  # (views, 4, 2)
    chosen, moved_px = [0], np.full(len(views), np.inf)
    while len(chosen) < MOST_VIEWS:
        moved_px = np.minimum(moved_px, np.linalg.norm(corners - corners[chosen[-1]], axis=2).max(axis=1))
        if moved_px.max() < SIMILAR_SHARE * width_px:
            break
        chosen.append(int(moved_px.argmax()))
    return [views[index] for index in sorted(chosen)]


def _extremes(points: NDArray) -> NDArray:
    """Return the points (n, 2) that are farthest in the four diagonal directions, as (4, 2)."""
    total, difference = points.sum(axis=1), points[:, 0] - points[:, 1]
    return points[[total.argmin(), total.argmax(), difference.argmin(), difference.argmax()]]


def calibrate_lens(views: Sequence[View], size_px: tuple[int, int]) -> LensCalibration:
    """Calibrate with OpenCV's model of five coefficients; then once more without outliers, if enough views remain.

    Raises:
        UserError: the views do not determine the lens.
    """
    try:
        found = _calibrate(views, size_px)
        limit = max(HIGH_ERROR_PX, OUTLIER * float(np.median(found[-1])))
        kept = [view for view, error_px in zip(views, found[-1].ravel(), strict=True) if error_px <= limit]
        if FEWEST_VIEWS <= len(kept) < len(views):
            views, found = kept, _calibrate(kept, size_px)
        check_principal_point(found[1], *size_px)
    except (cv2.error, UnusableFrame):
        raise UserError(f"the {len(views)} views of the board do not determine the lens: {REMEDY}") from None
    error_px, matrix, distortion, rotations, translations, deviations, _, _ = found
    normals = np.stack([cv2.Rodrigues(rotation)[0][:, 2] for rotation in rotations])
    mean = normals.mean(axis=0)
    mean /= np.linalg.norm(mean)
    distances_mm = np.linalg.norm(np.stack(translations), axis=1)
    hull = cv2.convexHull(np.concatenate([view.image_px for view in views]))
    return LensCalibration(
        size_px,
        matrix,
        distortion,
        error_px,
        focal_std_px=tuple(deviations.ravel()[:2].tolist()),
        views=len(views),
        covered=cv2.contourArea(hull) / (size_px[0] * size_px[1]),
        tilted=int((normals @ mean < np.cos(np.radians(TILT_DEG))).sum()),
        distances_mm=(float(distances_mm.min()), float(distances_mm.max())),
    )


def _calibrate(views: Sequence[View], size_px: tuple[int, int]) -> tuple:
    board_mm, image_px = zip(*views, strict=True)
    return cv2.calibrateCameraExtended(board_mm, image_px, size_px, None, None)
