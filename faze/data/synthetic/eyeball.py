"""The eyeball as rays see it: sclera, iris, pupil, and the lights mirrored on the cornea.

Refraction-free: the iris is the cap of the eyeball around the optical axis; only the glints know of the cornea's bulge.
Everything in the head frame, mm, float32.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.person import SyntheticPerson
from faze.data.synthetic.texture import Image, Light, padded, ramp

CORNEA_RADIUS_MM = 7.8
CORNEA_CENTRE_MM = 5.4  # from the eyeball's centre along the optical axis
IRIS_HALF_MM, IRIS_PER_MM = 6.6, 10  # of the iris
_CARUNCLE_RGB = np.array([0.80, 0.50, 0.46], np.float32)


def paint_iris(rng: np.random.Generator, person: SyntheticPerson) -> Image:
    """Paint fibres, collarette and dark rim around the optical axis, but no pupil: (n, n, 4) RGB and padding."""
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
    """One eyeball in one frame, as the head sees it."""

    centre_mm: NDArray  # (3,)
    optical: NDArray  # (3,) unit vector of the optical axis
    pupil_mm: float  # radius of the pupil


def caruncle(person: SyntheticPerson) -> Image:
    """Compute the colour (3,) of the flesh in the eye's corner."""
    return _CARUNCLE_RGB * np.float32(1.3 * person.skin.mean())


def iris_plane(axis: Image) -> tuple[Image, Image]:
    """Compute the directions (3,) in which the map of the iris counts, from the optical axis (3,) float32."""
    x, y, z = (
        axis  # the first is the cross product with (0, 1, 0), the second that with the first, in a tenth of the time
    )
    right = np.array([-z, 0, x], np.float32)
    right /= np.linalg.norm(right)
    return right, np.array([y * right[2], z * right[0] - x * right[2], -y * right[0]], np.float32)


def from_cornea(start: Image, axis: Image) -> Image:
    """Express a place (3,) relative to the eyeball's centre as one relative to the cornea's; axis as in iris_plane."""
    return start - np.float32(CORNEA_CENTRE_MM) * axis


def power(start: Image, radius_mm: float) -> np.float32:
    """Compute the power of a point (3,) with respect to a sphere about the origin: distance^2 - radius^2, mm^2."""
    return np.float32(start @ start - radius_mm**2)


def shade_eyeball(
    person: SyntheticPerson, iris: Image, eye: Eyeball, origin: NDArray, rays: Image, light: Light
) -> Image:
    """Compute what rays see of an eyeball, as if it lay open.

    Args:
        person: whose.
        iris: painted by `paint_iris`.
        eye: which looks out of the face.
        origin: (3,) the camera.
        rays: (h, w, 3) directions of any length.
        light: in the head frame.

    Returns:
        (h, w, 3) RGB.
    """
    start = (origin - eye.centre_mm).astype(np.float32)
    rays = rays / np.sqrt(np.einsum("hwc,hwc->hw", rays, rays))[..., None]
    axis = eye.optical.astype(np.float32)
    normal, square = _meet_sphere(start, rays, person.eyeball_mm)
    lit = light.on(normal, wrap=0.55)
    colour = person.sclera.astype(np.float32) * lit
    beside = np.clip(np.float32(0.5) - square * np.float32(0.06), 0, 1)[..., None]  # rays that miss: the caruncle
    colour += beside * (caruncle(person) * lit - colour)
    inside = _iris_colour(iris, person, normal, eye) * (0.35 + 0.65 * lit)
    colour += _iris_cover(person, normal, axis) * (inside - colour)
    return colour + _glints(start, rays, axis, light)[..., None]


def _meet_sphere(start: Image, rays: Image, radius_mm: float) -> tuple[Image, Image]:
    """Compute unit normals where rays from `start`, relative to the centre, meet a sphere; second < 0: they miss."""
    x, y, z = np.moveaxis(rays, -1, 0)
    b = x * start[0] + y * start[1] + z * start[2]  # as kernel.c rounds; a BLAS may fuse
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
