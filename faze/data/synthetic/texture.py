"""Maps that are painted once per person, and tools for painting: smooth steps, bumps, noise, lines."""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]  # (h, w) or (h, w, 3) RGB, 0..1


class Map(NamedTuple):
    """Samples over a plane."""

    samples: Image  # (rows, columns) or (rows, columns, 4): three channels and padding
    left: float  # position of the first sample
    top: float
    across: float  # samples per unit along x
    down: float


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
    """Pad (h, w, 3) to (h, w, 4) float32, so that kernel.c can load a sample at once."""
    return np.pad(image.astype(np.float32), ((0, 0), (0, 0), (0, 1)))
