"""Convert stored strips to network images (shrink, equalise the histogram, scale) and back.

OpenCV equalises strips (cvtColor(RGB2YCrCb), equalizeHist on Y, and back). On a GPU, and in the exported graph, integer
torch operations on the whole batch give bit-identical results.

Shapes: B strips of H x W pixels, RGB.
"""

import cv2
import numpy as np
import torch
from torch import Tensor

SCALED = ((2 * torch.arange(256) - 255).float() / 255).numpy()  # the network's input value for each grey level
TOGETHER = 16  # strips per OpenCV call, as many as fit into a core's cache

# OpenCV's fixed-point colour conversion: coefficients times 2^14. Adding one half before the shift rounds the result.
SHIFT = 14
HALF = 1 << (SHIFT - 1)
Y_FROM_RGB = (4899, 9617, 1868)
CR_FROM_R, CB_FROM_B = 11682, 9241
R_FROM_CR, G_FROM_CR, G_FROM_CB, B_FROM_CB = 22987, -11698, -5636, 29049


def shrink(strips: Tensor, height: int, width: int) -> Tensor:
    """Shrink strips (B, H, W, 3), uint8 in host memory, to (B, height, width, 3) by area averaging."""
    batch, stored_height, stored_width, channels = strips.shape
    if (stored_height, stored_width) == (height, width):
        return strips
    tall = strips.numpy().reshape(batch * stored_height, stored_width, channels)
    shrunk = cv2.resize(tall, (width, batch * height), interpolation=cv2.INTER_AREA)
    return torch.from_numpy(shrunk).view(batch, height, width, channels)


def to_network(strips: Tensor) -> Tensor:
    """Equalise strips (B, H, W, 3), uint8, and scale them to the network's input (B, 3, H, W) in [-1, 1]."""
    if strips.device.type != "cpu":
        return to_network_torch(strips)
    batch, height, width, channels = strips.shape
    out, source = np.empty((batch, channels, height, width), np.float32), strips.numpy()
    for first in range(0, batch, TOGETHER):
        some, planes = source[first : first + TOGETHER], out[first : first + TOGETHER]
        luma, cr, cb = cv2.split(cv2.cvtColor(some.reshape(-1, width, channels), cv2.COLOR_RGB2YCrCb))
        for plane in luma.reshape(-1, height, width):
            cv2.equalizeHist(plane, plane)
        equalized = cv2.cvtColor(cv2.merge([luma, cr, cb]), cv2.COLOR_YCrCb2RGB)
        for channel, levels in enumerate(cv2.split(equalized)):
            flat = levels.reshape(len(some), height * width)
            cv2.LUT(flat, SCALED, planes[:, channel].reshape(flat.shape))
    return torch.from_numpy(out)


def to_network_torch(strips: Tensor) -> Tensor:
    """Do the same as `to_network`, but with torch operations, on any device."""
    levels = (2 * _equalize(strips.permute(0, 3, 1, 2).int()) - 255).float()
    return levels / torch.full_like(levels, 255)  # for a scalar, CUDA would multiply by its rounded inverse


def from_network(image: Tensor) -> Tensor:
    """Clip the network's output (B, 3, H, W) to [-1, 1], and convert it to pixels (B, H, W, 3), uint8."""
    return ((image + 1) * 127.5).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


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
    """Equalise luma planes (B, H, W), int32 in 0..255; the darkest level becomes 0, but constant planes are kept."""
    flat = luma.flatten(1).long()
    pixels = flat.shape[1]
    histogram = torch.zeros(flat.shape[0], 256, dtype=torch.int32, device=luma.device)
    histogram.scatter_add_(1, flat, torch.ones_like(flat, dtype=torch.int32))
    cumulative = histogram.cumsum(dim=1, dtype=torch.int32)
    darkest = histogram.gather(1, flat.amin(dim=1, keepdim=True))  # (B, 1) number of pixels at that level
    # One float32 division, to round as OpenCV does; 255.0 / tensor would compute a reciprocal first.
    scale = torch.full_like(darkest, 255, dtype=torch.float32) / (pixels - darkest).clamp(min=1)
    table = ((cumulative - darkest).float() * scale).round().clamp(0, 255).int()  # (B, 256)
    return torch.where(darkest == pixels, luma.flatten(1), table.gather(1, flat)).view_as(luma)
