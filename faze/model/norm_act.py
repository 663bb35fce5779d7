"""InstanceNorm -> LeakyReLU, stock or fused, used before all DT-ED convolutions except conv1 of `Initial` and `Last`.

The stock operations store their input and their result for the backward pass. The fused operation stores only the
result, which the next convolution stores anyway. LeakyReLU is invertible, and the gradient of the normalisation
needs only the normalised values and one standard deviation per plane. (In-Place Activated BatchNorm: Rota Bulo et al.
2018, arXiv 1712.02616.) The fused operation also works on channels-last tensors, which the stock InstanceNorm copies to
a different layout.

Shapes: B images; C channels; N pixels in a plane (a channel of an image). The fused operation computes its statistics
in float32 for fp16 and bf16.
"""

import functools
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

EPSILON = 1e-5  # of InstanceNorm
SLOPE = 0.01  # of LeakyReLU
CACHED = 2**18  # elements that are processed at once on a CPU, so that temporary tensors stay in the cache


def activate(x: Tensor, *, fused: bool = False) -> Tensor:
    """Apply InstanceNorm (no affine, no running statistics), then LeakyReLU, to every channel of x (B, C, H, W).

    If `fused`, apply both as one operation, with the same result. It uses `faze.model.fused_norm_triton` on a GPU with
    Triton, but torch operations elsewhere and in torch.compile.
    """
    if fused:
        return _Fused.apply(x.flatten(2)).unflatten(2, x.shape[2:])
    # In place, so that the normalised values are not stored in addition to the result.
    return F.leaky_relu(_instance_norm(x), negative_slope=SLOPE, inplace=True)


def _instance_norm(x: Tensor) -> Tensor:
    """Normalise each channel of each image, using the faster of two torch functions with the same result.

    On a CPU, layer_norm over the pixels is faster if the pixels of a channel are contiguous. Low precision uses
    instance_norm, whose statistics are fp32. Exported graphs use instance_norm, since they may run on other machines.
    """
    contiguous = x.device.type == "cpu" and x.is_contiguous() and x.dtype.itemsize >= 4
    if contiguous and not torch.compiler.is_exporting():
        return F.layer_norm(x, x.shape[2:], eps=EPSILON)
    return F.instance_norm(x, eps=EPSILON)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if _takes_triton(x):
            from faze.model import fused_norm_triton

            y, scale = fused_norm_triton.forward(x, EPSILON, SLOPE)
        elif _at_once(x):
            y, scale = _forward(x)
        else:
            y, scale = torch.empty_like(x), x.new_empty((*x.shape[:2], 1), dtype=sum_dtype(x))
            for part in _slices(x):
                y[part], scale[part] = _forward(x[part])
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        y, scale = ctx.saved_tensors
        if _takes_triton(y):
            from faze.model import fused_norm_triton

            return fused_norm_triton.backward(grad, y, scale, SLOPE)
        if _at_once(y):
            return _backward(grad, y, scale)
        by_x = torch.empty_like(y)
        for part in _slices(y):
            by_x[part] = _backward(grad[part], y[part], scale[part])
        return by_x


def sum_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which the fused operation sums over x."""
    return torch.promote_types(x.dtype, torch.float32)


def _takes_triton(x: Tensor) -> bool:
    return x.is_cuda and not torch.compiler.is_compiling() and _has_triton(x.device)


@functools.cache
def _has_triton(device: torch.device) -> bool:
    return find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (7, 0)


def _at_once(x: Tensor) -> bool:
    """Return whether to process x as a whole instead of in slices."""
    return x.is_cuda or torch.compiler.is_compiling()


def _slices(x: Tensor) -> list[slice]:
    """Return slices of the batch that contain few enough images to stay in the CPU's cache."""
    images = max(CACHED // x[0].numel(), 1)
    return [slice(first, first + images) for first in range(0, len(x), images)]


def _forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """Normalise and activate x (B, C, N); also return 1 / standard deviation (B, C, 1) with dtype `sum_dtype(x)`.

    The results must not be aliases or be modified in place, because torch.compile 2.11 would lose their gradients.
    """
    wide = x.to(sum_dtype(x))
    centred = wide - wide.mean(2, keepdim=True)
    scale = (centred.square().mean(2, keepdim=True) + EPSILON).rsqrt()
    y = F.leaky_relu(centred.mul_(scale), SLOPE)
    return y if y.dtype == x.dtype else y.to(x.dtype), scale


def _backward(grad: Tensor, y: Tensor, scale: Tensor) -> Tensor:
    """Return the gradient with respect to x, given the one with respect to y. Tensors except scale are (B, C, N)."""
    wide = y.to(scale.dtype)
    normal = F.leaky_relu(wide, 1 / SLOPE)
    by_normal = torch.ops.aten.leaky_relu_backward(grad.to(scale.dtype), wide, SLOPE, True)
    mean, along = by_normal.mean(2, keepdim=True), (by_normal * normal).mean(2, keepdim=True)
    return by_normal.sub_(mean).addcmul_(normal, along, value=-1).mul_(scale).to(y.dtype)
