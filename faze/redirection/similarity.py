"""How alike two pictures are: L1, PSNR, SSIM (Wang et al. 2004) and MS-SSIM (Wang et al. 2003), per picture.

On a scale where black is 0 and white 1, except L1, whose scale is -1 to 1 as everywhere in faze. A strip is too low for
the usual five scales of MS-SSIM with a kernel of 11 pixels: it has three, with the first three of the published weights
made to sum to 1, and a kernel that fits the lowest scale. torchmetrics has both, as convolutions that take ten times as
long; the tests hold ours against it.
"""

import functools
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

METRICS = ("l1", "psnr", "ssim", "ms_ssim")
_BETAS = (0.0448, 0.2856, 0.3001)  # of the first three scales, as published
BETAS = tuple(beta / sum(_BETAS) for beta in _BETAS)
K1, K2 = 0.01, 0.03
# Least height -> standard deviation and side of the Gaussian window, px, that fits at a quarter of it.
WINDOWS = {44: (1.5, 11), 28: (0.8, 7), 20: (0.5, 5)}


@torch.inference_mode()
def similarity(pictures: Tensor, real: Tensor) -> Mapping[str, Tensor]:
    """Compare pictures with real ones, (N, 3, H, W) in [-1, 1]; what lies beyond is clipped, but not for L1.

    Returns:
        METRICS -> (N,); SSIM and MS-SSIM of pictures too low for any window are nan.
    """
    a, b = ((images.clamp(-1, 1) + 1) / 2 for images in (pictures, real))
    squares = (a - b).square().mean((1, 2, 3))
    found = {"l1": (pictures - real).abs().mean((1, 2, 3)), "psnr": -10 * squares.clamp(min=1e-10).log10()}
    window = next((WINDOWS[least] for least in WINDOWS if a.shape[2] >= least), None)
    if window is None:
        return found | dict.fromkeys(("ssim", "ms_ssim"), torch.full_like(squares, torch.nan))
    product = torch.ones_like(squares)
    for scale, beta in enumerate(BETAS):
        whole, contrast = _structure(a, b, *window)
        found.setdefault("ssim", whole)  # of the first scale
        product = product * (whole if scale == len(BETAS) - 1 else contrast).relu() ** beta
        a, b = F.avg_pool2d(a, 2), F.avg_pool2d(b, 2)
    return found | {"ms_ssim": product}


def _structure(a: Tensor, b: Tensor, sigma: float, side: int) -> tuple[Tensor, Tensor]:
    """Compute SSIM and its part of contrast and structure, means over pixels, (N,) each.

    As torchmetrics does: SSIM counts pixels at the edge, where the picture is reflected, its part does not.
    """
    down, across = (_blurring(size, sigma, side).to(a) for size in a.shape[2:])
    maps = down @ torch.stack([a, b, a * a, b * b, a * b]) @ across.T  # two products: far faster than a convolution
    mean_a, mean_b, square_a, square_b, both = maps
    variances = (square_a - mean_a**2).clamp(min=0) + (square_b - mean_b**2).clamp(min=0)
    contrast = (2 * (both - mean_a * mean_b) + K2**2) / (variances + K2**2)
    whole = contrast * (2 * mean_a * mean_b + K1**2) / (mean_a**2 + mean_b**2 + K1**2)
    edge = side // 2
    return whole.mean((1, 2, 3)), contrast[..., edge:-edge, edge:-edge].mean((1, 2, 3))


@functools.cache
def _blurring(size: int, sigma: float, side: int) -> Tensor:
    """Make the (size, size) matrix that blurs a column by a Gaussian window; beyond its ends it is reflected."""
    weights = torch.exp(-0.5 * ((torch.arange(side) - side // 2) / sigma) ** 2)
    reach = side // 2
    place = F.pad(torch.eye(size)[None], (reach, reach), mode="reflect")[0]  # (size, size + 2 reach): of which pixel
    return torch.stack([place[:, row : row + side] @ (weights / weights.sum()) for row in range(size)])
