"""The layers of a frame in numpy: camera, light and eyes in the head frame, the pixels of each part, and blending.

`compiled_layers` does the same several times faster; its `layers_for` chooses an implementation. Both use a person's
`Painted`.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.eyes import Eyeball, Margins, cover_lids, margins, open_lids, shade_eyeball
from faze.data.synthetic.person import SyntheticPerson
from faze.data.synthetic.setting import Camera
from faze.data.synthetic.surface import Face, Hit
from faze.data.synthetic.texture import Image, Light

_HEAD_MM = ((-80.0, -105.0, 0.0), (80.0, 145.0, 90.0))  # two corners of a box in the head frame
_BAND_MM = ((-66.0, -34.0, 0.0), (66.0, 30.0, 0.0))
_EYE_MM = np.array([[-17.0, -13.0, 0.0], [17.0, 11.0, 0.0]])  # around an eyeball
FEATHER_PX = 5

Box = tuple[int, int, int, int]  # left, top, width, height, px


@dataclass(frozen=True, eq=False)
class Shot:
    """One frame: camera, light and eyes."""

    camera: Camera
    rotation: NDArray  # (3, 3) head -> camera
    origin_mm: NDArray  # (3,) of the head in the camera frame
    light: Light  # in the head frame
    exposure: np.float32  # grey level of white
    optical: NDArray  # (2, 3) optical axes in the head frame
    aperture: float  # opening of the lids, 1 = usual
    pupil_mm: float

    @property
    def viewpoint_mm(self) -> NDArray:
        """Return the position (3,) of the camera in the head frame."""
        return -self.rotation.T @ self.origin_mm

    def rays(self, box: Box, scale: float) -> Image:
        """Compute the ray directions (h, w, 3) in the head frame."""
        grid, rotation = self.camera.ray_grid(box, scale), self.rotation.astype(np.float32)
        # No matrix product: its rounding depends on BLAS and processor, and kernel.c must round the same.
        return grid[..., :1] * rotation[0] + grid[..., 1:] * rotation[1] + rotation[2]

    def eyes(self, person: SyntheticPerson) -> list[tuple[Eyeball, Margins]]:
        """Place each eyeball and its lids."""
        return [
            (Eyeball(centre, axis, self.pupil_mm), margins(person, eye, axis, self.aperture))
            for eye, (centre, axis) in enumerate(zip(person.eye_centres_mm, self.optical, strict=True))
        ]

    def boxes(self, person: SyntheticPerson) -> tuple[Box, Box, list[Box]]:
        """Find the boxes of pixels around the head, around the band across the eyes, and around each eye."""
        eyes = [_EYE_MM + centre * [1, 1, 0] for centre in person.eye_centres_mm]
        low, high = np.moveaxis(np.array([_HEAD_MM, _BAND_MM, *eyes])[:, :, None], 1, 0)  # (4, 1, 3) each
        points = np.where(_CORNERS, high, low)  # (4, 8, 3)
        pixels = self.camera.project(points @ self.rotation.T + self.origin_mm)
        size = np.array([self.camera.width_px, self.camera.height_px])
        first = np.clip(np.floor(pixels.min(axis=1)), 0, size - 2).astype(int)
        last = np.clip(np.ceil(pixels.max(axis=1)) + 1, first + 2, size).astype(int)
        sides = (last - first) // 2 * 2  # even, for half resolution
        head, band, *found = (tuple(box) for box in np.concatenate([first, sides], axis=1).tolist())
        return head, band, found


_CORNERS = np.array([[x, y, z] for x in (False, True) for y in (False, True) for z in (False, True)])


def within(box: Box, outer: Box) -> Box:
    """Return the intersection of a box with an outer one: left, top, width, height, relative to the outer one."""
    left, top = max(box[0] - outer[0], 0), max(box[1] - outer[1], 0)
    right, bottom = box[0] + box[2] - outer[0], box[1] + box[3] - outer[1]
    return left, top, max(min(right, outer[2]) - left, 0), max(min(bottom, outer[3]) - top, 0)


def feather(width: int, height: int) -> Image:
    """Compute weights (height, width) that fall to 0 at the edges."""
    ramps = [np.minimum(np.arange(n) + 0.5, n - 0.5 - np.arange(n)) / FEATHER_PX for n in (width, height)]
    across, down = (np.clip(ramp, 0, 1).astype(np.float32) for ramp in ramps)
    return down[:, None] * across


_EYE_SAMPLES = 2  # per px, along each side


@dataclass(frozen=True, eq=False)
class Painted:
    """The parts that are painted once per person."""

    face: Face
    iris: Image  # (n, n, 4)
    lashes: list[Image]  # one map for each eye


# (h, w, 3) levels, and (h, w) float32: 1 where rays meet the head, else 0.
Layer = tuple[NDArray[np.uint8], Image]


class NumpyLayers:
    """Layers of one person's frames."""

    def __init__(self, person: SyntheticPerson, painted: Painted) -> None:
        self._person, self._painted = person, painted

    def paint(self, shot: Shot, head: Box, band: Box, eyes: list[Box]) -> tuple[Layer, Layer]:
        """Paint the face at half resolution, and its band with eyes and spectacles at full resolution."""
        return self._head(shot, head), self._band(shot, band, eyes)

    def blend(self, frame: NDArray[np.uint8], box: Box, levels: NDArray[np.uint8], cover: Image) -> None:
        """Blend levels (h, w, 3) into a box in a frame; the opacity (h, w) is clipped to 0..1."""
        left, top, width, height = box
        region, share = frame[top : top + height, left : left + width], np.clip(cover, 0, 1)
        region[:] = cv2.blendLinear(levels, region, share, 1 - share)

    def add_noise(self, frame: NDArray[np.uint8], noise: NDArray[np.uint8]) -> None:
        """Add noise (H, W, 3), which is centred on 128, to a frame."""
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
