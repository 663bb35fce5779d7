"""Pinhole cameras with lens distortion: OpenCV's model with five coefficients k1, k2, p1, p2, k3."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Camera:
    """One calibrated camera. Camera frame: x right, y down, z away from the camera, mm; pixel centres at integers."""

    width_px: int
    height_px: int
    focal_px: tuple[float, float]
    principal_px: tuple[float, float]
    distortion: NDArray  # (5,) k1 k2 p1 p2 k3

    @cached_property
    def matrix(self) -> NDArray:
        """Intrinsics (3, 3), px."""
        (fx, fy), (cx, cy) = self.focal_px, self.principal_px
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])

    @property
    def parameters(self) -> NDArray:
        """Intrinsics (4,) fx fy cx cy, px."""
        return np.array([*self.focal_px, *self.principal_px])

    def project(self, points_mm: ArrayLike) -> NDArray:
        """Project points of the camera frame: (..., 3) mm -> (..., 2) px."""
        points = np.asarray(points_mm, np.float64)
        ideal = points[..., :2] / points[..., 2:]
        return self._distort(ideal) * self.focal_px + self.principal_px

    def rays(self, pixels: ArrayLike) -> NDArray:
        """Compute the directions (x/z, y/z) of pixels: (..., 2) px -> (..., 2)."""
        seen = (np.asarray(pixels, np.float64) - self.principal_px) / self.focal_px
        ideal = seen.copy()
        for _ in range(8):  # converges for mild distortion: each round divides the error by more than ten
            ideal += seen - self._distort(ideal)
        return ideal

    def ray_grid(self, box: tuple[int, int, int, int], scale: float) -> NDArray[np.float32]:
        """Compute directions of a regular grid of samples over a box of pixels.

        Args:
            box: left, top, width, height in px.
            scale: samples per px along each side; those of one pixel are centred on it.

        Returns:
            (height x scale, width x scale, 2). The lens is inverted on a coarse grid and interpolated linearly, within
            0.02 px of the exact inverse.
        """
        left, top, width, height = box
        weights_x, coarse_x = _interpolation(left, width, scale)
        weights_y, coarse_y = _interpolation(top, height, scale)
        rays = self.rays(np.stack(np.meshgrid(coarse_x, coarse_y), axis=-1))
        return np.stack([weights_y @ rays[..., axis] @ weights_x.T for axis in range(2)], axis=-1).astype(np.float32)

    def turned(self, quarters: int) -> "Camera":
        """Turn the camera's image clockwise by quarter turns, as for a device in another orientation."""
        camera = self
        for _ in range(quarters % 4):
            (fx, fy), (cx, cy) = camera.focal_px, camera.principal_px
            k1, k2, p1, p2, k3 = camera.distortion
            camera = Camera(
                width_px=camera.height_px,
                height_px=camera.width_px,
                focal_px=(fy, fx),
                principal_px=(camera.height_px - 1 - cy, cx),
                distortion=np.array([k1, k2, p2, -p1, k3]),
            )
        return camera

    def _distort(self, ideal: NDArray) -> NDArray:
        k1, k2, p1, p2, k3 = self.distortion
        x, y = ideal[..., 0], ideal[..., 1]
        r2 = x * x + y * y
        radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
        return np.stack(
            [
                x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
                y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
            ],
            axis=-1,
        )


def _interpolation(start: int, length: int, scale: float) -> tuple[NDArray, NDArray]:
    """Compute weights (samples, knots) of linear interpolation between knots every few px, and the knots."""
    samples = start - 0.5 + (np.arange(round(length * scale)) + 0.5) / scale
    knots = np.linspace(samples[0], samples[-1], max(2, length // 16 + 2))
    position = (samples - knots[0]) / (knots[1] - knots[0])
    return np.maximum(0.0, 1.0 - np.abs(position[:, None] - np.arange(len(knots)))), knots


def sample_camera(rng: np.random.Generator, width_px: int, height_px: int, focal_px: tuple[float, float]) -> Camera:
    """Draw a camera: focal length within a range, principal point off the middle, mild distortion."""
    focal = rng.uniform(*focal_px)
    principal = np.array([(width_px - 1) / 2, (height_px - 1) / 2]) + rng.normal(0.0, 0.012 * width_px, 2)
    k1, k2, p1, p2, k3 = rng.normal([0.03, -0.06, 0.0, 0.0, 0.01], [0.04, 0.04, 0.0012, 0.0012, 0.01])
    return Camera(
        width_px=width_px,
        height_px=height_px,
        focal_px=(focal, focal * rng.uniform(0.997, 1.003)),
        principal_px=(float(principal[0]), float(principal[1])),
        distortion=np.array([k1, k2, p1, p2, k3]),
    )
