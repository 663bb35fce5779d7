"""Camera frames of synthetic people: every pixel of the face by its ray through the calibrated camera.

Three layers, coarse to fine: the whole head at half resolution, the band around the eyes at full resolution, and in it
each eye at several samples per pixel. All look at the same surface through the same lens.
"""

from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.compiled_layers import layers_for
from faze.data.synthetic.eyeball import paint_iris
from faze.data.synthetic.layers import Painted
from faze.data.synthetic.lids import draw_lashes
from faze.data.synthetic.person import PIXELS, ROOM, SKIN, SyntheticPerson, random
from faze.data.synthetic.room import Room, crop_noise, draw_body, sample_noise, sample_room, smear
from faze.data.synthetic.scene import Scene
from faze.data.synthetic.setting import Setting
from faze.data.synthetic.shot import Box, Shot, feather
from faze.data.synthetic.surface import build_face
from faze.data.synthetic.texture import Image


class Renderer:
    """Render one person's frames; what is the same in all frames is computed once."""

    def __init__(
        self, seed: int, domain: str, index: int, person: SyntheticPerson, setting: Setting, rooms: int
    ) -> None:
        self._key, self._person, self._setting = (seed, domain, index), person, setting
        rng = random(seed, domain, index, SKIN)
        face, iris = build_face(rng, person), paint_iris(rng, person)
        self._layers = layers_for(person, Painted(face, iris, [draw_lashes(rng, lids.lashes) for lids in person.lids]))
        rng = random(seed, domain, index, ROOM)
        sizes = [(screen.camera.width_px, screen.camera.height_px) for screen in setting.screens]
        width, height = np.max(sizes, axis=0)  # a turned device sees the room upright and lying
        dimmest = setting.picture.dimmest
        self._rooms: list[Room] = [sample_room(rng, width, height, dimmest) for _ in range(rooms)]
        self._noise = sample_noise(rng, width, height)

    def render(self, scene: Scene, row: int, room: int, chance: int | None = None) -> NDArray[np.uint8]:
        """Render one frame: (H, W, 3) uint8 RGB.

        Args:
            scene: the person's frames.
            row: which of them.
            room: where it is taken.
            chance: the frame whose noise, exposure, pupil and sharpness it has; its own, if not said.
        """
        rng = random(*self._key, PIXELS, row if chance is None else chance)
        place, screen = self._rooms[room], self._setting.screens[scene.screen[row]]
        rotation, origin = scene.rotation[row], scene.origin_mm[row]
        to_screen = screen.middle_mm - origin
        light = replace(place.light, screen=to_screen / np.linalg.norm(to_screen)).turned(rotation.T)
        exposure = np.float32(255 * np.clip(rng.normal(1.0, 0.05), 0.85, 1.15))
        image = place.crop(rng, screen.camera.width_px, screen.camera.height_px)
        pupil_mm = self._person.pupil_mm * float(np.clip(rng.normal(1.0, 0.06), 0.8, 1.2))
        eyes = scene.optical_in_head[row], float(scene.aperture[row]), pupil_mm
        shot = Shot(screen.camera, rotation, origin, light, exposure, *eyes)
        draw_body(image, place, self._person, shot.camera, rotation, origin)
        head, band, of_eyes = shot.boxes(self._person)
        of_head, of_band = self._layers.paint(shot, head, band, of_eyes)
        self._draw_head(image, head, *of_head)
        self._draw_band(image, band, *of_band)
        left, top, width, height = head
        region = image[top : top + height, left : left + width]
        picture = self._setting.picture
        cv2.GaussianBlur(region, (0, 0), float(rng.uniform(*picture.blur_px)), dst=region)
        if picture.moved and rng.random() < picture.moved:
            smear(rng, region)
        self._layers.add_noise(image, crop_noise(rng, self._noise, image.shape))
        return image

    def _draw_head(self, image: NDArray[np.uint8], box: Box, levels: NDArray[np.uint8], inside: Image) -> None:
        # Only the face's side of the silhouette is drawn, since beyond it the colours mean nothing.
        cover = cv2.GaussianBlur(inside, (0, 0), 1.0) * np.float32(2) - np.float32(1)
        levels, cover = (cv2.resize(array, box[2:], interpolation=cv2.INTER_LINEAR) for array in (levels, cover))
        self._layers.blend(image, box, levels, cover)

    def _draw_band(self, image: NDArray[np.uint8], box: Box, levels: NDArray[np.uint8], inside: Image) -> None:
        cover = feather(*box[2:])
        if inside.min() < 1:
            cover *= np.clip(cv2.GaussianBlur(inside, (0, 0), 2.0) * 2 - 1, 0, 1)
        self._layers.blend(image, box, levels, cover)
