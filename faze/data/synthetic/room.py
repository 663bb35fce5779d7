"""The light of a room, and its background."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

_MARGIN_PX = 96
_DIMMEST = 0.65  # scales the minimum of a room's light


@dataclass(frozen=True, eq=False)
class Light:
    """A key light, the screen's glow and ambient light, all in one frame of reference (camera or head)."""

    key: NDArray  # (3,) unit vector toward the key light
    screen: NDArray  # (3,) unit vector toward the screen
    key_rgb: NDArray
    screen_rgb: NDArray
    ambient_rgb: NDArray


@dataclass(frozen=True, eq=False)
class Room:
    """A place at one time: its light, in the camera frame, and its background, RGB and larger than a frame."""

    light: Light
    background: NDArray[np.uint8]
    clothes_rgb: NDArray
    long_hair: bool

    def crop(self, rng: np.random.Generator, width_px: int, height_px: int) -> NDArray[np.uint8]:
        """Crop the background for one frame at a random position, as if the hand that holds the device moved."""
        top, left = rng.integers(0, _MARGIN_PX + 1, 2)
        return self.background[top : top + height_px, left : left + width_px].copy()


def sample_room(rng: np.random.Generator, width_px: int, height_px: int) -> Room:
    """Draw an out-of-focus room lit by a window or a lamp."""
    warmth = rng.normal(0.0, 0.06)
    tint = np.array([1 + warmth, 1.0, 1 - warmth])
    around, above = rng.uniform(-1.15, 1.15), rng.uniform(0.05, 0.95)
    key = np.array([np.sin(around) * np.cos(above), -np.sin(above), -np.cos(around) * np.cos(above)])
    ambient, exposure = rng.uniform(0.38 * _DIMMEST, 0.6), rng.uniform(0.8 * _DIMMEST, 1.08)
    light = Light(
        key=key,
        screen=np.array([0.0, 0.0, -1.0]),
        key_rgb=tint * (exposure - 0.75 * ambient) * rng.uniform(0.55, 0.9),
        screen_rgb=np.array([0.95, 1.0, 1.06]) * rng.uniform(0.08, 0.22),
        ambient_rgb=ambient * (0.5 + 0.5 * tint),
    )
    background = _paint_background(rng, width_px + _MARGIN_PX, height_px + _MARGIN_PX, tint * rng.uniform(0.35, 0.9))
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
