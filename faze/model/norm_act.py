"""InstanceNorm -> LeakyReLU, before every convolution of DT-ED but the first of each half."""

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
    return F.leaky_relu(F.instance_norm(x, eps=EPSILON), negative_slope=SLOPE, inplace=True)
