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
from faze.data.synthetic.texture import Image, Light, draw_line, padded, ramp

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


def shade_eyeball(
    person: SyntheticPerson, iris: Image, eye: Eyeball, origin: NDArray, rays: Image, light: Light
) -> Image:
    """Compute the colours of an eyeball along rays, without lids.

    Args:
        person: the person.
        iris: painted by `paint_iris`.
        eye: the eyeball.
        origin: (3,) the camera.
        rays: (h, w, 3) directions of any length.
        light: the light, in the head frame.

    Returns:
        (h, w, 3) RGB.
    """
    start = (origin - eye.centre_mm).astype(np.float32)
    rays = rays / np.sqrt(np.einsum("hwc,hwc->hw", rays, rays))[..., None]
    axis = eye.optical.astype(np.float32)
    normal, square = _meet_sphere(start, rays, person.eyeball_mm)
    lit = light.on(normal, wrap=0.55)
    colour = person.sclera.astype(np.float32) * lit
    beside = np.clip(np.float32(0.5) - square * np.float32(0.06), 0, 1)[..., None]  # rays that miss show the caruncle
    colour += beside * (caruncle(person) * lit - colour)
    inside = _iris_colour(iris, person, normal, eye) * (0.35 + 0.65 * lit)
    colour += _iris_cover(person, normal, axis) * (inside - colour)
    return colour + _glints(start, rays, axis, light)[..., None]


def _meet_sphere(start: Image, rays: Image, radius_mm: float) -> tuple[Image, Image]:
    """Compute unit normals where rays from `start`, relative to the centre, meet a sphere, and a value < 0 if none."""
    x, y, z = np.moveaxis(rays, -1, 0)
    b = x * start[0] + y * start[1] + z * start[2]  # rounds like kernel.c; a BLAS may fuse
    square = b * b - power(start, radius_mm)
    distance = -b - np.sqrt(np.maximum(square, 0))
    return (start + distance[..., None] * rays) * np.float32(1 / radius_mm), square


def _iris_cover(person: SyntheticPerson, normal: Image, axis: Image) -> Image:
    towards = normal @ axis
    radius = np.sqrt(np.maximum(1 - towards * towards, 0)) * np.float32(person.eyeball_mm)
    edge = ramp((np.float32(person.iris_mm) - radius) / np.float32(0.7) + np.float32(0.5))
    return (edge * (towards > 0))[..., None]


def _iris_colour(iris: Image, person: SyntheticPerson, normal: Image, eye: Eyeball) -> Image:
    plane = normal @ np.stack(iris_plane(eye.optical.astype(np.float32)), axis=1) * np.float32(person.eyeball_mm)
    at = (plane + np.float32(IRIS_HALF_MM)) * np.float32(IRIS_PER_MM)
    colour = cv2.remap(iris, at, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)[..., :3]
    radius = np.sqrt(np.square(plane).sum(axis=-1))
    pupil = ramp((np.float32(eye.pupil_mm) - radius) / np.float32(0.3) + np.float32(0.5))
    return colour * (1 - np.float32(0.93) * pupil)[..., None]


def _glints(start: Image, rays: Image, axis: Image, light: Light) -> Image:
    """Compute the mirror images of the lights on the cornea."""
    normal, square = _meet_sphere(from_cornea(start, axis), rays, CORNEA_RADIUS_MM)
    glow = np.zeros(square.shape, np.float32)
    for towards, width_rad, strength in light.mirrored:
        half = towards.astype(np.float32) - rays
        cosine = np.einsum("hwc,hwc->hw", normal, half) / np.sqrt(np.einsum("hwc,hwc->hw", half, half))
        glow += np.float32(strength) * np.exp(-np.square((1 - cosine) / np.float32(0.5 * width_rad**2)))
    return glow * (normal @ axis > 0.72) * (square > 0)


LASH_ABOVE_MM, _LASH_BELOW_MM, LASH_PER_MM, LASH_WIDTH = 5.0, 1.0, 16, 384


@dataclass(frozen=True, eq=False)
class Opening:
    """Distances from samples to the edges of the opening between the lids, mm; negative outside."""

    along: Image  # 0 inner corner .. 1 outer corner, and beyond
    upper: Image  # below the upper margin
    lower: Image  # above the lower margin
    crease: Image  # below the upper lid's crease

    def window(self, margin_mm: float) -> tuple[slice, slice]:
        """Find the rows and columns of the opening."""
        inside = (np.minimum(self.upper, self.lower) > -margin_mm) & (np.abs(self.along - np.float32(0.5)) < 0.55)
        rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
        if not len(rows):
            return slice(0, 0), slice(0, 0)
        return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


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


def open_lids(at: Margins, x: Image, y: Image) -> Opening:
    """Compute the opening between the lids at points (h, w) on the face."""
    along = np.float32(at.per_mm) * (x - np.float32(at.inner_mm))
    across = np.clip(along, 0, 1)
    below_line = y + np.float32(at.tilt_mm) * across
    sine = np.sin(np.float32(np.pi) * across)
    # Steep at the corners, flat in the middle, and highest a little toward the nose.
    upper_arch = np.sqrt(np.maximum(sine, 0)) * (np.float32(1.04) - np.float32(0.12) * across)
    lower_arch = sine * (np.float32(0.9) + np.float32(0.2) * across)
    return Opening(
        along=along,
        upper=below_line + np.float32(at.upper_mm) * upper_arch,
        lower=np.float32(at.lower_mm) * lower_arch - below_line,
        crease=below_line + np.float32(at.fold_mm) * (np.float32(0.3) + np.float32(0.7) * upper_arch),
    )


def draw_lashes(rng: np.random.Generator, strength: float) -> Image:
    """Draw an opacity map of one eye's upper lashes, by position along the lid margin and distance from it."""
    mask = np.zeros((int((LASH_ABOVE_MM + _LASH_BELOW_MM) * LASH_PER_MM), int(1.2 * LASH_WIDTH)), np.uint8)
    for root in np.sort(rng.uniform(0.06, 0.99, int(40 + 45 * strength))):
        length = rng.uniform(1.2, 2.4) * (0.6 + 0.7 * root) * (0.7 + 0.5 * strength)
        tip = root + (root - 0.35) * 0.10 + rng.normal(0, 0.012)
        ends = np.array([[root, LASH_ABOVE_MM], [tip, LASH_ABOVE_MM - length]]) * [LASH_WIDTH, LASH_PER_MM]
        draw_line(mask, ends[0], ends[1], int(80 + 110 * strength), 2)
    return cv2.GaussianBlur(mask, (0, 0), 1.5).astype(np.float32) / 255


def shadow(opening: Opening) -> Image:
    """Compute the fraction of the light that reaches the eyeball past the lids."""
    above = np.float32(0.42) + np.float32(0.58) * ramp(opening.upper / np.float32(3.2))
    below = np.float32(0.8) + np.float32(0.2) * ramp(opening.lower / np.float32(1.0))
    corner = np.minimum(opening.along, 1 - opening.along)
    return above * below * (np.float32(0.62) + np.float32(0.38) * ramp(corner / np.float32(0.16)))


def wet_rim(person: SyntheticPerson) -> Image:
    """Compute the colour (3,) that the wet rim of the lower lid adds."""
    return np.array([0.10, 0.01, 0.01], np.float32) * np.float32(person.skin.mean())


def ink(person: SyntheticPerson) -> Image:
    """Compute the colour (3,) of the lashes."""
    return (0.35 * person.hair).astype(np.float32)


def lashes_cover(person: SyntheticPerson) -> float:
    """Compute the opacity of the lashes, 0..1."""
    return 0.5 + 0.5 * person.lids[0].lashes


def cover_lids(person: SyntheticPerson, lashes: Image, opening: Opening, skin: Image, eyeball: Image) -> Image:
    """Draw lids over an eyeball.

    Args:
        person: the person.
        lashes: lashes of this eye.
        opening: the lids' opening at the samples.
        skin: (h, w, 3) colours of the face without the opening.
        eyeball: (h, w, 3) colours of the eyeball; read only where the lids are open.

    Returns:
        (h, w, 3).
    """
    between = ramp(np.minimum(opening.along, 1 - opening.along) * np.float32(9.0))
    crease = np.exp(-np.square(opening.crease * np.float32(1.3))) * between
    rim = np.exp(-np.square(opening.lower * 2 + np.float32(0.9))) * between * (opening.upper > 0)
    skin = skin * (1 - np.float32(0.34) * crease)[..., None] + rim[..., None] * wet_rim(person)
    inside = ramp(np.minimum(opening.upper, opening.lower) / np.float32(0.35) + np.float32(0.5)) * (between > 0)
    red = np.abs(opening.along - np.float32(0.5))[..., None] ** 3 * np.array([0.4, 1.8, 1.8], np.float32)
    colour = skin + inside[..., None] * (eyeball * (shadow(opening)[..., None] * (1 - red)) - skin)
    return colour + _hairs(person, lashes, opening, between)[..., None] * (ink(person) - colour)


def _hairs(person: SyntheticPerson, lashes: Image, opening: Opening, between: Image) -> Image:
    """Compute the opacity of the lashes and of the dark line at their roots."""
    line = np.exp(-np.square((opening.upper + np.float32(0.1)) * np.float32(1.8))) * np.float32(0.75)
    below = np.exp(-np.square((opening.lower + np.float32(0.1)) * np.float32(2.2))) * np.float32(0.28)
    upper = cv2.remap(
        lashes,
        opening.along * np.float32(LASH_WIDTH),
        (opening.upper + np.float32(LASH_ABOVE_MM)) * np.float32(LASH_PER_MM),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_CONSTANT,
    )
    dark = np.maximum(np.maximum(line, below) * between, upper)
    return dark * np.float32(lashes_cover(person))
