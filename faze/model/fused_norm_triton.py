"""InstanceNorm -> LeakyReLU on a GPU: a forward and a backward Triton kernel. Imported only if Triton is installed.

Each program processes all pixels of some channels of one image, tile by tile. Tensors are (B, C, N) with any strides.
Tiles extend along pixels if pixels are adjacent in memory, and otherwise along channels (channels-last). Each kernel
reads its channels twice, for the sums and for the result. Channels that fit in the cache are read from memory once.
Means and squared deviations of tiles are combined in a way that avoids cancellation (Chan et al. 1979).

Sums are float32, or float64 for float64 tensors. The kernels have been run on an H100 and, in Triton's interpreter, on
a CPU. They have been compiled for compute capabilities 7.0 and 9.0.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from faze.model.norm_act import sum_dtype

TILE = 2048  # elements that a program processes at once: 16 for each of its 128 threads
MOST_CHANNELS = 32  # in a channels-last tile: 64 bytes in half precision, which are two memory sectors

WIDE = {torch.float32: tl.float32, torch.float64: tl.float64}


def forward(x: Tensor, eps: float, slope: float) -> tuple[Tensor, Tensor]:
    """Normalise and activate x (B, C, N); also return 1 / standard deviation (B, C, 1) with dtype `sum_dtype(x)`."""
    y = torch.empty_like(x)
    scale = x.new_empty((*x.shape[:2], 1), dtype=sum_dtype(x))
    grid, tile = _tiles(x)
    strides = *x.stride(), *y.stride()
    with torch.cuda.device_of(x):
        _forward_kernel[grid](x, y, scale, *x.shape[1:], *strides, EPS=eps, SLOPE=slope, WIDE=WIDE[scale.dtype], **tile)
    return y, scale


def backward(grad: Tensor, y: Tensor, scale: Tensor, slope: float) -> Tensor:
    """Return the gradient with respect to x, given the one with respect to y. Tensors except scale are (B, C, N)."""
    by_x = torch.empty_like(y)
    grid, tile = _tiles(y)
    strides = *grad.stride(), *y.stride(), *by_x.stride()
    with torch.cuda.device_of(y):
        _backward_kernel[grid](
            grad, y, scale, by_x, *y.shape[1:], *strides, SLOPE=slope, WIDE=WIDE[scale.dtype], **tile
        )
    return by_x


def _tiles(x: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """Return the grid of programs (images, groups of channels) and the size of their tiles."""
    images, channels, pixels = x.shape
    _, by_channel, by_pixel = x.stride()
    if by_channel < by_pixel:
        wide = min(triton.next_power_of_2(channels), MOST_CHANNELS)
        tile = {"CHANNELS": wide, "PIXELS": min(triton.next_power_of_2(pixels), TILE // wide)}
    else:
        long = min(triton.next_power_of_2(pixels), TILE)
        tile = {"CHANNELS": min(triton.next_power_of_2(channels), TILE // long), "PIXELS": long}
    return (images, triton.cdiv(channels, tile["CHANNELS"])), tile


# Triton passes each stride and constant as a separate parameter.
@triton.jit
def _forward_kernel(
    x, y, scale, channels, pixels,
    x_image, x_channel, x_pixel, y_image, y_channel, y_pixel,
    EPS: tl.constexpr, SLOPE: tl.constexpr, WIDE: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)  # offsets in a large batch exceed 32 bits
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[:, None]
    x += image * x_image + channel * x_channel
    y += image * y_image + channel * y_channel

    seen = tl.full((), 0, WIDE)
    mean = tl.zeros([CHANNELS, 1], WIDE)
    squares = tl.zeros([CHANNELS, 1], WIDE)  # sum of squared deviations
    for first in range(0, pixels, PIXELS):
        pixel = first + tl.arange(0, PIXELS)[None, :]
        inside = (channel < channels) & (pixel < pixels)
        value = tl.load(x + pixel * x_pixel, mask=inside, other=0.0).to(WIDE)
        count = tl.minimum(pixels - first, PIXELS).to(WIDE)
        tile_mean = tl.sum(value, axis=1, keep_dims=True) / count
        deviation = tl.where(inside, value - tile_mean, 0.0)
        apart = tile_mean - mean
        share = count / (seen + count)
        squares += tl.sum(deviation * deviation, axis=1, keep_dims=True) + apart * apart * (seen * share)
        mean += apart * share
        seen += count

    inverse = 1.0 / tl.sqrt(squares / seen + EPS)
    tl.store(scale + image * channels + channel, inverse, mask=channel < channels)
    for first in range(0, pixels, PIXELS):
        pixel = first + tl.arange(0, PIXELS)[None, :]
        inside = (channel < channels) & (pixel < pixels)
        normal = (tl.load(x + pixel * x_pixel, mask=inside, other=0.0).to(WIDE) - mean) * inverse
        active = tl.where(normal > 0, normal, normal * SLOPE)
        tl.store(y + pixel * y_pixel, active.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward_kernel(
    grad, y, scale, by_x, channels, pixels,
    g_image, g_channel, g_pixel, y_image, y_channel, y_pixel, x_image, x_channel, x_pixel,
    SLOPE: tl.constexpr, WIDE: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[:, None]
    grad += image * g_image + channel * g_channel
    y += image * y_image + channel * y_channel
    by_x += image * x_image + channel * x_channel

    total = tl.zeros([CHANNELS, PIXELS], WIDE)
    along = tl.zeros([CHANNELS, PIXELS], WIDE)
    for first in range(0, pixels, PIXELS):
        pixel = first + tl.arange(0, PIXELS)[None, :]
        inside = (channel < channels) & (pixel < pixels)
        normal, by_normal = _undo(grad + pixel * g_pixel, y + pixel * y_pixel, inside, SLOPE, WIDE)
        total += by_normal
        along += by_normal * normal
    mean = tl.sum(total, axis=1, keep_dims=True) / pixels
    slant = tl.sum(along, axis=1, keep_dims=True) / pixels

    inverse = tl.load(scale + image * channels + channel, mask=channel < channels, other=0.0)
    for first in range(0, pixels, PIXELS):
        pixel = first + tl.arange(0, PIXELS)[None, :]
        inside = (channel < channels) & (pixel < pixels)
        normal, by_normal = _undo(grad + pixel * g_pixel, y + pixel * y_pixel, inside, SLOPE, WIDE)
        value = (by_normal - mean - normal * slant) * inverse
        tl.store(by_x + pixel * x_pixel, value.to(by_x.dtype.element_ty), mask=inside)


@triton.jit
def _undo(grad, y, inside, SLOPE: tl.constexpr, WIDE: tl.constexpr):
    """Return the values before LeakyReLU and the gradient with respect to them; both are 0 where `inside` is false."""
    active = tl.load(y, mask=inside, other=0.0).to(WIDE)
    by_active = tl.load(grad, mask=inside, other=0.0).to(WIDE)
    positive = active > 0
    return tl.where(positive, active, active / SLOPE), tl.where(positive, by_active, by_active * SLOPE)
