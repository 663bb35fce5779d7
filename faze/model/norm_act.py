"""InstanceNorm -> LeakyReLU, before every convolution of DT-ED but the first of each half."""

import torch
from torch import Tensor
from torch.nn import functional as F

from faze.model.fused_norm import instance_norm_leaky_relu

EPSILON = 1e-5  # of InstanceNorm
SLOPE = 0.01  # of LeakyReLU


def activate(x: Tensor, *, fused: bool = False) -> Tensor:
    """Apply InstanceNorm (no affine, no running statistics), then LeakyReLU, to every channel of every image.

    Args:
        x: (B, C, H, W).
        fused: as one operation; the same result, with less kept for the backward pass.
    """
    if fused:
        return instance_norm_leaky_relu(x, eps=EPSILON, slope=SLOPE)
    # In place: the backward pass then keeps one tensor instead of two.
    return F.leaky_relu(_instance_norm(x), negative_slope=SLOPE, inplace=True)


def _instance_norm(x: Tensor) -> Tensor:
    """Normalise each channel of each image, by the faster of torch's two ways to the same values.

    On a CPU that is a LayerNorm over the pixels, while a channel's pixels lie together. Low precision takes the other
    way, which keeps its statistics in fp32; so does an exported graph, which is for other machines.
    """
    lies_together = x.device.type == "cpu" and x.is_contiguous() and x.dtype.itemsize >= 4
    if lies_together and not torch.compiler.is_exporting():
        return F.layer_norm(x, x.shape[2:], eps=EPSILON)
    return F.instance_norm(x, eps=EPSILON)
