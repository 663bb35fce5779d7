"""DT-ED's layers with few saved activations: normalisation and activation are computed again in the backward pass.

The same mathematics as the stock layers of `faze.densenet`, from three observations. InstanceNorm mixes no channels, so
a dense block need normalise each channel only once, not once per layer that reads it. Norm and activation cost little
beside a convolution, so only what they start from is kept, and of a dense block that is its output, which the next
layer keeps as well. Average pooling and a 1 x 1 convolution commute, and pooled first the convolution sees a quarter
of the pixels. (One buffer per block: Pleiss et al. 2017, arXiv 1707.06990.)

Shapes: B images; C channels; g growth; H x W pixels.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from faze.activation import EPSILON, SLOPE, activate


def dense_block(x: Tensor, weights: Sequence[Tensor], *, transposed: bool) -> Tensor:
    """(B, C, H, W) and L kernels of 3 x 3 -> (B, C + L g, H, W)."""
    return _DenseBlock.apply(x, transposed, *weights)


def activated_conv(
    x: Tensor, weight: Tensor, *, stride: int = 1, transposed: bool = False, pool: bool = False
) -> Tensor:
    """InstanceNorm -> LeakyReLU -> convolution of (B, C, H, W).

    Args:
        x: what is normalised.
        weight: kernel of 3 x 3, or 1 x 1.
        stride: a transposed convolution of stride 2 doubles height and width.
        transposed: whether the convolution is.
        pool: average over 2 x 2 pixels, which here comes before the convolution.
    """
    return _ActivatedConv.apply(x, weight, stride, transposed, pool)


class _DenseBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, transposed: bool, *weights: Tensor) -> Tensor:
        channels, growth = x.shape[1], weights[0].shape[1 if transposed else 0]
        shape = (len(x), channels + len(weights) * growth, *x.shape[2:])
        raw, active = x.new_empty(shape), x.new_empty(shape)
        raw[:, :channels], active[:, :channels] = x, activate(x)
        for number, weight in enumerate(weights):
            own = _own(channels, growth, number)
            added = _conv(active[:, : own.start], weight, 1, transposed)
            raw[:, own] = added
            active[:, own] = activate(added)
        ctx.save_for_backward(raw, *weights)
        ctx.channels, ctx.growth, ctx.transposed = channels, growth, transposed
        return raw

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        raw, *weights = ctx.saved_tensors
        normal, deviation = _normalize_again(raw)
        active = F.leaky_relu(normal, SLOPE)
        by_active, by_raw = torch.zeros_like(raw), grad.clone()
        by_weights: list[Tensor] = []
        for number in reversed(range(len(weights))):
            own = _own(ctx.channels, ctx.growth, number)
            if number + 1 < len(
                weights
            ):  # what the later layers read of these channels is complete; nothing reads the last
                by_raw[:, own] += _by_input_of_activation(by_active[:, own], normal[:, own], deviation[:, own])
            by_input, by_weight = _conv_backward(
                by_raw[:, own], active[:, : own.start], weights[number], 1, ctx.transposed
            )
            by_active[:, : own.start] += by_input
            by_weights.insert(0, by_weight)
        first = slice(ctx.channels)
        by_x = by_raw[:, first] + _by_input_of_activation(by_active[:, first], normal[:, first], deviation[:, first])
        return by_x, None, *by_weights


class _ActivatedConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, transposed: bool, pool: bool) -> Tensor:
        active = activate(x)
        ctx.save_for_backward(x, weight)
        ctx.how = stride, transposed, pool
        return _conv(F.avg_pool2d(active, 2) if pool else active, weight, stride, transposed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        stride, transposed, pool = ctx.how
        normal, deviation = _normalize_again(x)
        active = F.leaky_relu(normal, SLOPE)
        by_input, by_weight = _conv_backward(
            grad, F.avg_pool2d(active, 2) if pool else active, weight, stride, transposed
        )
        del active
        by_active = F.interpolate(by_input, scale_factor=2, mode="nearest").div_(4) if pool else by_input
        return _by_input_of_activation(by_active, normal, deviation), by_weight, None, None, None


def _own(channels: int, growth: int, number: int) -> slice:
    """The channels that a layer of a block adds."""
    return slice(channels + number * growth, channels + (number + 1) * growth)


def _conv(x: Tensor, weight: Tensor, stride: int, transposed: bool) -> Tensor:
    padding = weight.shape[-1] // 2
    if transposed:
        return F.conv_transpose2d(x, weight, stride=stride, padding=padding, output_padding=stride - 1)
    return F.conv2d(x, weight, stride=stride, padding=padding)


def _conv_backward(grad: Tensor, x: Tensor, weight: Tensor, stride: int, transposed: bool) -> tuple[Tensor, Tensor]:
    padding, output_padding = [weight.shape[-1] // 2] * 2, [stride - 1 if transposed else 0] * 2
    by_x, by_weight, _ = torch.ops.aten.convolution_backward(
        grad,
        x,
        weight.to(x.dtype),  # autocast has ended; what it computed has not
        None,
        [stride] * 2,
        padding,
        [1, 1],
        transposed,
        output_padding,
        1,
        [True, True, False],
    )
    return by_x, by_weight.to(weight.dtype)


def _normalize_again(x: Tensor) -> tuple[Tensor, Tensor]:
    """InstanceNorm of x (B, C, H, W), and 1 / standard deviation (B, C, 1, 1)."""
    flat = x.reshape(1, -1, *x.shape[2:])
    normal, _, deviation = torch.native_batch_norm(flat, None, None, None, None, True, 0.0, EPSILON)
    return normal.view_as(x), deviation.view(*x.shape[:2], 1, 1).to(x.dtype)


def _by_input_of_activation(grad: Tensor, normal: Tensor, deviation: Tensor) -> Tensor:
    """Gradient by what was normalised, from the gradient by InstanceNorm -> LeakyReLU's output."""
    grad = torch.where(normal > 0, grad, SLOPE * grad)
    along = (grad * normal).mean((2, 3), keepdim=True)
    return (grad - grad.mean((2, 3), keepdim=True)).addcmul_(normal, along, value=-1).mul_(deviation)
