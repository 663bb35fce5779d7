"""Lids that follow the gaze: the opening between them, crease, wet rim, lashes, and their shadow on the eyeball.

Everything in the head frame, mm, float32; maps are (h, w).
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.person import SyntheticPerson
from faze.data.synthetic.texture import Image, draw_line, ramp

_LASH_ABOVE_MM, _LASH_BELOW_MM, _LASH_PER_MM, _LASH_WIDTH = 5.0, 1.0, 16, 384


@dataclass(frozen=True, eq=False)
class Opening:
    """How far samples lie inside the opening of the lids, mm; negative outside."""

    along: Image  # 0 inner corner .. 1 outer corner, and beyond
    upper: Image  # below the upper margin
    lower: Image  # above the lower margin
    crease: Image  # below the upper lid's crease

    def window(self, margin_mm: float) -> tuple[slice, slice]:
        """Find the rows and columns that hold the opening."""
        inside = (np.minimum(self.upper, self.lower) > -margin_mm) & (np.abs(self.along - np.float32(0.5)) < 0.55)
        rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
        if not len(rows):
            return slice(0, 0), slice(0, 0)
        return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def open_lids(person: SyntheticPerson, eye: int, x: Image, y: Image, optical: NDArray, aperture: float) -> Opening:
    """Compute where the lids are open.

    Args:
        person: whose.
        eye: 0 or 1.
        x: of points on the face.
        y: of the same points.
        optical: (3,) the optical axis; the margins follow the iris, not all of its way.
        aperture: how wide, 1 = as usual.
    """
    lids, centre = person.lids[eye], person.eye_centres_mm[eye]
    side = np.sign(centre[0])
    inner, outer = abs(centre[0]) - person.inner_half_mm, person.outer_half_mm - abs(centre[0])
    along = np.float32(side / (inner + outer)) * (x - np.float32(centre[0] - side * inner))
    across = np.clip(along, 0, 1)
    travel = person.eyeball_mm * optical[1]
    upper = max((lids.upper_mm - lids.follow[0] * travel) * aperture, 1.0)
    lower = max((lids.lower_mm + lids.follow[1] * travel) * (0.5 + 0.5 * aperture), 1.2)
    fold = max(lids.upper_mm + lids.crease_mm - 0.25 * travel, upper + 1.2)
    below_line = y + np.float32(lids.tilt_mm) * across
    sine = np.sin(np.float32(np.pi) * across)
    # Steep at the corners, flat in the middle, and highest a little toward the nose.
    upper_arch = np.sqrt(np.maximum(sine, 0)) * (np.float32(1.04) - np.float32(0.12) * across)
    lower_arch = sine * (np.float32(0.9) + np.float32(0.2) * across)
    return Opening(
        along=along,
        upper=below_line + np.float32(upper) * upper_arch,
        lower=np.float32(lower) * lower_arch - below_line,
        crease=below_line + np.float32(fold) * (np.float32(0.3) + np.float32(0.7) * upper_arch),
    )


def draw_lashes(rng: np.random.Generator, strength: float) -> Image:
    """Draw how one eye's upper lashes cover it, over position along the margin and distance from it."""
    mask = np.zeros((int((_LASH_ABOVE_MM + _LASH_BELOW_MM) * _LASH_PER_MM), int(1.2 * _LASH_WIDTH)), np.uint8)
    for root in np.sort(rng.uniform(0.06, 0.99, int(40 + 45 * strength))):
        length = rng.uniform(1.2, 2.4) * (0.6 + 0.7 * root) * (0.7 + 0.5 * strength)
        tip = root + (root - 0.35) * 0.10 + rng.normal(0, 0.012)
        ends = np.array([[root, _LASH_ABOVE_MM], [tip, _LASH_ABOVE_MM - length]]) * [_LASH_WIDTH, _LASH_PER_MM]
        draw_line(mask, ends[0], ends[1], int(80 + 110 * strength), 2)
    return cv2.GaussianBlur(mask, (0, 0), 1.5).astype(np.float32) / 255


def shadow(opening: Opening) -> Image:
    """Compute the share of the light that the lids leave to the eyeball."""
    above = np.float32(0.42) + np.float32(0.58) * ramp(opening.upper / np.float32(3.2))
    below = np.float32(0.8) + np.float32(0.2) * ramp(opening.lower / np.float32(1.0))
    corner = np.minimum(opening.along, 1 - opening.along)
    return above * below * (np.float32(0.62) + np.float32(0.38) * ramp(corner / np.float32(0.16)))


def cover_lids(person: SyntheticPerson, lashes: Image, opening: Opening, skin: Image, eyeball: Image) -> Image:
    """Lay lids over an eyeball.

    Args:
        person: whose.
        lashes: of this eye.
        opening: at the samples.
        skin: (h, w, 3) the face without opening.
        eyeball: (h, w, 3); only read where the lids are open.

    Returns:
        (h, w, 3).
    """
    between = ramp(np.minimum(opening.along, 1 - opening.along) * np.float32(9.0))
    crease = np.exp(-np.square(opening.crease * np.float32(1.3))) * between
    rim = np.exp(-np.square(opening.lower * 2 + np.float32(0.9))) * between * (opening.upper > 0)
    pink = np.array([0.10, 0.01, 0.01], np.float32) * np.float32(person.skin.mean())
    skin = skin * (1 - np.float32(0.34) * crease)[..., None] + rim[..., None] * pink
    inside = ramp(np.minimum(opening.upper, opening.lower) / np.float32(0.35) + np.float32(0.5)) * (between > 0)
    red = np.abs(opening.along - np.float32(0.5))[..., None] ** 3 * np.array([0.4, 1.8, 1.8], np.float32)
    colour = skin + inside[..., None] * (eyeball * (shadow(opening)[..., None] * (1 - red)) - skin)
    ink = (0.35 * person.hair).astype(np.float32)
    return colour + _hairs(person, lashes, opening, between)[..., None] * (ink - colour)


def _hairs(person: SyntheticPerson, lashes: Image, opening: Opening, between: Image) -> Image:
    """Compute how lashes, and the dark line at their roots, cover the eye."""
    line = np.exp(-np.square((opening.upper + np.float32(0.1)) * np.float32(1.8))) * np.float32(0.75)
    below = np.exp(-np.square((opening.lower + np.float32(0.1)) * np.float32(2.2))) * np.float32(0.28)
    upper = cv2.remap(
        lashes,
        opening.along * np.float32(_LASH_WIDTH),
        (opening.upper + np.float32(_LASH_ABOVE_MM)) * np.float32(_LASH_PER_MM),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_CONSTANT,
    )
    dark = np.maximum(np.maximum(line, below) * between, upper)
    return dark * np.float32(0.5 + 0.5 * person.lids[0].lashes)
