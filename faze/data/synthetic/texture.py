"""Small tools of the painters: smooth steps, bumps, noise."""

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]  # (h, w) or (h, w, 3) RGB, 0..1


def ramp(value: Image) -> Image:
    """Rise smoothly from 0 at 0 to 1 at 1."""
    value = np.clip(value, 0, 1)
    return value * value * (3 - 2 * value)


def step(value: Image, width: float) -> Image:
    """Rise smoothly around 0: 0 below -width/2, 1 above width/2."""
    return ramp(value / width + 0.5)


def bump(x: Image, y: Image, at: tuple[float, float], size: tuple[float, float]) -> Image:
    """Compute a Gaussian hill of height 1; `size` is where it has fallen to 1/e."""
    return np.exp(-(((x - at[0]) / size[0]) ** 2) - ((y - at[1]) / size[1]) ** 2)


def smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], size: float) -> Image:
    """Draw noise of about unit deviation whose features are `size` samples wide."""
    rows, columns = (max(4, int(n / size) + 2) for n in shape)
    coarse = rng.standard_normal((rows, columns), np.float32)
    return cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC)


def draw_line(mask: NDArray[np.uint8], start: NDArray, end: NDArray, value: int, thickness: int = 1) -> None:
    """Draw an antialiased line between points (x, y) in fractions of a sample."""
    a, b = np.round(np.array([start, end]) * 16).astype(int).tolist()
    cv2.line(mask, a, b, value, thickness, cv2.LINE_AA, 4)


def padded(image: NDArray) -> Image:
    """Pad (h, w, 3) to (h, w, 4) float32: OpenCV looks up four channels faster than three."""
    return np.dstack([image, np.zeros(image.shape[:2])]).astype(np.float32)
