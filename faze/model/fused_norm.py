"""InstanceNorm -> LeakyReLU as one operation that keeps one tensor, its output.

The stock pair keeps what is normalised and what comes out. But LeakyReLU can be undone, and the gradient through a
normalisation needs no more than the normalised values and one deviation per plane; and the output is kept anyway, by
the convolution that reads it. (In-Place Activated BatchNorm: Rota Bulo et al. 2018, arXiv 1712.02616.)

The stock InstanceNorm lays its input out anew, plane after plane; this one computes channels-last as it is.

Shapes: B images; C channels; N pixels of a plane. Statistics are float32 for fp16 and bf16.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils._triton import has_triton

CACHED = 2**18  # elements that torch's operations on a CPU take at once: what they make in between stays in the cache


def instance_norm_leaky_relu(x: Tensor, *, eps: float, slope: float) -> Tensor:
    """(B, C, H, W) -> (B, C, H, W), laid out as x; no affine, no running statistics.

    On a GPU with Triton two kernels of `faze.model.fused_norm_triton`; elsewhere, and inside torch.compile, torch
    operations.
    """
    return _Fused.apply(x.flatten(2), eps, slope).unflatten(2, x.shape[2:])


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, slope: float) -> Tensor:
        y = torch.empty_like(x)
        scale = x.new_empty((*x.shape[:2], 1), dtype=torch.promote_types(x.dtype, torch.float32))
        if _takes_triton(x):
            from faze.model import fused_norm_triton

            fused_norm_triton.forward(x, y, scale, eps, slope)
        else:
            for part in _parts(x, y, scale):
                _forward(*part, eps, slope)
        ctx.save_for_backward(y, scale)
        ctx.slope = slope
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        y, scale = ctx.saved_tensors
        by_x = torch.empty_like(y)
        if _takes_triton(y):
            from faze.model import fused_norm_triton

            fused_norm_triton.backward(grad, y, scale, by_x, ctx.slope)
        else:
            for part in _parts(grad, y, scale, by_x):
                _backward(*part, ctx.slope)
        return by_x, None, None


def _takes_triton(x: Tensor) -> bool:
    return x.is_cuda and not torch.compiler.is_compiling() and has_triton()


def _parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors (B, ...) into a few images at a time; where that helps nothing, the whole is one part."""
    _, channels, pixels = tensors[0].shape
    if tensors[0].is_cuda or torch.compiler.is_compiling():
        return iter([tensors])
    images = max(CACHED // (channels * pixels), 1)
    return zip(*(tensor.split(images) for tensor in tensors), strict=True)


def _forward(x: Tensor, y: Tensor, scale: Tensor, eps: float, slope: float) -> None:
    """Activate x (B, C, N) into y, and leave 1 / standard deviation in scale (B, C, 1)."""
    wide = x.to(scale.dtype)
    centred = wide - wide.mean(2, keepdim=True)
    scale.copy_((centred.square().mean(2, keepdim=True) + eps).rsqrt())
    y.copy_(F.leaky_relu(centred.mul_(scale), slope, inplace=True))


def _backward(grad: Tensor, y: Tensor, scale: Tensor, by_x: Tensor, slope: float) -> None:
    """Leave the gradient by x in by_x, from the gradient by y; all (B, C, N) but scale."""
    wide = y.to(scale.dtype)
    normal = F.leaky_relu(wide, 1 / slope)
    by_normal = torch.ops.aten.leaky_relu_backward(grad.to(scale.dtype), wide, slope, True)
    mean, along = by_normal.mean(2, keepdim=True), (by_normal * normal).mean(2, keepdim=True)
    by_x.copy_(by_normal.sub_(mean).addcmul_(normal, along, value=-1).mul_(scale))
