"""The eyes: sclera, iris, pupil and glints; lids that follow the gaze, with crease, wet rim, lashes and shadow.

Refraction is not modelled: the iris is the cap of the eyeball around the optical axis. Only the glints depend on the
cornea. Everything is in the head frame, in mm and float32; maps are (h, w).
"""

from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.person import SyntheticPerson
from faze.data.synthetic.texture import Image, draw_line, padded

CORNEA_RADIUS_MM = 7.8
CORNEA_CENTRE_MM = 5.4  # from the eyeball's centre along the optical axis
IRIS_HALF_MM, IRIS_PER_MM = 6.6, 10  # of the iris
_CARUNCLE_RGB = np.array([0.80, 0.50, 0.46], np.float32)


def paint_iris(rng: np.random.Generator, person: SyntheticPerson) -> Image:
    """Paint the iris around the optical axis, without the pupil: (n, n, 4) RGB and padding."""
    samples = np.arange(-IRIS_HALF_MM, IRIS_HALF_MM + 1e-6, 1 / IRIS_PER_MM)
    x, y = np.meshgrid(samples, samples)
    radius, angle = np.hypot(x, y) / person.iris_mm, np.arctan2(y, x)
    fibres = np.zeros_like(radius)
    for waves in rng.integers(9, 70, 14):
        fibres += np.cos(waves * angle + rng.uniform(0, 6.3) + rng.uniform(-3, 3) * radius) / np.sqrt(14)
    tone = 1.0 + 0.16 * fibres + 0.3 * np.exp(-(((radius - 0.45) / 0.14) ** 2))
    rim = rng.uniform(0.45, 0.75) * np.clip((radius - 0.72) / 0.28, 0, 1) ** 2
    warm = np.exp(-(((radius - 0.42) / 0.16) ** 2))[..., None] * np.array([0.10, 0.05, -0.02]) * rng.uniform(0, 1)
    iris = person.iris * (tone * (1 - rim))[..., None] + warm * person.iris.mean()
    return padded(np.clip(iris, 0.01, 1))


@dataclass(frozen=True, eq=False)
class Eyeball:
    """One eyeball in one rendered frame, in head coordinates."""

    centre_mm: NDArray  # (3,)
    optical: NDArray  # (3,) unit vector of the optical axis
    pupil_mm: float  # radius of the pupil


def caruncle(person: SyntheticPerson) -> Image:
    """Compute the colour (3,) of the flesh in the eye's corner."""
    return _CARUNCLE_RGB * np.float32(1.3 * person.skin.mean())


def iris_plane(axis: Image) -> tuple[Image, Image]:
    """Compute both axes (3,) of the iris map from the optical axis (3,) float32."""
    x, y, z = (
        axis  # the first is the cross product with (0, 1, 0), the second that with the first, in a tenth of the time
    )
    right = np.array([-z, 0, x], np.float32)
    right /= np.linalg.norm(right)
    return right, np.array([y * right[2], z * right[0] - x * right[2], -y * right[0]], np.float32)


def from_cornea(start: Image, axis: Image) -> Image:
    """Express a point (3,), given relative to the eyeball's centre, relative to the cornea's; axis as in iris_plane."""
    return start - np.float32(CORNEA_CENTRE_MM) * axis


def power(start: Image, radius_mm: float) -> np.float32:
    """Compute the power of a point (3,) with respect to a sphere about the origin: distance^2 - radius^2, mm^2."""
    return np.float32(start @ start - radius_mm**2)


LASH_ABOVE_MM, _LASH_BELOW_MM, LASH_PER_MM, LASH_WIDTH = 5.0, 1.0, 16, 384


class Margins(NamedTuple):
    """The lids of one eye in one frame, as heights above or below the middle of the line between the corners."""

    per_mm: float  # along the opening, per mm of x
    inner_mm: float  # x of the inner corner
    tilt_mm: float
    upper_mm: float
    lower_mm: float
    fold_mm: float


def margins(person: SyntheticPerson, eye: int, optical: NDArray, aperture: float) -> Margins:
    """Place the lids of eye 0 or 1, which partially follow the iris.

    Args:
        person: the person.
        eye: 0 or 1.
        optical: (3,) the optical axis.
        aperture: opening of the lids, 1 = normal.
    """
    lids, centre = person.lids[eye], person.eye_centres_mm[eye]
    side = np.sign(centre[0])
    inner, outer = abs(centre[0]) - person.inner_half_mm, person.outer_half_mm - abs(centre[0])
    travel = person.eyeball_mm * optical[1]
    upper = max((lids.upper_mm - lids.follow[0] * travel) * aperture, 1.0)
    lower = max((lids.lower_mm + lids.follow[1] * travel) * (0.5 + 0.5 * aperture), 1.2)
    fold = max(lids.upper_mm + lids.crease_mm - 0.25 * travel, upper + 1.2)
    return Margins(side / (inner + outer), centre[0] - side * inner, lids.tilt_mm, upper, lower, fold)


def draw_lashes(rng: np.random.Generator, strength: float) -> Image:
    """Draw an opacity map of one eye's upper lashes, by position along the lid margin and distance from it."""
    mask = np.zeros((int((LASH_ABOVE_MM + _LASH_BELOW_MM) * LASH_PER_MM), int(1.2 * LASH_WIDTH)), np.uint8)
    for root in np.sort(rng.uniform(0.06, 0.99, int(40 + 45 * strength))):
        length = rng.uniform(1.2, 2.4) * (0.6 + 0.7 * root) * (0.7 + 0.5 * strength)
        tip = root + (root - 0.35) * 0.10 + rng.normal(0, 0.012)
        ends = np.array([[root, LASH_ABOVE_MM], [tip, LASH_ABOVE_MM - length]]) * [LASH_WIDTH, LASH_PER_MM]
        draw_line(mask, ends[0], ends[1], int(80 + 110 * strength), 2)
    return cv2.GaussianBlur(mask, (0, 0), 1.5).astype(np.float32) / 255


def wet_rim(person: SyntheticPerson) -> Image:
    """Compute the colour (3,) that the wet rim of the lower lid adds."""
    return np.array([0.10, 0.01, 0.01], np.float32) * np.float32(person.skin.mean())


def ink(person: SyntheticPerson) -> Image:
    """Compute the colour (3,) of the lashes."""
    return (0.35 * person.hair).astype(np.float32)


def lashes_cover(person: SyntheticPerson) -> float:
    """Compute the opacity of the lashes, 0..1."""
    return 0.5 + 0.5 * person.lids[0].lashes
