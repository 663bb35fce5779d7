"""Render camera frames: a room, a person's body in flat shapes, the ray-traced head, and sensor noise.

The head is rendered at half resolution, the eye band at full resolution, and each eye with several samples per pixel.
"""

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.face import draw_line
from faze.data.synthetic.kernel import Layer, Light, Painter, Shot, blend
from faze.data.synthetic.layouts import PersonFrames
from faze.data.synthetic.person import PIXELS, ROOM, SKIN, SyntheticPerson

ROOMS = 3  # rooms per person, each on a different day
_NOISE_MARGIN_PX, _ROOM_MARGIN_PX = 64, 96


@dataclass(frozen=True, eq=False)
class Room:
    """A room at one time, with its light (in the camera frame) and background (RGB, larger than a frame)."""

    light: Light
    background: NDArray[np.uint8]
    clothes_rgb: NDArray
    long_hair: bool


def sample_room(rng: np.random.Generator, width_px: int, height_px: int) -> Room:
    """Sample an out-of-focus room lit by a window or a lamp."""
    warmth = rng.normal(0.0, 0.06)
    tint = np.array([1 + warmth, 1.0, 1 - warmth])
    around, above = rng.uniform(-1.15, 1.15), rng.uniform(0.05, 0.95)
    key = np.array([np.sin(around) * np.cos(above), -np.sin(above), -np.cos(around) * np.cos(above)])
    ambient, exposure = rng.uniform(0.247, 0.6), rng.uniform(0.52, 1.08)
    light = Light(
        key=key,
        screen=np.array([0.0, 0.0, -1.0]),
        key_rgb=tint * (exposure - 0.75 * ambient) * rng.uniform(0.55, 0.9),
        screen_rgb=np.array([0.95, 1.0, 1.06]) * rng.uniform(0.08, 0.22),
        ambient_rgb=ambient * (0.5 + 0.5 * tint),
    )
    size = width_px + _ROOM_MARGIN_PX, height_px + _ROOM_MARGIN_PX
    background = _paint_background(rng, *size, tint * rng.uniform(0.35, 0.9))
    return Room(light, background, rng.uniform(0.05, 0.75, 3) * rng.uniform(0.4, 1.0), bool(rng.random() < 0.4))


def _paint_background(rng: np.random.Generator, width: int, height: int, wall: NDArray) -> NDArray[np.uint8]:
    small = np.array([height // 4, width // 4])
    image = np.empty((*small, 3), np.float32)
    image[:] = wall * rng.uniform(0.85, 1.0, 3)
    image *= np.linspace(rng.uniform(0.75, 1.05), rng.uniform(0.75, 1.05), small[1], dtype=np.float32)[None, :, None]
    for _ in range(rng.integers(4, 12)):
        size = rng.uniform(0.05, 0.5, 2) * small
        corner = rng.uniform(-0.2, 1.0, 2) * small
        rgb = np.clip(rng.uniform(0.1, 1.1) * wall * rng.normal(1.0, 0.08, 3), 0.02, 1.0)
        a, b = np.round([corner[::-1], (corner + size)[::-1]]).astype(int).tolist()
        cv2.rectangle(image, a, b, rgb.tolist(), -1)
    image = cv2.GaussianBlur(image, (0, 0), float(rng.uniform(1.5, 5.0)))
    image = cv2.resize(image, (width, height), interpolation=cv2.INTER_CUBIC)
    image *= 255
    return np.clip(image, 0, 255, out=image).astype(np.uint8)


def draw_body(image: NDArray[np.uint8], room: Room, person: SyntheticPerson, shot: Shot) -> None:
    """Draw the rest of the person as flat shapes: ears, neck, shoulders, and the hair behind the face."""
    camera, rotation, origin_mm = shot.camera, shot.rotation, shot.origin_mm
    head = camera.project(origin_mm)
    px_per_mm = camera.parameters[0] / (origin_mm[2] + 80)  # at the depth of the parts behind the face
    lit = room.light.ambient_rgb + 0.4 * room.light.key_rgb
    skin = np.clip(255 * 0.62 * person.skin * lit, 0, 255)
    hair = np.clip(255 * 0.85 * person.hair * lit, 0, 255)
    roll_deg = float(np.degrees(np.arctan2(rotation[1, 0], rotation[0, 0])))

    def ellipse(centre: NDArray, radii_mm: tuple[float, float], turn_deg: float, rgb: NDArray) -> None:
        at, radii = np.round(centre * 16).astype(int).tolist(), [round(r * px_per_mm * 16) for r in radii_mm]
        cv2.ellipse(image, at, radii, turn_deg, 0, 360, rgb.tolist(), -1, cv2.LINE_AA, 4)

    places = [(0, 40, 95), (0, -32, 85), (-81, 14, 95), (81, 14, 95)]
    behind, top, *ears = camera.project(np.array(places) @ rotation.T + origin_mm)
    if room.long_hair:
        ellipse(behind, (96, 145), roll_deg, 0.8 * hair)
    ellipse(head + np.array([0, 365]) * px_per_mm, (265, 235), 0, np.clip(255 * room.clothes_rgb * lit, 0, 255))
    neck = np.array([[-47, 60], [47, 60], [54, 180], [-54, 180]]) * px_per_mm + head
    cv2.fillConvexPoly(image, np.round(neck * 16).astype(np.int32), (0.85 * skin).tolist(), cv2.LINE_AA, 4)
    for side, ear in zip((-1, 1), ears, strict=True):
        ellipse(ear, (11, 25), roll_deg + 8 * side, skin)
    ellipse(top, (82, 84), roll_deg, hair)


def sample_noise(rng: np.random.Generator, width_px: int, height_px: int) -> NDArray[np.uint8]:
    """Sample sensor noise (h, w, 3) centred on 128, larger than a frame so that each frame can use a random crop."""
    shape = (height_px + _NOISE_MARGIN_PX, width_px + _NOISE_MARGIN_PX)
    grey = rng.standard_normal(shape, np.float32)
    coloured = rng.standard_normal((*shape, 3), np.float32)
    grey *= np.float32(rng.uniform(0.8, 2.0))
    coloured *= np.float32(rng.uniform(0.3, 0.8))
    coloured += grey[..., None]
    return cv2.convertScaleAbs(cv2.GaussianBlur(coloured, (0, 0), 0.6), alpha=1.6, beta=128)


def smear(rng: np.random.Generator, image: NDArray[np.uint8]) -> None:
    """Blur an image in place along a line of a few pixels, as the motion of a hand-held camera does."""
    length, angle = rng.uniform(2.0, 5.0), rng.uniform(0.0, np.pi)
    kernel = np.zeros((9, 9), np.uint8)
    half = 0.5 * length * np.array([np.cos(angle), np.sin(angle)])
    draw_line(kernel, 4 - half, 4 + half, 255)
    image[:] = cv2.filter2D(image, -1, kernel / np.float32(kernel.sum()))


class Renderer:
    """A renderer of one person's frames that computes their shared parts only once."""

    def __init__(self, frames: PersonFrames, seed: int) -> None:
        self._frames, self._seed = frames, seed
        self._painter = Painter(frames.role.random(seed, SKIN), frames.person)
        rng = frames.role.random(seed, ROOM)
        sizes = [(screen.camera.width_px, screen.camera.height_px) for screen in frames.setting.screens]
        width, height = np.max(sizes, axis=0)  # for upright and landscape frames
        self._rooms = [sample_room(rng, width, height) for _ in range(ROOMS)]
        self._noise = sample_noise(rng, width, height)

    def render(self, row: int) -> NDArray[np.uint8]:
        """Render frame `row` as (H, W, 3) uint8 RGB."""
        person, setting, scene = self._frames.person, self._frames.setting, self._frames.scene
        rng = self._frames.role.random(self._seed, PIXELS, row)
        place, screen = self._rooms[self._frames.rooms[row]], setting.screens[scene.screen[row]]
        rotation, origin = scene.rotation[row], scene.origin_mm[row]
        exposure = 255 * np.clip(rng.normal(1.0, 0.05), 0.85, 1.15)
        height, width = screen.camera.height_px, screen.camera.width_px
        # The hand that holds the device moves, so each frame shows a different part of the room.
        top, left = rng.integers(0, _ROOM_MARGIN_PX + 1, 2)
        image = place.background[top : top + height, left : left + width].copy()
        pupil_mm = person.pupil_mm * np.clip(rng.normal(1.0, 0.06), 0.8, 1.2)
        to_screen = screen.middle_mm - origin
        turned = {"key": place.light.key @ rotation, "screen": to_screen / np.linalg.norm(to_screen) @ rotation}
        eyes = scene.optical_in_head[row], scene.aperture[row], pupil_mm
        shot = Shot(screen.camera, rotation, origin, replace(place.light, **turned), exposure, *eyes)
        draw_body(image, place, person, shot)
        head, band = self._painter.paint(shot)
        region = _draw(image, head, 1.0, feathered=False)
        _draw(image, band, 2.0, feathered=True)
        cv2.GaussianBlur(region, (0, 0), rng.uniform(*setting.blur_px), dst=region)
        if rng.random() < setting.moved:
            smear(rng, region)
        top, left = rng.integers(0, _NOISE_MARGIN_PX, 2)
        noise = self._noise[top : top + height, left : left + width]
        return cv2.addWeighted(image, 1, noise, 1, -128, dst=image)


def _draw(image: NDArray[np.uint8], layer: Layer, softness_px: float, feathered: bool) -> NDArray[np.uint8]:
    """Draw a layer inside the head's silhouette (the layer is undefined outside), and return the region."""
    (left, top, *size), levels, inside = layer
    cover = cv2.GaussianBlur(inside, (0, 0), softness_px) * 2 - 1 if inside.min() < 1 else inside
    region = image[top : top + size[1], left : left + size[0]]
    blend(region, cv2.resize(levels, size), cv2.resize(cover, size), feathered)
    return region
