"""DenseNet encoder and decoder of DT-ED (paper section 3.1), with the parameter names of the published checkpoint.

Each block has four layers and growth g, without compression or dropout. The paper's network has four blocks. The
decoder mirrors the encoder with transposed convolutions.

The encoder and the decoder call their parts through their `call` attribute, so that `faze.engine.execution` can use
activation checkpointing. Modules with a `recompute` attribute can compute the same result while storing fewer
activations (`faze.model.low_memory`). Modules with a `fused_norm` attribute can normalise and activate in one operation
(`faze.model.norm_act`).

Shapes: B images; C channels; H x W pixels; g growth; b blocks; downsampling factor s = 2^(b + 1).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faze.model.low_memory import Layer, chain, dense_block
from faze.model.norm_act import activate

LAYERS = 4
ConvClass = type[nn.Conv2d] | type[nn.ConvTranspose2d]


class Part(nn.Module):
    """A part of the network; its attributes select the implementation of its layers."""

    recompute = False
    fused_norm = False

    def convolve(self, x: Tensor, *convs: nn.Conv2d | nn.ConvTranspose2d, first_activated: bool = True) -> Tensor:
        """Apply convolutions, each preceded by `activate` (the first one only if `first_activated`)."""
        if self.recompute:
            layers = [
                Layer(conv.stride[0], isinstance(conv, nn.ConvTranspose2d), activated=first_activated or number > 0)
                for number, conv in enumerate(convs)
            ]
            return chain(x, layers, [conv.weight for conv in convs])
        for number, conv in enumerate(convs):
            x = conv(activate(x, fused=self.fused_norm) if first_activated or number > 0 else x)
        return x


class Composite(Part):
    """InstanceNorm -> LeakyReLU -> convolution."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer: (B, C, H, W) -> (B, C', H', W')."""
        return self.convolve(x, self.conv)


class DenseBlock(Part):
    """Four composite layers; each reads the input of the block and the outputs of all earlier layers."""

    def __init__(self, channels: int, growth: int, conv: ConvClass) -> None:
        super().__init__()
        for layer in range(LAYERS):
            added = conv(channels + layer * growth, growth, 3, padding=1, bias=False)
            self.add_module(f"compo{layer + 1}", Composite(added))
        self.channels = channels + LAYERS * growth

    def forward(self, x: Tensor) -> Tensor:
        """Append the layers' outputs to x: (B, C, H, W) -> (B, C + 4 g, H, W)."""
        if self.recompute:
            kernels = [layer.conv.weight for layer in self.children()]
            return dense_block(x, kernels, transposed=isinstance(self.compo1.conv, nn.ConvTranspose2d))
        # As published: every layer normalises all channels again, including those that earlier layers have normalised.
        for layer in self.children():
            x = torch.cat([x, layer(x)], dim=1)
        return x


class Initial(Part):
    """Two strided convolutions that map an image to 4 g channels at a quarter of its height and width."""

    def __init__(self, growth: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 2 * growth, 3, stride=2, padding=1, bias=False)
        self.conv2 = nn.Conv2d(2 * growth, 4 * growth, 3, stride=2, padding=1, bias=False)

    def forward(self, image: Tensor) -> Tensor:
        """Apply the convolutions: (B, 3, H, W) -> (B, 4 g, H/4, W/4)."""
        return self.convolve(image, self.conv1, self.conv2, first_activated=False)


class TransitionDown(Part):
    """A composite layer with a 1 x 1 kernel, followed by average pooling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.composite = Composite(nn.Conv2d(channels, channels, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the transition: (B, C, H, W) -> (B, C, H/2, W/2)."""
        if self.recompute:
            return chain(x, [Layer(pooled=True)], [self.composite.conv.weight])
        return F.avg_pool2d(self.composite(x), 2)


def transition_up(channels: int) -> Composite:
    """Build a composite layer that doubles height and width: (B, C, H, W) -> (B, C, 2 H, 2 W)."""
    return Composite(_doubling(channels, channels))


class Last(Part):
    """Two convolutions that each double height and width, then one that outputs an image, with no final activation."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.conv1 = _doubling(channels, 4 * growth)
        self.conv2 = _doubling(4 * growth, 2 * growth)
        self.conv3 = nn.Conv2d(2 * growth, 3, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the convolutions: (B, C, H, W) -> (B, 3, 4 H, 4 W)."""
        x = self.convolve(x, self.conv1, first_activated=False)  # `recompute` stores this map
        return self.convolve(x, self.conv2, self.conv3)


class DenseNet(nn.Module):
    """Parts that are applied in order, among them dense blocks with transitions between them."""

    @staticmethod
    def call(part: nn.Module, x: Tensor) -> Tensor:
        """Apply a part, and store everything that its backward pass needs."""
        return part(x)

    def forward(self, x: Tensor) -> Tensor:
        """Apply all parts: (B, C, H, W) -> (B, C', H', W')."""
        for part in self.children():
            x = self.call(part, x)
        return x

    def add_blocks(
        self, blocks: int, channels: int, growth: int, conv: ConvClass, transition: Callable[[int], nn.Module]
    ) -> int:
        """Add the dense blocks and transitions; return the last block's number of channels."""
        for number in range(1, blocks + 1):
            block = DenseBlock(channels, growth, conv)
            channels = block.channels
            self.add_module(f"block{number}", block)
            if number < blocks:
                self.add_module(f"trans{number}", transition(channels))
        return channels


class DenseNetEncoder(DenseNet):
    """The encoder, which maps an image to features averaged over all positions."""

    def __init__(self, blocks: int, growth: int) -> None:
        super().__init__()
        self.initial = Initial(growth)
        self.channels = self.add_blocks(blocks, 4 * growth, growth, nn.Conv2d, TransitionDown)

    def forward(self, image: Tensor) -> Tensor:
        """Encode images: (B, 3, H, W) -> (B, 4 g (b + 1))."""
        return super().forward(image).mean(dim=(2, 3))  # (B, C, H/s, W/s) -> (B, C)


class DenseNetDecoder(DenseNet):
    """The decoder, which maps a feature map (B, C, H/s, W/s) to an image (B, 3, H, W)."""

    def __init__(self, blocks: int, channels: int, growth: int) -> None:
        super().__init__()
        self.last = Last(self.add_blocks(blocks, channels, growth, nn.ConvTranspose2d, transition_up), growth)


def _doubling(channels: int, out: int) -> nn.ConvTranspose2d:
    return nn.ConvTranspose2d(channels, out, 3, stride=2, padding=1, output_padding=1, bias=False)
