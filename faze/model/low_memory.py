"""Layers that store few activations and need little temporary memory, for the switch and tier `recompute`.

They compute the same results as the stock layers of `faze.model.densenet`. They rely on five observations:

1. InstanceNorm mixes no channels, so a dense block has to normalise each channel only once, not once per layer that
   reads it. (One buffer per block: Pleiss et al. 2017, arXiv 1707.06990.)
2. Normalisation and activation are cheap compared to a convolution. They are recomputed in the backward pass, and only
   their input is stored. For a dense block, these inputs are parts of its output, which the next layer stores as well.
3. The largest feature maps are those next to the image, where convolutions are only 3 % of a step's arithmetic. These
   maps are also recomputed, from maps of half the size or less, which are stored instead.
4. No layer mixes images. Both passes process the batch in slices of a few images, so temporary tensors never exist for
   the whole batch. The gradients of the convolution kernels are summed over slices.
5. Average pooling and a 1 x 1 convolution commute. Pooling first leaves the convolution a quarter of the pixels.

Shapes: B images; C channels; g growth; H x W pixels.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from faze.model.norm_act import EPSILON, SLOPE, activate

# Size of the largest map of a slice; a backward pass has about six such maps. On a CPU, 8 MiB hold two images at the
# paper's width; smaller slices slow steps down, and larger ones do not help. A GPU needs more (not measured).
SLICE_BYTES = {"cpu": 8 * 2**20, "cuda": 64 * 2**20}


class Layer(NamedTuple):
    """A convolution and the operations that precede it."""

    stride: int = 1  # a transposed convolution of stride 2 doubles height and width
    transposed: bool = False
    activated: bool = True  # InstanceNorm -> LeakyReLU
    pooled: bool = False  # average pooling over 2 x 2 pixels, after the activation


def chain(x: Tensor, layers: Sequence[Layer], weights: Sequence[Tensor]) -> Tensor:
    """Apply layers with 3 x 3 or 1 x 1 kernels, and store only x: (B, C, H, W) -> (B, C', H', W')."""
    return _Chain.apply(x, tuple(layers), *weights)


def dense_block(x: Tensor, weights: Sequence[Tensor], *, transposed: bool) -> Tensor:
    """Apply a dense block with L kernels (3 x 3), and store only its output: (B, C, H, W) -> (B, C + L g, H, W)."""
    return _DenseBlock.apply(x, Layer(transposed=transposed), *weights)


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: tuple[Layer, ...], *weights: Tensor) -> Tensor:
        ctx.save_for_backward(x, *weights)
        ctx.layers, ctx.widest = layers, _widest(x, layers, weights)
        return torch.cat([_through(x[part], layers, weights) for part in _slices(x, ctx.widest)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        by_x = torch.empty_like(x)
        by_weights = [torch.zeros_like(weight) for weight in weights]
        weights = [weight.to(grad.dtype) for weight in weights]  # autocast is off here, but gradients have its dtype
        for part in _slices(x, ctx.widest):
            by_x[part] = _chain_backward(grad[part], x[part], ctx.layers, weights, by_weights)
        return by_x, None, *by_weights


def _through(x: Tensor, layers: Sequence[Layer], weights: Sequence[Tensor]) -> Tensor:
    for layer, weight in zip(layers, weights, strict=True):
        x = activate(x) if layer.activated else x
        x = _conv(F.avg_pool2d(x, 2) if layer.pooled else x, weight, layer)
    return x


def _chain_backward(
    grad: Tensor, x: Tensor, layers: Sequence[Layer], weights: Sequence[Tensor], by_weights: Sequence[Tensor]
) -> Tensor:
    """Return the gradient of x, and add the gradients of the kernels to by_weights."""
    activations: list[_Activated | None] = []
    inputs: list[Tensor] = []
    for number, layer in enumerate(layers):  # repeats the forward pass up to the last convolution
        if number:
            x = _conv(inputs[-1], weights[number - 1], layers[number - 1])
        activations.append(_Activated(x) if layer.activated else None)
        active = (activations[-1].value if layer.activated else x).to(grad.dtype)
        inputs.append(F.avg_pool2d(active, 2) if layer.pooled else active)
    for number in range(len(layers) - 1, -1, -1):
        layer, activation = layers[number], activations.pop()
        grad = _conv_backward(grad, inputs.pop(), weights[number], layer, by_weights[number])
        grad = F.interpolate(grad, scale_factor=2, mode="nearest").div_(4) if layer.pooled else grad
        grad = activation.backward(grad) if activation else grad
    return grad


class _DenseBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Layer, *weights: Tensor) -> Tensor:
        channels, growth = x.shape[1], weights[0].shape[1 if layer.transposed else 0]
        starts = [channels + number * growth for number in range(len(weights) + 1)]
        raw = x.new_empty(len(x), starts[-1], *x.shape[2:])
        ctx.save_for_backward(raw, *weights)
        ctx.layer, ctx.starts = layer, starts
        for part in _slices(raw, raw[0].numel()):
            _fill_block(raw[part], x[part], starts, layer, weights)
        return raw

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        raw, *weights = ctx.saved_tensors
        by_x = raw.new_empty(len(raw), ctx.starts[0], *raw.shape[2:])
        by_weights = [torch.zeros_like(weight) for weight in weights]
        weights = [weight.to(grad.dtype) for weight in weights]
        for part in _slices(raw, raw[0].numel()):
            by_x[part] = _block_backward(grad[part], raw[part], ctx.starts, ctx.layer, weights, by_weights)
        return by_x, None, *by_weights


def _fill_block(raw: Tensor, x: Tensor, starts: Sequence[int], layer: Layer, weights: Sequence[Tensor]) -> None:
    """Write x and the layer outputs of a dense block into raw; `starts` contains the first channel of each output."""
    active = torch.empty_like(raw)
    raw[:, : starts[0]], active[:, : starts[0]] = x, activate(x)
    for weight, start, end in zip(weights, starts, starts[1:], strict=False):
        added = _conv(active[:, :start], weight, layer)
        raw[:, start:end], active[:, start:end] = added, activate(added)


def _block_backward(
    grad: Tensor, raw: Tensor, starts: list[int], layer: Layer, weights: Sequence[Tensor], by_weights: Sequence[Tensor]
) -> Tensor:
    """Return the gradient of a dense block's input, and add the gradients of the kernels to by_weights."""
    activation = _Activated(raw)
    by_active = torch.zeros_like(raw)
    for number in range(len(weights) - 1, -1, -1):
        before, own = slice(starts[number]), slice(starts[number], starts[number + 1])
        # The gradients from all later layers have already been added to these channels.
        by_added = activation.backward(by_active[:, own], own).add_(grad[:, own])
        by_active[:, before] += _conv_backward(
            by_added, activation.value[:, before], weights[number], layer, by_weights[number]
        )
    first = slice(starts[0])
    return activation.backward(by_active[:, first], first).add_(grad[:, first])


class _Activated:
    """The result of InstanceNorm -> LeakyReLU on x (B, C, H, W), and the tensors that its backward pass reads."""

    def __init__(self, x: Tensor) -> None:
        normal, *statistics = torch.native_batch_norm(_planes(x), None, None, None, None, True, 0.0, EPSILON)
        self.x = x
        self.value = F.leaky_relu_(normal, SLOPE).view(x.shape)
        self.statistics = [each.view(x.shape[:2]) for each in statistics]  # mean, 1 / standard deviation

    def backward(self, grad: Tensor, channels: slice = slice(None)) -> Tensor:
        """Compute the gradient of some channels of x, given the gradient of the same channels of `value`."""
        x, value = self.x[:, channels], self.value[:, channels]
        by_normal = torch.ops.aten.leaky_relu_backward(grad, value, SLOPE, True)
        statistics = [each[:, channels].flatten() for each in self.statistics]
        by_x, _, _ = torch.ops.aten.native_batch_norm_backward(
            _planes(by_normal), _planes(x), None, None, None, *statistics, True, EPSILON, [True, False, False]
        )
        return by_x.view(x.shape)


def _planes(x: Tensor) -> Tensor:
    """Reshape (B, C, H, W) to (1, B C, H, W), so that batch norm normalises each channel of each image separately."""
    return x.reshape(1, -1, *x.shape[2:])


def _conv(x: Tensor, weight: Tensor, layer: Layer) -> Tensor:
    padding = weight.shape[-1] // 2
    if layer.transposed:
        return F.conv_transpose2d(x, weight, stride=layer.stride, padding=padding, output_padding=layer.stride - 1)
    return F.conv2d(x, weight, stride=layer.stride, padding=padding)


def _conv_backward(grad: Tensor, x: Tensor, weight: Tensor, layer: Layer, by_weight: Tensor) -> Tensor:
    """Return the gradient with respect to x, and add the kernel's gradient to by_weight."""
    stride, padding, dilation, groups = [layer.stride] * 2, [weight.shape[-1] // 2] * 2, [1, 1], 1
    output_padding = [layer.stride - 1 if layer.transposed else 0] * 2
    options = stride, padding, dilation, layer.transposed, output_padding, groups
    by_x, added, _ = torch.ops.aten.convolution_backward(grad, x, weight, None, *options, [True, True, False])
    by_weight.add_(added)
    return by_x


def _widest(x: Tensor, layers: Sequence[Layer], weights: Sequence[Tensor]) -> int:
    """Return the size of the largest map in a chain, in elements per image."""
    pixels, widest = math.prod(x.shape[2:]), x[0].numel()
    for layer, weight in zip(layers, weights, strict=True):
        scale = layer.stride**2
        pixels = pixels * scale if layer.transposed else pixels // (4 * scale if layer.pooled else scale)
        widest = max(widest, weight.shape[1 if layer.transposed else 0] * pixels)
    return widest


def _slices(x: Tensor, widest: int) -> Iterator[slice]:
    """Split a batch into nearly equal slices whose largest maps, of `widest` elements per image, fit in SLICE_BYTES."""
    fit = max(SLICE_BYTES[x.device.type] // (widest * x.element_size()), 1)
    size = -(-len(x) // -(-len(x) // fit))
    for first in range(0, len(x), size):
        yield slice(first, first + size)
