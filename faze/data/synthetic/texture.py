"""Tools for drawing (smooth steps, bumps, noise), and the lights on face, eyes and spectacles."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]  # (h, w) or (h, w, 3) RGB, 0..1


def ramp(value: Image) -> Image:
    """Compute a smooth ramp from 0 at 0 to 1 at 1."""
    value = np.clip(value, 0, 1)
    return value * value * (3 - 2 * value)


def step(value: Image, width: float) -> Image:
    """Compute a smooth step around 0: 0 below -width/2, 1 above width/2."""
    return ramp(value / width + 0.5)


def bump(x: Image, y: Image, at: tuple[float, float], size: tuple[float, float]) -> Image:
    """Compute a Gaussian bump of height 1, which falls to 1/e at a distance of `size`."""
    return np.exp(-(((x - at[0]) / size[0]) ** 2) - ((y - at[1]) / size[1]) ** 2)


def smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], size: float) -> Image:
    """Draw noise with a standard deviation of about 1 and features `size` samples wide."""
    rows, columns = (max(4, int(n / size) + 2) for n in shape)
    coarse = rng.standard_normal((rows, columns), np.float32)
    return cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC)


def draw_line(mask: NDArray[np.uint8], start: NDArray, end: NDArray, value: int, thickness: int = 1) -> None:
    """Draw an antialiased line between points (x, y) with sub-sample precision."""
    a, b = np.round(np.array([start, end]) * 16).astype(int).tolist()
    cv2.line(mask, a, b, value, thickness, cv2.LINE_AA, 4)


def padded(image: NDArray) -> Image:
    """Pad (h, w, 3) to (h, w, 4) float32, since OpenCV remaps four channels faster than three."""
    return np.dstack([image, np.zeros(image.shape[:2])]).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Light:
    """A key light, ambient light and the screen's glow, all in one frame of reference (camera or head)."""

    key: NDArray  # (3,) unit vector toward the key light
    key_rgb: NDArray
    screen: NDArray  # (3,) unit vector toward the screen
    screen_rgb: NDArray
    ambient_rgb: NDArray

    def on(self, normal: Image, wrap: float = 0.25) -> Image:
        """Compute the light on surfaces: (h, w, 3) unit normals -> (h, w, 3) RGB."""
        sources = np.stack([self.key, self.screen], axis=1).astype(np.float32)
        rgb = np.stack([self.key_rgb, self.screen_rgb]).astype(np.float32) / np.float32(1 + wrap)
        cosine = np.maximum(normal @ sources + np.float32(wrap), 0)
        return cosine @ rgb + self.ambient_rgb.astype(np.float32)

    def turned(self, rotation: NDArray) -> "Light":
        """Express the light in another frame of reference, to which the rotation (3, 3) maps vectors."""
        return Light(rotation @ self.key, self.key_rgb, rotation @ self.screen, self.screen_rgb, self.ambient_rgb)

    @property
    def mirrored(self) -> list[tuple[NDArray, float, float]]:
        """Lights that the cornea reflects: direction, angular half-width on the cornea (rad), brightness."""
        return [(self.key, 0.07, 1.8 * float(self.key_rgb.mean())), (self.screen, 0.09, 0.5)]
