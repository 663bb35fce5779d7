"""The colours of a face over the head frame's x and y: skin, lips, beard, hair, brows."""

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.person import SyntheticPerson
from faze.data.synthetic.texture import Image, bump, draw_line, smooth_noise, step

_LIP_RGB = np.array([0.66, 0.36, 0.34])
_BROW_FINENESS = 2  # mask samples per map sample


def paint_skin(rng: np.random.Generator, person: SyntheticPerson, x: Image, y: Image, per_mm: int) -> Image:
    """Paint a face.

    Args:
        rng: of this person's skin.
        person: whose.
        x: (h, w) of the map's points in the head frame, mm.
        y: (h, w) of the same points.
        per_mm: its samples per mm.

    Returns:
        (h, w, 3) RGB.
    """
    colour = _bare_skin(rng, person, x, y, per_mm)
    colour = _mouth(person, x, y, colour)
    colour = _beard(rng, person, x, y, colour)
    colour = _hair(rng, person, x, y, per_mm, colour)
    cover = _brows(rng, person, x, y, per_mm) * (0.6 + 0.4 * person.brow_weight)
    colour += cover[..., None] * (0.85 * person.hair - colour)
    return np.clip(colour, 0.01, 1.2).astype(np.float32)


def _bare_skin(rng: np.random.Generator, person: SyntheticPerson, x: Image, y: Image, per_mm: int) -> NDArray:
    side = np.abs(x)
    eye_x, eye_y = person.eye_centres_mm[1, :2]
    mottle = sum(
        strength * smooth_noise(rng, x.shape, size * per_mm) for strength, size in ((0.02, 24), (0.02, 6), (0.018, 1))
    )
    red = 0.05 * bump(side, y, (42, 36), (18, 14)) + 0.06 * bump(x, y, (0, 44), (12, 10))
    red += rng.uniform(0.01, 0.06) * bump(side, y, (eye_x, eye_y), (17, 11))
    rings = rng.uniform(0.02, 0.16) * bump(side, y, (eye_x - 5, eye_y + 11), (13, 6))
    hollow = rng.uniform(0.06, 0.16) * bump(side, y, (person.inner_half_mm - 1, -3), (6, 9))
    colour = person.skin * (1 + mottle - rings - hollow)[..., None]
    return colour * (1 + red[..., None] * np.array([0.6, -1.0, -0.8]))


def _mouth(person: SyntheticPerson, x: Image, y: Image, colour: NDArray) -> NDArray:
    half, height = person.mouth_mm[1, :2]
    bow = y + 0.006 * x * x  # the corners curve up
    lips = step(1 - (x / half) ** 2 - ((bow - height) / 7.5) ** 2, 0.25)
    colour = colour + 0.6 * lips[..., None] * (_LIP_RGB * person.skin.mean() * 1.25 - colour)
    seam = np.exp(-(((bow - height + 0.6) / 0.9) ** 2)) * step(half - np.abs(x), 2.0)
    nostrils = bump(np.abs(x), y, (7.0, 53.0), (2.6, 1.6))
    return colour * (1 - 0.55 * seam)[..., None] * (1 - 0.6 * nostrils)[..., None]


def _beard(rng: np.random.Generator, person: SyntheticPerson, x: Image, y: Image, colour: NDArray) -> NDArray:
    density = rng.uniform(0.1, 0.5) * (rng.random() < 0.4)
    jaw = step(y - 58 - 0.004 * x * x, 18) * (1 - 0.7 * bump(x, y, (0, person.mouth_mm[0, 1]), (22, 10)))
    jaw = np.maximum(jaw, 0.9 * bump(x, y, (0, person.mouth_mm[0, 1] - 11), (20, 4)))
    grain = 0.8 + 0.25 * smooth_noise(rng, x.shape, 2)
    return colour + (density * np.clip(jaw * grain, 0, 1))[..., None] * (person.hair - colour)


def _hair(
    rng: np.random.Generator, person: SyntheticPerson, x: Image, y: Image, per_mm: int, colour: NDArray
) -> NDArray:
    side = np.abs(x)
    wave = smooth_noise(rng, x.shape, 8 * per_mm)
    hairline = rng.uniform(-70, -56) + rng.normal(0, 4) * np.cos(x / 17) + 0.004 * x * x + 1.5 * wave
    temple = rng.uniform(61, 67) + 0.10 * y + 1.5 * wave
    cover = np.maximum(step(hairline - y, 5.0), step(side - temple, 3.0) * step(30 - y, 24.0))
    coarse = rng.standard_normal((8, x.shape[1] // 2), np.float32)
    strands = cv2.resize(coarse, x.shape[::-1], interpolation=cv2.INTER_LINEAR)
    return colour + cover[..., None] * (person.hair * (0.85 + 0.3 * np.abs(strands))[..., None] - colour)


def _brows(rng: np.random.Generator, person: SyntheticPerson, x: Image, y: Image, per_mm: int) -> Image:
    """Draw both brows hair by hair: how they cover the skin, (h, w)."""
    fine = _BROW_FINENESS * per_mm
    mask = np.zeros((x.shape[0] * _BROW_FINENESS, x.shape[1] * _BROW_FINENESS), np.uint8)
    arch, thickness, drop = rng.uniform(1.5, 4.5), rng.uniform(2.2, 4.0), rng.uniform(-1.0, 3.0)
    hairs = int(150 + 380 * person.brow_weight)
    corner = np.array([x[0, 0], y[0, 0]])
    for centre in person.eye_centres_mm:
        side = np.sign(centre[0])
        along = rng.uniform(-1, 1, hairs)
        across = thickness * rng.normal(0, 0.5, hairs) * np.where(along > 0.3, 1.3 - along, 1.0)
        height = centre[1] - person.brow_height_mm + arch * (along - 0.25) ** 2 - 0.4 * arch + drop * along + across
        start = np.stack([centre[0] + side * (17.5 * along - 0.5), height], axis=1)
        lean = np.stack(
            [side * rng.uniform(2.5, 5.5, hairs), rng.normal(-1.6, 1.0, hairs) + 2.6 * (along + 0.3)], axis=1
        )
        for a, b in zip((start - corner) * fine, (start + lean - corner) * fine, strict=True):
            draw_line(mask, a, b, 255)
    cover = cv2.resize(mask, x.shape[::-1], interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    return np.clip(0.55 * cv2.GaussianBlur(cover, (0, 0), 2.0) + 0.9 * cover, 0, 0.92)
