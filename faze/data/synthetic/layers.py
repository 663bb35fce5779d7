"""The layers of a frame, in numpy: what each is made of, and how it is laid over the others.

`compiled_layers` does the same several times as fast; its `layers_for` chooses. Both take a person's `Painted`.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.eyeball import Eyeball, shade_eyeball
from faze.data.synthetic.lids import Margins, cover_lids, open_lids
from faze.data.synthetic.light import Light
from faze.data.synthetic.person import SyntheticPerson
from faze.data.synthetic.shot import FEATHER_PX, Box, Shot, feather, within
from faze.data.synthetic.surface import Face, Hit
from faze.data.synthetic.texture import Image

_EYE_SAMPLES = 2  # per px, along each side


@dataclass(frozen=True, eq=False)
class Painted:
    """What is painted once for a person."""

    face: Face
    iris: Image  # (n, n, 4)
    lashes: list[Image]  # one map for each eye


# (h, w, 3) levels, and (h, w) float32 that says by 1 and 0 whether rays meet the head there.
Layer = tuple[NDArray[np.uint8], Image]


class NumpyLayers:
    """Layers of one person's frames."""

    def __init__(self, person: SyntheticPerson, painted: Painted) -> None:
        self._person, self._painted = person, painted

    def paint(self, shot: Shot, head: Box, band: Box, eyes: list[Box]) -> tuple[Layer, Layer]:
        """Paint the face at half resolution, and the band of it with eyes and spectacles at full resolution."""
        return self._head(shot, head), self._band(shot, band, eyes)

    def blend(self, frame: NDArray[np.uint8], box: Box, levels: NDArray[np.uint8], cover: Image) -> None:
        """Lay levels (h, w, 3) over a box of a frame as far as the cover (h, w) goes, which is cut to 0..1."""
        left, top, width, height = box
        region, share = frame[top : top + height, left : left + width], np.clip(cover, 0, 1)
        region[:] = cv2.blendLinear(levels, region, share, 1 - share)

    def add_noise(self, frame: NDArray[np.uint8], noise: NDArray[np.uint8]) -> None:
        """Add noise around 128, (H, W, 3), to a frame."""
        cv2.addWeighted(frame, 1.0, noise, 1.0, -128.0, dst=frame)

    def _head(self, shot: Shot, box: Box) -> Layer:
        hit = self._painted.face.hit(shot.viewpoint_mm, shot.rays(box, 0.5))
        return _levels(self._skin(hit, shot.light), shot), hit.inside.astype(np.float32)

    def _band(self, shot: Shot, box: Box, eyes: list[Box]) -> Layer:
        straight = rays = shot.rays(box, 1.0)
        if spectacles := self._person.spectacles:
            met = spectacles.meet(shot.viewpoint_mm, straight)
            rays = spectacles.bend(met, shot.viewpoint_mm, straight)
        hit = self._painted.face.hit(shot.viewpoint_mm, rays)
        colour = self._skin(hit, shot.light)
        for eye, (ball, lids) in enumerate(shot.eyes(self._person)):
            left, top, width, height = within(eyes[eye], box)
            if min(width, height) < 2 * FEATHER_PX:  # at the frame's edge
                continue
            part = slice(top, top + height), slice(left, left + width)
            seen = colour[part], hit.x[part], hit.y[part], rays[part]
            colour[part] = self._eye(shot, ball, lids, self._painted.lashes[eye], seen)
        if spectacles:
            colour = spectacles.cover(colour, met, straight, shot.light)
        return _levels(colour, shot), hit.inside.astype(np.float32)

    def _eye(self, shot: Shot, ball: Eyeball, lids: Margins, lashes: Image, seen: tuple[Image, ...]) -> Image:
        """Draw one eye's part of the band, (h, w, 3), from its skin, points on the face and rays at the same pixels."""
        height, width = seen[0].shape[:2]
        fine = (width * _EYE_SAMPLES, height * _EYE_SAMPLES)
        skin, x, y, rays = (cv2.resize(array, fine, interpolation=cv2.INTER_LINEAR) for array in seen)
        opening = open_lids(lids, x, y)
        eyeball = np.zeros_like(skin)
        part = opening.window(0.4)
        of_part = rays[part], shot.light
        eyeball[part] = shade_eyeball(self._person, self._painted.iris, ball, shot.viewpoint_mm, *of_part)
        colour = cover_lids(self._person, lashes, opening, skin, eyeball)
        colour = cv2.resize(colour, (width, height), interpolation=cv2.INTER_AREA)
        return seen[0] + feather(width, height)[..., None] * (colour - seen[0])

    def _skin(self, hit: Hit, light: Light) -> Image:
        colour, normal = self._painted.face.look_up(hit)
        return colour * light.on(normal)


def _levels(colour: Image, shot: Shot) -> NDArray[np.uint8]:
    return cv2.convertScaleAbs(colour, alpha=float(shot.exposure))
