"""Camera frames of synthetic people: every pixel of the face by its ray through the calibrated camera.

Three layers, coarse to fine: the whole head at half resolution, the band around the eyes at full resolution, and in it
each eye at several samples per pixel. All look at the same surface through the same lens.
"""

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.camera import Camera
from faze.data.synthetic.eyeball import Eyeball, paint_iris, shade_eyeball
from faze.data.synthetic.lids import cover_lids, draw_lashes, open_lids
from faze.data.synthetic.light import Light
from faze.data.synthetic.person import PIXELS, ROOM, SKIN, SyntheticPerson, random
from faze.data.synthetic.room import Room, add_noise, draw_body, sample_noise, sample_room, smear
from faze.data.synthetic.scene import Scene
from faze.data.synthetic.setting import Setting
from faze.data.synthetic.surface import Hit, build_face
from faze.data.synthetic.texture import Image

_HEAD_MM = ((-80.0, -105.0, 0.0), (80.0, 145.0, 90.0))  # two corners of a box in the head frame
_BAND_MM = ((-66.0, -34.0, 0.0), (66.0, 30.0, 0.0))
_EYE_MM = np.array([[-17.0, -13.0, 0.0], [17.0, 11.0, 0.0]])  # around an eyeball
_EYE_SAMPLES = 2  # per px, along each side
_FEATHER_PX = 5

Box = tuple[int, int, int, int]  # left, top, width, height, px


@dataclass(frozen=True, eq=False)
class _Shot:
    """One frame being taken: camera, light and eyes as the head sees them."""

    camera: Camera
    rotation: NDArray  # (3, 3) head -> camera
    origin_mm: NDArray  # (3,) of the head in the camera frame
    light: Light  # in the head frame
    exposure: np.float32  # grey level of white
    optical: NDArray  # (2, 3) optical axes in the head frame
    aperture: float  # how wide the lids are open, 1 = as usual
    pupil_mm: float

    @property
    def viewpoint_mm(self) -> NDArray:
        """Position (3,) of the camera in the head frame."""
        return -self.rotation.T @ self.origin_mm

    def rays(self, box: Box, scale: float) -> Image:
        """Compute (h, w, 3) directions in the head frame."""
        grid = self.camera.ray_grid(box, scale)
        return grid @ self.rotation[:2].astype(np.float32) + self.rotation[2].astype(np.float32)

    def box(self, corners_mm: tuple[tuple[float, ...], ...] | NDArray) -> Box:
        """Find the pixels around a box of the head frame, within the frame."""
        (left, top, near), (right, bottom, far) = corners_mm
        points = np.array([[x, y, z] for x in (left, right) for y in (top, bottom) for z in (near, far)])
        pixels = self.camera.project(points @ self.rotation.T + self.origin_mm)
        size = np.array([self.camera.width_px, self.camera.height_px])
        low = np.clip(np.floor(pixels.min(axis=0)), 0, size - 2).astype(int)
        high = np.clip(np.ceil(pixels.max(axis=0)) + 1, low + 2, size).astype(int)
        width, height = (high - low) // 2 * 2  # even, so that half resolution meets the pixels
        return int(low[0]), int(low[1]), int(width), int(height)


class Renderer:
    """Renders one person's frames; what lasts over frames is made once."""

    def __init__(
        self, seed: int, domain: str, index: int, person: SyntheticPerson, setting: Setting, rooms: int
    ) -> None:
        self._key, self._person, self._setting = (seed, domain, index), person, setting
        rng = random(seed, domain, index, SKIN)
        self._face = build_face(rng, person)
        self._iris = paint_iris(rng, person)
        self._lashes = [draw_lashes(rng, lids.lashes) for lids in person.lids]
        rng = random(seed, domain, index, ROOM)
        sizes = [(screen.camera.width_px, screen.camera.height_px) for screen in setting.screens]
        width, height = np.max(sizes, axis=0)  # a turned device sees the room upright and lying
        dimmest = setting.picture.dimmest
        self._rooms: list[Room] = [sample_room(rng, width, height, dimmest) for _ in range(rooms)]
        self._noise = sample_noise(rng, width, height)

    def render(self, scene: Scene, row: int, room: int) -> NDArray[np.uint8]:
        """Render one frame: (H, W, 3) uint8 RGB.

        Args:
            scene: the person's frames.
            row: which of them.
            room: where it is taken.
        """
        rng = random(*self._key, PIXELS, row)
        place, screen = self._rooms[room], self._setting.screens[scene.screen[row]]
        rotation, origin = scene.rotation[row], scene.origin_mm[row]
        to_screen = screen.middle_mm - origin
        light = replace(place.light, screen=to_screen / np.linalg.norm(to_screen)).turned(rotation.T)
        exposure = np.float32(255 * np.clip(rng.normal(1.0, 0.05), 0.85, 1.15))
        image = place.crop(rng, screen.camera.width_px, screen.camera.height_px)
        pupil_mm = self._person.pupil_mm * float(np.clip(rng.normal(1.0, 0.06), 0.8, 1.2))
        eyes = scene.optical_in_head[row], float(scene.aperture[row]), pupil_mm
        shot = _Shot(screen.camera, rotation, origin, light, exposure, *eyes)
        draw_body(image, place, self._person, shot.camera, rotation, origin)
        self._draw_head(image, shot)
        self._draw_band(image, shot)
        left, top, width, height = shot.box(_HEAD_MM)
        region = image[top : top + height, left : left + width]
        picture = self._setting.picture
        cv2.GaussianBlur(region, (0, 0), float(rng.uniform(*picture.blur_px)), dst=region)
        if picture.moved and rng.random() < picture.moved:
            smear(rng, region)
        return add_noise(rng, image, self._noise)

    def _draw_head(self, image: NDArray[np.uint8], shot: _Shot) -> None:
        box = shot.box(_HEAD_MM)
        hit = self._face.hit(shot.viewpoint_mm, shot.rays(box, 0.5))
        cover = cv2.GaussianBlur(hit.inside.astype(np.float32), (0, 0), 1.0)
        colour = cv2.resize(_levels(self._skin(hit, shot.light), shot), box[2:], interpolation=cv2.INTER_LINEAR)
        cover = cv2.resize(cover, box[2:], interpolation=cv2.INTER_LINEAR)
        # Only the face's side of the silhouette is drawn, since beyond it the colours mean nothing.
        _blend(image, box, colour, np.clip(cover * 2 - 1, 0, 1))

    def _draw_band(self, image: NDArray[np.uint8], shot: _Shot) -> None:
        box = shot.box(_BAND_MM)
        straight = rays = shot.rays(box, 1.0)
        if spectacles := self._person.spectacles:
            met = spectacles.meet(shot.viewpoint_mm, straight)
            rays = spectacles.bend(met, shot.viewpoint_mm, straight)
        hit = self._face.hit(shot.viewpoint_mm, rays)
        colour = self._skin(hit, shot.light)
        for eye, centre in enumerate(self._person.eye_centres_mm):
            part = _within(shot.box(_EYE_MM + centre * [1, 1, 0]), box)
            colour[part] = self._eye(shot, eye, (colour[part], hit.x[part], hit.y[part], rays[part]))
        if spectacles:
            colour = spectacles.cover(colour, met, straight, shot.light)
        inside = cv2.GaussianBlur(hit.inside.astype(np.float32), (0, 0), 2.0)
        _blend(image, box, _levels(colour, shot), _feather(box) * np.clip(inside * 2 - 1, 0, 1))

    def _eye(self, shot: _Shot, eye: int, seen: tuple[Image, ...]) -> Image:
        """Draw one eye's part of the band, (h, w, 3), from its skin, points on the face and rays at the same pixels."""
        height, width = seen[0].shape[:2]
        if min(height, width) < 2 * _FEATHER_PX:  # at the frame's edge
            return seen[0]
        fine = (width * _EYE_SAMPLES, height * _EYE_SAMPLES)
        skin, x, y, rays = (cv2.resize(array, fine, interpolation=cv2.INTER_LINEAR) for array in seen)
        opening = open_lids(self._person, eye, x, y, shot.optical[eye], shot.aperture)
        eyeball = np.zeros_like(skin)
        part = opening.window(0.4)
        looking = Eyeball(self._person.eye_centres_mm[eye], shot.optical[eye], shot.pupil_mm)
        eyeball[part] = shade_eyeball(self._person, self._iris, looking, shot.viewpoint_mm, rays[part], shot.light)
        colour = cover_lids(self._person, self._lashes[eye], opening, skin, eyeball)
        colour = cv2.resize(colour, (width, height), interpolation=cv2.INTER_AREA)
        weight = _feather((0, 0, width, height))[..., None]
        return seen[0] + weight * (colour - seen[0])

    def _skin(self, hit: Hit, light: Light) -> Image:
        colour, normal = self._face.look_up(hit)
        return colour * light.on(normal)


def _within(box: Box, outer: Box) -> tuple[slice, slice]:
    """Find rows and columns of a box in an image of the outer box."""
    left, top = max(box[0] - outer[0], 0), max(box[1] - outer[1], 0)
    right, bottom = box[0] + box[2] - outer[0], box[1] + box[3] - outer[1]
    return slice(top, min(bottom, outer[3])), slice(left, min(right, outer[2]))


def _feather(box: Box) -> Image:
    """Compute weights that fall to nothing at a box's edges."""
    ramps = [np.minimum(np.arange(n) + 0.5, n - 0.5 - np.arange(n)) / _FEATHER_PX for n in box[2:]]
    across, down = (np.clip(ramp, 0, 1).astype(np.float32) for ramp in ramps)
    return down[:, None] * across


def _levels(colour: Image, shot: _Shot) -> NDArray[np.uint8]:
    return cv2.convertScaleAbs(colour, alpha=float(shot.exposure))


def _blend(image: NDArray[np.uint8], box: Box, colour: NDArray[np.uint8], cover: Image) -> None:
    left, top, width, height = box
    region = image[top : top + height, left : left + width]
    region[:] = cv2.blendLinear(colour, region, cover, 1 - cover)
