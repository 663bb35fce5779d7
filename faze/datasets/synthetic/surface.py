"""The face as a surface: an ellipsoid displaced by nose, sockets, brows and lids, with the colours painted on it.

Maps over the head frame's x and y hold displacement, normals and colours; a ray finds its point on the surface by
intersecting the ellipsoid and correcting for the displacement there.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.datasets.synthetic.person import EYEBALL_RADIUS_MM, Person

LID_RADIUS_MM = EYEBALL_RADIUS_MM + 0.9  # the lids' outer side
_PER_MM = 2  # map samples
_LEFT, _TOP, _RIGHT, _BOTTOM = -104.0, -136.0, 104.0, 152.0
_CENTRE_MM = np.array([0.0, 22.0, 84.0])
_AXES_MM = np.array([77.0, 122.0, 96.0])
_LIP_RGB = np.array([0.66, 0.33, 0.32])

Image = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Hit:
    """Where rays meet the head: x and y in the head frame (mm), and whether they do."""

    x: Image
    y: Image
    inside: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Face:
    """Maps of one person's face; samples every half millimetre."""

    displacement: Image  # (h, w) mm, positive into the head
    normal: Image  # (h, w, 3) unit, head frame, out of the head
    colour: Image  # (h, w, 3) RGB

    def hit(self, origin: NDArray, rays: Image) -> Hit:
        """First points of rays on the face.

        Args:
            origin: (3,) the camera in the head frame, mm.
            rays: (h, w, 3) directions in the head frame.
        """
        scaled = rays / _AXES_MM.astype(np.float32)
        start = ((origin - _CENTRE_MM) / _AXES_MM).astype(np.float32)
        a = np.einsum("hwc,hwc->hw", scaled, scaled)
        lateral = scaled[..., 0] * start[0] + scaled[..., 1] * start[1]
        rest = np.float32(start[0] ** 2 + start[1] ** 2 - 1)
        depth = start[2]
        for round_ in range(4):
            b = lateral + scaled[..., 2] * depth
            square = b * b - a * (rest + depth * depth)
            t = (-b - np.sqrt(np.maximum(square, 0))) / a
            if round_ == 0:
                inside = square > 0
            x = np.float32(origin[0]) + t * rays[..., 0]
            y = np.float32(origin[1]) + t * rays[..., 1]
            if round_ < 3:
                depth = start[2] - look_up(self.displacement, x, y) / np.float32(_AXES_MM[2])
        return Hit(x, y, inside)


def look_up(texture: Image, x: Image, y: Image) -> Image:
    """A map's values at points of the head frame (mm)."""
    column = (x - np.float32(_LEFT)) * np.float32(_PER_MM)
    row = (y - np.float32(_TOP)) * np.float32(_PER_MM)
    return cv2.remap(texture, column, row, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def build_face(rng: np.random.Generator, person: Person) -> Face:
    """Model and paint a face."""
    y, x = np.mgrid[_TOP : _BOTTOM : 1 / _PER_MM, _LEFT : _RIGHT : 1 / _PER_MM].astype(np.float32)
    base = _ellipsoid_depth(x, y)
    depth = _lids(person, x, y, base + _features(person, x, y))
    gradient_y, gradient_x = np.gradient(depth, 1 / _PER_MM)
    normal = np.stack([gradient_x, gradient_y, -np.ones_like(depth)], axis=-1)
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    colour = _paint(rng, person, x, y)
    return Face((depth - base).astype(np.float32), normal.astype(np.float32), colour)


def _ellipsoid_depth(x: Image, y: Image) -> Image:
    left = 1 - ((x - _CENTRE_MM[0]) / _AXES_MM[0]) ** 2 - ((y - _CENTRE_MM[1]) / _AXES_MM[1]) ** 2
    return _CENTRE_MM[2] - _AXES_MM[2] * np.sqrt(np.maximum(left, 0.03))


def _features(person: Person, x: Image, y: Image) -> Image:
    """Displacement of the face without lids, mm; negative protrudes."""
    side = np.abs(x)
    eye_x, eye_y = person.eye_centres_mm[1, :2]
    brow_y = eye_y - person.brow_height_mm
    nose = np.clip((y + 4) / 48, 0, 1)
    nose_width = 5.0 + 6.5 * nose
    height = -(1.0 + 21.0 * nose**1.3) * np.exp(-((x / nose_width) ** 2)) * _step(54 - y, 3.0) * _step(y + 16, 8.0)
    height -= 7.0 * _bump(side, y, 12.5, 46.0, 5.0, 5.0)  # nostrils' wings
    height += 8.5 * _bump(side, y, person.inner_half_mm - 1.0, 0.0, 9.0, 11.0)  # inner corners lie in a hollow
    height += 3.0 * _bump(side, y, eye_x, eye_y - 11.0, 15.0, 5.5)  # between lid and brow
    height -= 2.5 * _bump(side, y, eye_x - 2, brow_y, 19.0, 6.0)
    height += 2.2 * _bump(side, y, eye_x - 6, eye_y + 17.0, 14.0, 6.0)  # under the eye
    height -= 4.0 * _bump(side, y, 41.0, 38.0, 18.0, 18.0)  # cheeks
    height -= 3.5 * np.exp(-((x / 24) ** 2)) * (np.exp(-(((y - 63) / 5) ** 2)) + np.exp(-(((y - 73) / 5) ** 2)))
    height -= 5.0 * _bump(x, y, 0.0, 103.0, 18.0, 14.0)  # chin
    return height


def _lids(person: Person, x: Image, y: Image, depth: Image) -> Image:
    """Bulge the face over the eyeballs."""
    for centre in person.eye_centres_mm:
        square = LID_RADIUS_MM**2 - (x - centre[0]) ** 2 - (y - centre[1]) ** 2
        lid = np.where(square > 1.0, centre[2] - np.sqrt(np.maximum(square, 1.0)), depth + 20)
        # A smooth minimum: the bulge runs out into the cheek without an edge.
        blend = np.clip(0.5 + 0.5 * (depth - lid) / 2.0, 0, 1)
        depth = depth * (1 - blend) + lid * blend - 2.0 * 0.5 * blend * (1 - blend)
    return depth


def _paint(rng: np.random.Generator, person: Person, x: Image, y: Image) -> Image:
    shape = x.shape
    side = np.abs(x)
    mottle = (
        0.02 * _smooth_noise(rng, shape, 24)
        + 0.02 * _smooth_noise(rng, shape, 6)
        + 0.015 * _smooth_noise(rng, shape, 1)
    )
    colour = person.skin * (1 + mottle)[..., None]
    eye_x, eye_y = person.eye_centres_mm[1, :2]
    red = (
        0.05 * _bump(side, y, 42, 36, 18, 14)
        + 0.06 * _bump(x, y, 0, 44, 12, 10)
        + 0.03 * _bump(side, y, eye_x, eye_y, 17, 11)
    )
    colour *= 1 + red[..., None] * np.array([0.6, -1.0, -0.8])
    colour *= 1 - rng.uniform(0.02, 0.14) * _bump(side, y, eye_x - 5, eye_y + 12, 13, 6)[..., None]  # rings
    lips = _step(1 - (x / person.mouth_mm[1, 0]) ** 2 - ((y - person.mouth_mm[0, 1]) / 7.5) ** 2, 0.25)
    seam = np.exp(-(((y - person.mouth_mm[0, 1] + 0.6) / 0.9) ** 2)) * _step(person.mouth_mm[1, 0] - side, 2.0)
    colour += 0.6 * lips[..., None] * (_LIP_RGB * person.skin.mean() * 1.25 - colour)
    colour *= 1 - 0.55 * seam[..., None]
    colour *= 1 - 0.6 * _bump(side, y, 7.0, 53.0, 2.6, 1.6)[..., None]  # nostrils
    beard = rng.uniform(0, 0.45) * (rng.random() < 0.4)
    jaw = _step(y - 50, 14) * (1 - 0.7 * _bump(x, y, 0, 66, 22, 12)) * (0.8 + 0.4 * _smooth_noise(rng, shape, 1))
    colour += (beard * np.clip(jaw, 0, 1))[..., None] * (person.hair - colour)
    hairline = rng.uniform(-72, -58) + rng.normal(0, 4) * np.cos(x / 17) - 0.004 * x * x
    temple = rng.uniform(62, 68) + 0.08 * y + 2.0 * _smooth_noise(rng, shape, 10)
    hair = np.maximum(_step(hairline - y, 5.0), _step(side - temple, 2.5) * _step(48 - y, 14.0))
    strand = 0.85 + 0.3 * np.abs(_strands(rng, shape))
    colour += hair[..., None] * (person.hair * strand[..., None] - colour)
    colour = _paint_brows(rng, person, colour.astype(np.float32))
    return np.clip(colour, 0.01, 1.2).astype(np.float32)


def _paint_brows(rng: np.random.Generator, person: Person, colour: Image) -> Image:
    """Draw brows hair by hair, on a mask of four times the maps' resolution."""
    fine = 2
    mask = np.zeros((colour.shape[0] * fine, colour.shape[1] * fine), np.uint8)
    arch, thickness, drop = rng.uniform(1.5, 4.5), rng.uniform(2.2, 4.0), rng.uniform(-1.0, 3.0)
    hairs = int(150 + 380 * person.brow_weight)
    for side, centre in zip((-1, 1), person.eye_centres_mm, strict=True):
        along = rng.uniform(-1, 1, hairs)
        across = rng.normal(0, 0.5, hairs) * np.where(along > 0.3, 1.3 - along, 1.0)
        x = centre[0] + side * (17.5 * along - 0.5)
        y = (
            centre[1]
            - person.brow_height_mm
            - arch * (1 - (along - 0.25) ** 2)
            + drop * along
            + arch * 0.6
            + thickness * across
        )
        lean = np.stack(
            [side * rng.uniform(2.5, 5.5, hairs), rng.normal(-1.6, 1.0, hairs) + 2.6 * (along + 0.3)], axis=1
        )
        start = np.stack([(x - _LEFT), (y - _TOP)], axis=1)
        for a, b in zip(start, start + lean, strict=True):
            ends = np.round(np.array([a, b]) * _PER_MM * fine * 16).astype(int)
            cv2.line(mask, ends[0].tolist(), ends[1].tolist(), 255, 1, cv2.LINE_AA, 4)
    cover = cv2.resize(mask, colour.shape[1::-1], interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    cover = np.clip(0.55 * cv2.GaussianBlur(cover, (0, 0), 2.0) + 0.9 * cover, 0, 0.92) * (
        0.55 + 0.45 * person.brow_weight
    )
    dark = (0.85 * person.hair).astype(np.float32)
    return colour + cover[..., None] * (dark - colour)


def _bump(x: Image, y: Image, at_x: float, at_y: float, width: float, height: float) -> Image:
    return np.exp(-(((x - at_x) / width) ** 2) - ((y - at_y) / height) ** 2)


def _step(value: Image, width: float) -> Image:
    """0 below -width/2, 1 above width/2, smooth between."""
    ramp = np.clip(value / width + 0.5, 0, 1)
    return ramp * ramp * (3 - 2 * ramp)


def _smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], scale_mm: float) -> Image:
    """Noise of unit deviation with features of about this size."""
    rows, columns = (max(4, int(n / (_PER_MM * scale_mm)) + 2) for n in shape)
    coarse = rng.standard_normal((rows, columns), np.float32)
    return cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC)


def _strands(rng: np.random.Generator, shape: tuple[int, ...]) -> Image:
    coarse = rng.standard_normal((8, shape[1] // 2), np.float32)
    return cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_LINEAR)
