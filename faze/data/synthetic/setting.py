"""Screens and their cameras: laptops with a webcam, and phones and tablets in different orientations.

Pixels or points of a screen are counted from its top left corner as seen by the user. The camera faces the user, so the
screen's right is the camera's -x. Cameras are pinhole cameras with OpenCV's five distortion coefficients.
"""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.base.geometry import rotation_from_pitchyaw


@dataclass(frozen=True, eq=False)
class Camera:
    """One calibrated camera. Camera frame: x right, y down, z away from the camera, mm; pixel centres at integers."""

    width_px: int
    height_px: int
    parameters: NDArray  # (4,) fx fy cx cy, px
    distortion: NDArray  # (5,) k1 k2 p1 p2 k3

    @cached_property
    def matrix(self) -> NDArray:
        """Camera matrix (3, 3), px."""
        fx, fy, cx, cy = self.parameters
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])

    def project(self, points_mm: ArrayLike) -> NDArray:
        """Project points in the camera frame: (..., 3) mm -> (..., 2) px."""
        points = np.asarray(points_mm, np.float64)
        still = np.zeros(3)
        pixels, _ = cv2.projectPoints(points.reshape(-1, 1, 3), still, still, self.matrix, self.distortion)
        return pixels.reshape(*points.shape[:-1], 2)

    def turned(self) -> "Camera":
        """Return the camera with its image rotated clockwise by a quarter turn, as if the device were turned."""
        (fx, fy, cx, cy), (k1, k2, p1, p2, k3) = self.parameters, self.distortion
        parameters = np.array([fy, fx, self.height_px - 1 - cy, cx])
        return Camera(self.height_px, self.width_px, parameters, np.array([k1, k2, p2, -p1, k3]))


def sample_camera(rng: np.random.Generator, width_px: int, height_px: int, focal_px: tuple[float, float]) -> Camera:
    """Sample a camera with a focal length in a given range, an off-centre principal point and mild distortion."""
    focal = rng.uniform(*focal_px)
    principal = np.array([(width_px - 1) / 2, (height_px - 1) / 2]) + rng.normal(0.0, 0.012 * width_px, 2)
    distortion = rng.normal([0.03, -0.06, 0.0, 0.0, 0.01], [0.04, 0.04, 0.0012, 0.0012, 0.01])
    parameters = np.array([focal, focal * rng.uniform(0.997, 1.003), *principal])
    return Camera(width_px, height_px, parameters, distortion)


@dataclass(frozen=True)
class Spread:
    """A normal distribution, truncated to plausible values."""

    mean: float
    deviation: float
    least: float = -np.inf
    most: float = np.inf

    def draw(self, rng: np.random.Generator) -> float:
        """Sample a value."""
        normal = NormalDist(self.mean, self.deviation)
        return normal.inv_cdf(rng.uniform(normal.cdf(self.least), normal.cdf(self.most)))


# As published by GazeCapture's authors, for upright devices: width and height of the screen (mm), the same in points,
# and how far the camera is to the right of the screen's left edge and above its top edge (mm).
_DEVICES = {
    "iPhone 6s": ((58.49, 104.05), (375, 667), (18.61, 8.04)),
    "iPhone 6s Plus": ((68.36, 121.54), (414, 736), (23.54, 8.66)),
    "iPad Mini": ((121.3, 161.2), (768, 1024), (60.7, 8.7)),
    "iPad Air 2": ((153.71, 203.11), (768, 1024), (76.86, 7.37)),
    "iPad Pro": ((196.61, 262.15), (1024, 1366), (98.31, 10.69)),
}
_SHARES = (0.15, 0.3, 0.2, 0.25, 0.1)
_LAPTOPS = ((1280, 800), (1440, 900), (1920, 1080), (1680, 1050))
# Usual distances; docs/explanation/people.md contains their sources.
PHONE_MM, TABLET_MM, LAPTOP_MM = Spread(293, 47, 225, 400), Spread(380, 50, 300, 480), Spread(500, 60, 420, 640)


@dataclass(frozen=True, eq=False)
class Screen:
    """A screen in one position relative to its camera; a handheld device has one for each orientation."""

    camera: Camera
    size_mm: tuple[float, float]  # of the screen: width, height
    size_units: tuple[int, int]  # the same in pixels (laptop) or points (device)
    rotation: NDArray  # (3, 3) screen -> camera frame; screen frame: x right, y down as its user sees it
    translation_mm: NDArray  # (3,) the screen's top left corner in the camera frame

    def target_mm(self, units: NDArray) -> NDArray:
        """Convert points on the screen to the camera frame: (..., 2) pixels or points -> (..., 3) mm."""
        flat = np.asarray(units) * np.divide(self.size_mm, self.size_units)
        return flat @ self.rotation[:, :2].T + self.translation_mm

    @property
    def middle_mm(self) -> NDArray:
        """Centre (3,) of the screen in the camera frame."""
        return self.target_mm(np.array(self.size_units) / 2)

    def sample_targets(self, rng: np.random.Generator, count: int) -> NDArray:
        """Sample targets uniformly, away from the edges: (count, 2) whole pixels or points."""
        low, high = np.multiply(0.03, self.size_units), np.multiply(0.97, self.size_units)
        return np.round(rng.uniform(low, high, (count, 2)))


@dataclass(frozen=True, eq=False)
class Setting:
    """One person's device: its screens, its typical distance from the eyes, and its image quality."""

    device: str
    screens: list[Screen]
    distance_mm: float  # typical distance of the eyes from the camera
    blur_px: tuple[float, float]  # range of the blur's standard deviation over frames
    moved: float  # share of frames in which the hand or head moves
    jpeg_quality: int


def sample_laptop(rng: np.random.Generator) -> Setting:
    """Sample a laptop with a 13 to 17 inch screen and a 1280 x 720 webcam."""
    camera = sample_camera(rng, 1280, 720, (930.0, 1080.0))
    size_units = _LAPTOPS[rng.integers(len(_LAPTOPS))]
    diagonal_mm = rng.uniform(13.5, 17.3) * 25.4
    size_mm = np.multiply(size_units, diagonal_mm / np.hypot(*size_units))
    tilt = np.radians(rng.normal([0.0, 0.0], [2.0, 0.7]))
    above_mm = rng.uniform(8.0, 13.0)
    screen = _screen(camera, size_mm, size_units, (-size_mm[0] / 2 + rng.normal(0, 3), above_mm), tilt)
    return Setting("laptop", [screen], LAPTOP_MM.draw(rng), *_sample_quality(rng, finer=2.0))


def sample_device(rng: np.random.Generator) -> Setting:
    """Sample a phone or tablet with a 640 x 480 front camera, used in portrait and in both landscape orientations."""
    name = str(rng.choice(list(_DEVICES), p=_SHARES))
    (short, long), (short_units, long_units), (right, above) = _DEVICES[name]
    upright = sample_camera(rng, 480, 640, (545.0, 600.0))
    tall, wide = ((short, long), (short_units, long_units)), ((long, short), (long_units, short_units))
    flat = np.zeros(2)
    # Offsets of the screen's top left corner from the camera, to the right and down as seen by the user, mm.
    screens = [
        _screen(upright, *tall, (-right, above), flat),  # portrait
        _screen(upright.turned(), *wide, (above, right - short), flat),  # home button on the right
        _screen(upright.turned().turned().turned(), *wide, (-above - long, -right), flat),  # on the left
    ]
    usual = TABLET_MM if name.startswith("iPad") else PHONE_MM
    return Setting(name, screens, usual.draw(rng), *_sample_quality(rng, finer=1.0))


def _sample_quality(rng: np.random.Generator, finer: float) -> tuple[tuple[float, float], float, int]:
    """Sample the blur, motion and JPEG quality of a camera whose resolution is `finer` times 640 x 480."""
    blur = float(np.clip(np.exp(rng.normal(np.log(0.55), 0.35)), 0.35, 1.1)) * finer**0.5
    return (0.8 * blur, 1.5 * blur), rng.uniform(0.0, 0.15), min(int(rng.uniform(60, 96)), 92)


def _screen(camera: Camera, size_mm: ArrayLike, size_units: tuple, corner_mm: tuple, tilt_rad: NDArray) -> Screen:
    """Express a screen in the camera frame; its top left corner is `corner_mm` to the right of and below the camera."""
    rotation = rotation_from_pitchyaw(tilt_rad) @ np.diag([-1.0, 1.0, -1.0])  # mirrored
    corner = rotation @ np.array([*corner_mm, 0.0])
    return Screen(camera, tuple(np.asarray(size_mm).tolist()), size_units, rotation, corner)
