"""Convert stored strips to network images and back: shrinking, histogram equalisation, scaling, on any device.

The equalisation uses only integers and is bit-identical to OpenCV's (cvtColor(RGB2YCrCb), equalizeHist of Y, and back).
On a CPU, OpenCV is used; on other devices, torch operations on the whole batch.

Shapes: B strips of H x W pixels, RGB.
"""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.errors import UserError

GRAIN = 4  # fewest items for which a thread pays off


def spread(work: Callable[[int, int], None], count: int, threads: int) -> None:
    """Call work(first, stop) on parts of 0..count in parallel.

    Args:
        work: Function that rarely holds Python's global lock.
        count: Number of items.
        threads: Number of threads, including the caller's own.
    """
    parts = min(threads, count // GRAIN)
    if parts < 2:
        work(0, count)
        return
    bounds = [count * part // parts for part in range(parts + 1)]
    pool = _pool(os.getpid(), parts - 1)
    others = [pool.submit(work, *bounds[part : part + 2]) for part in range(1, parts)]
    try:
        work(*bounds[:2])
    finally:  # no thread may write into the caller's memory after this function returns
        wait(others)
    for other in others:
        other.result()


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return this process's threads; threads do not survive a fork, so each process needs its own."""
    return ThreadPoolExecutor(threads, "faze-rows")


# OpenCV's fixed-point colour conversion: coefficients times 2^14; adding a half before the shift rounds.
SHIFT = 14
HALF = 1 << (SHIFT - 1)
Y_FROM_RGB = (4899, 9617, 1868)
CR_FROM_R, CB_FROM_B = 11682, 9241
R_FROM_CR, G_FROM_CR, G_FROM_CB, B_FROM_CB = 22987, -11698, -5636, 29049

SCALED = ((2 * torch.arange(256) - 255).float() / 255).numpy()  # the network's input value of each level
# Strips per call of OpenCV: they fit into the core's cache, and threads rarely wait for Python's lock.
TOGETHER = 4


def shrink(strips: Tensor, height: int, width: int) -> Tensor:
    """Shrink strips to the network's size by area averaging.

    Args:
        strips: (B, H, W, 3) uint8.
        height: Height of the result, px.
        width: Width of the result, px; H / height = W / width is an integer.

    Returns:
        (B, height, width, 3) uint8.
    """
    if strips.shape[1:3] == (height, width):
        return strips
    if strips.device.type == "cpu" and strips.shape[1:3] == (2 * height, 2 * width):
        return _halve(strips.contiguous().numpy())
    planes = _shrink(strips.permute(0, 3, 1, 2).int(), height, width)
    return planes.to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def to_network(strips: Tensor, height: int, width: int) -> Tensor:
    """Shrink strips by area averaging, equalise them, and scale them to the network's input.

    Args:
        strips: (B, H, W, 3) uint8.
        height: Height of the result, px.
        width: Width of the result, px; H / height = W / width is an integer.

    Returns:
        (B, 3, height, width) float32 in [-1, 1].

    Raises:
        UserError: The strips cannot be shrunk to this size.
    """
    if strips.device.type == "cpu":
        return _to_network_opencv(shrink(strips, height, width))
    return to_network_torch(strips, height, width)


def to_network_torch(strips: Tensor, height: int, width: int) -> Tensor:
    """Do the same as `to_network` with torch operations, on any device."""
    planes = _equalize(_shrink(strips.permute(0, 3, 1, 2).int(), height, width))
    levels = (2 * planes - 255).float()
    return levels / torch.full_like(levels, 255)  # for a scalar, CUDA would multiply by its rounded inverse


def _to_network_opencv(strips: Tensor) -> Tensor:
    """Equalise uint8 strips (B, H, W, 3) on a CPU, and convert them to float32 network input (B, 3, H, W)."""
    batch, height, width, channels = strips.shape
    out = np.empty((batch, channels, height, width), np.float32)
    source = strips.contiguous().numpy()

    def part(first: int, stop: int) -> None:
        picture = np.empty((TOGETHER * height, width, channels), np.uint8)
        levels = np.empty((channels, TOGETHER * height, width), np.uint8)
        for start in range(first, stop, TOGETHER):
            rows = slice(0, height * (min(start + TOGETHER, stop) - start))
            some = slice(start, min(start + TOGETHER, stop))
            _levels_opencv(source[some], picture[rows], levels[:, rows])
            for channel in range(channels):
                flat = levels[channel, rows].reshape(-1, height * width)
                cv2.LUT(flat, SCALED, out[some, channel].reshape(flat.shape))

    spread(part, batch, torch.get_num_threads())
    return torch.from_numpy(out)


def _levels_opencv(strips: NDArray[np.uint8], picture: NDArray[np.uint8], levels: NDArray[np.uint8]) -> None:
    """Equalise strips (n, H, W, 3) into levels (3, n H, W); picture (n H, W, 3) is scratch memory."""
    cv2.cvtColor(strips.reshape(picture.shape), cv2.COLOR_RGB2YCrCb, picture)
    for luma in cv2.extractChannel(picture, 0, levels[0]).reshape(strips.shape[:3]):
        cv2.equalizeHist(luma, luma)
    cv2.insertChannel(levels[0], picture, 0)
    cv2.cvtColor(picture, cv2.COLOR_YCrCb2RGB, picture)
    cv2.split(picture, list(levels))


def from_network(image: Tensor) -> Tensor:
    """Scale the network's output back to pixels; values outside [-1, 1] are clipped.

    Args:
        image: (B, 3, H, W).

    Returns:
        (B, H, W, 3) uint8.
    """
    return ((image + 1) * 127.5).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def _halve(strips: NDArray[np.uint8]) -> Tensor:
    """Halve the size of strips, (B, 2 h, 2 w, 3) -> (B, h, w, 3); only for this factor does OpenCV round as we do."""
    batch, height, width, channels = strips.shape
    halves = np.empty((batch, height // 2, width // 2, channels), np.uint8)

    def part(first: int, stop: int) -> None:
        rows = strips[first:stop].reshape(-1, width, channels)  # one tall picture
        into = halves[first:stop].reshape(-1, width // 2, channels)
        cv2.resize(rows, (width // 2, len(rows) // 2), into, interpolation=cv2.INTER_AREA)

    spread(part, batch, torch.get_num_threads())
    return torch.from_numpy(halves)


def shrink_factor(stored: tuple[int, int], size: tuple[int, int]) -> int:
    """Compute the factor by which stored strips are larger than the network's images.

    Raises:
        UserError: The factor is not an integer, or differs between height and width.
    """
    factor = stored[0] // size[0]
    if stored != (factor * size[0], factor * size[1]):
        raise UserError(
            f"strips of {stored[0]} x {stored[1]} px cannot be shrunk to model.image_height_px {size[0]} x "
            f"model.image_width_px {size[1]}: choose both smaller by the same integer factor"
        )
    return factor


def _shrink(planes: Tensor, height: int, width: int) -> Tensor:
    """Compute rounded means over squares of pixels, (B, 3, H, W) int32 -> (B, 3, height, width) int32."""
    batch, channels, full_height, full_width = planes.shape
    factor = shrink_factor((full_height, full_width), (height, width))
    if factor == 1:
        return planes
    squares = planes.reshape(batch, channels, height, factor, width, factor)
    return (squares.sum(dim=(3, 5), dtype=torch.int32) + factor * factor // 2) // (factor * factor)


def _equalize(planes: Tensor) -> Tensor:
    """Equalise RGB images (B, 3, H, W), int32 in 0..255."""
    red, green, blue = planes.unbind(dim=1)
    luma = (red * Y_FROM_RGB[0] + green * Y_FROM_RGB[1] + blue * Y_FROM_RGB[2] + HALF) >> SHIFT
    cr = (((red - luma) * CR_FROM_R + HALF) >> SHIFT).clamp(-128, 127)
    cb = (((blue - luma) * CB_FROM_B + HALF) >> SHIFT).clamp(-128, 127)
    luma = _equalize_luma(luma)
    red = luma + ((cr * R_FROM_CR + HALF) >> SHIFT)
    green = luma + ((cr * G_FROM_CR + cb * G_FROM_CB + HALF) >> SHIFT)
    blue = luma + ((cb * B_FROM_CB + HALF) >> SHIFT)
    return torch.stack([red, green, blue], dim=1).clamp(0, 255)


def _equalize_luma(luma: Tensor) -> Tensor:
    """Equalise luma planes (B, H, W), int32 in 0..255; the darkest level becomes 0; constant planes are unchanged."""
    flat = luma.flatten(1).long()
    pixels = flat.shape[1]
    histogram = torch.zeros(flat.shape[0], 256, dtype=torch.int32, device=luma.device)
    histogram.scatter_add_(1, flat, torch.ones_like(flat, dtype=torch.int32))
    cumulative = histogram.cumsum(dim=1, dtype=torch.int32)
    darkest = histogram.gather(1, flat.amin(dim=1, keepdim=True))  # (B, 1) pixels of that level
    # One float32 division, as in OpenCV, because of the rounding; 255.0 / tensor would compute a reciprocal first.
    scale = torch.full_like(darkest, 255, dtype=torch.float32) / (pixels - darkest).clamp(min=1)
    table = ((cumulative - darkest).float() * scale).round().clamp(0, 255).int()  # (B, 256)
    levels = torch.arange(256, dtype=torch.int32, device=luma.device)
    table = torch.where(darkest == pixels, levels, table)
    return table.gather(1, flat).view_as(luma)
