"""The talk's case study: a conditional GAN with SPADE's generator and a patch discriminator."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from faze.training.workload import Workload, call_directly, detached

CLASSES = 3  # background, disc, square
COLOURS = torch.tensor([[-0.5, -0.1, 0.5], [0.5, -0.2, -0.4], [-0.3, 0.4, -0.4]])
STRIPES = torch.tensor([[0.0, 1.6], [1.2, 0.0], [0.8, 0.8]])  # radians per pixel, along x and y
PATCH = 8  # pixels; the L1 loss and the score compare patches, because the stripes' phase is random


def convolve(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply a strided convolution and a leaky ReLU: (N, inputs, H, W) to (N, outputs, H / 2, W / 2)."""
    return F.leaky_relu(F.conv2d(x, weight, bias, stride=2, padding=1), 0.2)


class Block(nn.Module):
    """A residual convolution whose normalised input is scaled and shifted according to the labels."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.GroupNorm(width, width, affine=False)  # per sample; BatchNorm would mix samples
        self.labels, self.conv = (nn.Conv2d(inputs, width, 3, padding=1) for inputs in (CLASSES, width))
        self.modulation = nn.Conv2d(width, 2 * width, 3, padding=1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Transform features (N, width, H, W), conditioned on labels (N, classes, H, W)."""
        scale, shift = self.modulation(F.relu(self.labels(labels))).chunk(2, 1)
        return x + self.conv(F.leaky_relu(self.norm(x) * (1 + scale) + shift, 0.2))


class Generator(nn.Module):
    """Blocks at resolutions that double from 4 pixels to the image size."""

    def __init__(self, size: int, width: int, noise: int):
        super().__init__()
        self.call = call_directly
        self.first = nn.Linear(noise, width * 16)
        self.blocks = nn.ModuleList(Block(width) for _ in range((size // 4).bit_length()))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, labels: Tensor, noise: Tensor) -> Tensor:
        """Return images (N, 3, size, size) in [-1, 1] for labels (N, classes, size, size) and noise (N, noise)."""
        x = self.first(noise).unflatten(1, (-1, 4, 4))
        for number, block in enumerate(self.blocks):
            x = F.interpolate(x, scale_factor=2.0) if number else x
            x = self.call(block, x, F.avg_pool2d(labels, labels.shape[-1] // x.shape[-1]))
        return self.last(F.leaky_relu(x, 0.2)).tanh()


class Discriminator(nn.Module):
    """Convolutions with spectral norm that classify overlapping patches as real or generated."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.call = call_directly
        widths = [CLASSES + 3, *(width << level for level in range(depth))]
        layers = [nn.Conv2d(*widths[level : level + 2], 4) for level in range(depth)] + [nn.Conv2d(widths[-1], 1, 3)]
        self.layers = nn.ModuleList(spectral_norm(layer) for layer in layers)

    def forward(self, labels: Tensor, images: Tensor) -> Tensor:
        """Return scores (N, 1, rows, columns), one per patch; positive scores mean that the patch looks real."""
        x = torch.cat([labels, images], 1)
        # Reading a weight runs the power iteration. In `call`, checkpointing would run it again and change the weight.
        with torch.autocast(x.device.type, enabled=False):
            *weights, last = (layer.weight for layer in self.layers)
        for layer, weight in zip(self.layers, weights, strict=False):
            x = self.call(convolve, x, weight, layer.bias)
        return F.conv2d(x, last, self.layers[-1].bias, padding=1)


def moments(images: Tensor) -> Tensor:
    """Return the mean and the standard deviation of each patch: (N, 3, H, W) to (N, 6, rows, columns)."""
    mean, square = (F.avg_pool2d(x, PATCH, PATCH // 2) for x in (images, images.square()))
    return torch.cat([mean, (square - mean.square()).clamp(min=0).sqrt()], 1)


class CGAN(Workload):
    """Generation of striped images from label maps. The learning rate is for AdamW with `betas`; SGD needs 0.02.

    The score compares patches' means and standard deviations, relative to the brightness range. It is about 5.3 %
    without the discriminator, and 0.9 % for real images whose stripes have different phases.
    """

    batch_size, steps = 8, 1000
    score, higher_is_better = "distance between patch statistics, %", False
    lr, betas, momentum = 1e-3, (0.5, 0.999), 0.5  # the usual momentum, 0.9, makes simultaneous updates oscillate
    l1 = 10.0  # weight of the L1 loss
    size, width, depth, noise, validation = 32, 32, 2, 16, 256  # size in pixels, validation in images

    def build(self) -> nn.Module:
        """Return both networks."""
        generator = Generator(self.size, self.width, self.noise)
        return nn.ModuleDict({"generator": generator, "discriminator": Discriminator(self.width, self.depth)})

    def parameter_groups(self, model: nn.Module) -> Mapping[str, list[dict]]:
        """Return one parameter group for each of the two optimisers."""
        return {n: [{"params": list(m.parameters()), "lr": self.lr, "betas": self.betas}] for n, m in model.items()}

    def rate(self, number: int) -> float:
        """Return the learning-rate factor, which falls linearly during the second half of training."""
        return min(1.0, 2 - 2 * number / self.steps)

    def batch(self, number: int, seed: int) -> dict[str, Tensor]:
        """Return one-hot labels (N, classes, size, size), noise (N, noise) and images (N, 3, size, size)."""
        return self.draw(self.batch_size, 1 + number + 1_000_000 * seed)  # seed 0 is for validation

    def draw(self, count: int, seed: int) -> dict[str, Tensor]:
        """Draw `count` samples of a disc and a square on a background, in the same format as `batch`."""
        axis, random = torch.arange(0.5, self.size) / self.size, torch.Generator().manual_seed(seed)
        x, y, radius, phase = torch.rand(4, count, CLASSES, 1, 1, generator=random)
        x, y = axis - x, axis[:, None] - y
        disc = torch.hypot(x[:, 1], y[:, 1]) < 0.15 + 0.15 * radius[:, 1]
        square = torch.maximum(x[:, 2].abs(), y[:, 2].abs()) < 0.15 + 0.15 * radius[:, 2]
        labels = torch.stack([~(disc | square), disc, square & ~disc], 1).to(torch.get_default_dtype())
        wave_x, wave_y = self.size * STRIPES.T[..., None, None]
        stripes = 0.4 * torch.sin(wave_x * x + wave_y * y + 2 * torch.pi * phase)
        images = torch.einsum("nkhw,kc->nchw", labels, COLOURS) + (labels * stripes).sum(1, keepdim=True)
        return {"labels": labels, "noise": torch.randn(count, self.noise, generator=random), "images": images}

    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the hinge losses of both networks, and the L1 distance between patch means."""
        labels, images = batch["labels"], batch["images"]
        generated = model["generator"](labels, batch["noise"]).to(torch.get_default_dtype())
        judged = detached(model["discriminator"], labels, generated).to(torch.get_default_dtype())
        # One call for both the real and the generated images launches half as many kernels as two calls.
        pairs = torch.cat([labels, labels]), torch.cat([images, generated.detach()])
        real, fake = model["discriminator"](*pairs).to(torch.get_default_dtype()).chunk(2)
        distance = F.l1_loss(F.avg_pool2d(generated, PATCH), F.avg_pool2d(images, PATCH))
        discriminator = {"real": F.relu(1 - real).mean(), "fake": F.relu(1 + fake).mean()}
        return {"generator": {"hinge": -judged.mean(), "L1": self.l1 * distance}, "discriminator": discriminator}

    def validate(self, model: nn.Module) -> float:
        """Return the mean distance, in percent, between moments of generated and real images for the same labels."""
        data, device = self.draw(self.validation, 0), next(model.parameters()).device
        parts = zip(*(data[name].to(device).split(64) for name in ("labels", "noise")), strict=True)
        generated = torch.cat([model["generator"](*part).cpu() for part in parts])
        return 100 * F.l1_loss(moments(generated), moments(data["images"])).item() / 2  # the range is -1 to 1


class PaperCGAN(CGAN):
    """The CGAN at sizes similar to SPADE's, for images of 256 x 256 pixels."""

    batch_size, lr, size, width, depth, noise = 32, 2e-4, 256, 128, 4, 256
