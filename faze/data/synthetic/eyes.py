"""The eyes: painted iris and lashes, and lids that follow the gaze. kernel.c shades them.

Refraction is not modelled: the iris is the cap of the eyeball around the optical axis. Only the glints depend on the
cornea. Everything is in the head frame and in mm.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.person import SyntheticPerson
from faze.data.synthetic.texture import Map, draw_line, padded

_IRIS_HALF_MM, _IRIS_PER_MM = 6.6, 10
_LASH_ABOVE_MM, _LASH_BELOW_MM, _LASH_PER_MM, _LASH_WIDTH = 5.0, 1.0, 16, 384


def paint_iris(rng: np.random.Generator, person: SyntheticPerson) -> Map:
    """Paint the iris around the optical axis, without the pupil."""
    samples = np.arange(-_IRIS_HALF_MM, _IRIS_HALF_MM + 1e-6, 1 / _IRIS_PER_MM)
    x, y = np.meshgrid(samples, samples)
    radius, angle = np.hypot(x, y) / person.iris_mm, np.arctan2(y, x)
    fibres = np.zeros_like(radius)
    for waves in rng.integers(9, 70, 14):
        fibres += np.cos(waves * angle + rng.uniform(0, 6.3) + rng.uniform(-3, 3) * radius) / np.sqrt(14)
    tone = 1.0 + 0.16 * fibres + 0.3 * np.exp(-(((radius - 0.45) / 0.14) ** 2))
    rim = rng.uniform(0.45, 0.75) * np.clip((radius - 0.72) / 0.28, 0, 1) ** 2
    warm = np.exp(-(((radius - 0.42) / 0.16) ** 2))[..., None] * np.array([0.10, 0.05, -0.02]) * rng.uniform(0, 1)
    iris = person.iris * (tone * (1 - rim))[..., None] + warm * person.iris.mean()
    return Map(padded(np.clip(iris, 0.01, 1)), -_IRIS_HALF_MM, -_IRIS_HALF_MM, _IRIS_PER_MM, _IRIS_PER_MM)


def draw_lashes(rng: np.random.Generator, strength: float) -> Map:
    """Draw the opacity of one eye's upper lashes: x is the share of the lid's width, y mm below its margin."""
    mask = np.zeros((int((_LASH_ABOVE_MM + _LASH_BELOW_MM) * _LASH_PER_MM), int(1.2 * _LASH_WIDTH)), np.uint8)
    for root in np.sort(rng.uniform(0.06, 0.99, int(40 + 45 * strength))):
        length = rng.uniform(1.2, 2.4) * (0.6 + 0.7 * root) * (0.7 + 0.5 * strength)
        tip = root + (root - 0.35) * 0.10 + rng.normal(0, 0.012)
        ends = np.array([[root, _LASH_ABOVE_MM], [tip, _LASH_ABOVE_MM - length]]) * [_LASH_WIDTH, _LASH_PER_MM]
        draw_line(mask, ends[0], ends[1], int(80 + 110 * strength), 2)
    opacity = cv2.GaussianBlur(mask, (0, 0), 1.5).astype(np.float32) / 255
    return Map(np.pad(opacity, 1), 0.0, -_LASH_ABOVE_MM, _LASH_WIDTH, _LASH_PER_MM)


def place_lids(person: SyntheticPerson, eye: int, optical: NDArray, aperture: float) -> dict[str, float]:
    """Place the lids of eye 0 or 1, which partially follow the iris.

    Args:
        person: the person.
        eye: 0 or 1.
        optical: (3,) the optical axis.
        aperture: opening of the lids, 1 = normal.

    Returns:
        The share of the opening per mm of x, the x of the inner corner, and heights from the line between the corners.
    """
    centre = person.eye_centres_mm[eye]
    side = np.sign(centre[0])
    inner, outer = abs(centre[0]) - person.inner_half_mm, person.outer_half_mm - abs(centre[0])
    travel = person.eyeball_mm * optical[1]
    upper = max((person.upper_lids_mm[eye] - person.upper_follow * travel) * aperture, 1.0)
    return {
        "per_mm": side / (inner + outer),
        "inner_mm": centre[0] - side * inner,
        "tilt_mm": person.tilt_mm,
        "upper_mm": upper,
        "lower_mm": max((person.lower_lids_mm[eye] + person.lower_follow * travel) * (0.5 + 0.5 * aperture), 1.2),
        "fold_mm": max(person.upper_lids_mm[eye] + person.crease_mm - 0.25 * travel, upper + 1.2),
    }
