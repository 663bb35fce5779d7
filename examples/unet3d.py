"""Segmentation of medical volumes with a U-Net: 3-D convolutions, InstanceNorm, Dice and cross-entropy."""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faze.training.workload import Workload, call_directly


class Block(nn.Module):
    """Two convolutions: (N, inputs, size, size, size) to (N, outputs, size / stride, size / stride, size / stride)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        # A bias would have no effect: InstanceNorm subtracts each channel's mean, which includes the bias.
        first = nn.Conv3d(inputs, outputs, 3, stride, padding=1, bias=False), nn.InstanceNorm3d(outputs, affine=True)
        second = nn.Conv3d(outputs, outputs, 3, padding=1, bias=False), nn.InstanceNorm3d(outputs, affine=True)
        self.body = nn.Sequential(*first, nn.LeakyReLU(), *second, nn.LeakyReLU())

    def forward(self, x: Tensor, skipped: Tensor | None = None) -> Tensor:
        """Transform the features; in the decoder, the encoder's features `skipped` are concatenated beforehand."""
        return self.body(x if skipped is None else torch.cat([x, skipped], 1))


class UNet(nn.Module):
    """An encoder that halves the resolution at each level except the first, and a decoder that restores it."""

    def __init__(self, widths: list[int], classes: int):
        super().__init__()
        self.call, levels = call_directly, list(pairwise(widths))
        self.encoder = nn.ModuleList([Block(1, widths[0]), *(Block(fine, coarse, 2) for fine, coarse in levels)])
        self.rise = nn.ModuleList(nn.ConvTranspose3d(coarse, fine, 2, stride=2) for fine, coarse in reversed(levels))
        self.decoder = nn.ModuleList(Block(2 * fine, fine) for fine, _ in reversed(levels))
        self.head = nn.Conv3d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return each voxel's class scores (N, classes, size, size, size) for images (N, 1, size, size, size)."""
        skipped = []
        for block in self.encoder:
            x = self.call(block, x)
            skipped.append(x)
        for rise, block, features in zip(self.rise, self.decoder, skipped[-2::-1], strict=True):
            x = self.call(block, rise(x), features)
        return self.head(x)


def dice(first: Tensor, second: Tensor) -> Tensor:
    """Return the Dice coefficients (N, organs) of two sets of masks (N, organs, D, H, W)."""
    first, second = first.flatten(2), second.flatten(2)
    return (2 * (first * second).sum(2) + 1) / (first.sum(2) + second.sum(2) + 1)  # 1 if both masks are empty


class UNet3D(Workload):
    """Segmentation of a large organ, two small ones and a vessel in noisy volumes. The learning rate is for SGD."""

    published, published_speed = "NVIDIA's tutorial of 2020: U-Net in FP16 instead of FP32 on a V100", 3.0
    batch_size, steps, size = 4, 500, 24  # size: voxels of a volume's side
    width, levels = 8, 3  # channels of the first level, which double at each further level; number of levels
    score, higher_is_better, validation = "mean Dice coefficient, %", True, 64  # validation: volumes
    lr, weight_decay, warmup, clip_norm = 0.05, 1e-4, 25, 5.0  # warmup: steps
    radii = 0.5, 0.25, 0.25  # typical radii of the organs, in a volume that extends from -1 to 1
    intensities = 0.0, 1.0, 1.0, 1.5  # typical intensities of the background, the large and small organs, the vessel
    grain = 1  # side of a grain of the noise and the labels, in voxels

    def build(self) -> nn.Module:
        """Return the U-Net."""
        return UNet([self.width << level for level in range(self.levels)], len(self.intensities))

    def rate(self, number: int) -> float:
        """Return the learning-rate factor, which rises and then falls linearly."""
        return min((number + 1) / self.warmup, 1 - number / self.steps)

    def draw(self, count: int, seed: int) -> dict[str, Tensor]:
        """Return images (count, 1, size, size, size) and the classes of their voxels (count, size, size, size)."""
        generator, size = torch.Generator().manual_seed(seed), self.size // self.grain

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return torch.empty(count, *shape).uniform_(low, high, generator=generator)

        at = (torch.arange(size) + 0.5) * (2 / size) - 1
        points, organs = torch.cartesian_prod(at, at, at).T, len(self.radii)
        radii = torch.tensor(self.radii)[:, None, None] * uniform(0.7, 1.3, organs, 3, 1)
        turns = torch.linalg.qr(torch.randn(count, organs, 3, 3, generator=generator)).Q
        inside = ((turns / radii) @ (points - uniform(-0.6, 0.6, organs, 3, 1))).square().sum(2) < 1
        bends = uniform(0.1, 0.3, 2, 1) * torch.sin(uniform(1, 4, 2, 1) * points[0] + uniform(0, 6.28, 2, 1))
        vessel = (points[1:] - uniform(-0.5, 0.5, 2, 1) - bends).square().sum(1) < uniform(0.1, 0.2, 1).square()
        classes = torch.where(inside[:, 0], 1, 0)
        classes = torch.where(vessel, 3, torch.where(inside[:, 1:].any(1), 2, classes))
        images = (torch.tensor(self.intensities) + uniform(-0.3, 0.3, 4)).gather(1, classes)
        images = images.unflatten(1, (1, size, size, size)) + uniform(-1, 1, 1, size, size, size)
        images += F.interpolate(uniform(-1, 1, 1, 4, 4, 4), size=(size, size, size), mode="trilinear")
        grain = torch.ones(self.grain, self.grain, self.grain)
        classes = classes.unflatten(1, (size, size, size)).byte()
        return {"images": torch.kron(images, grain), "classes": torch.kron(classes, grain.byte())}

    def batch(self, number: int, seed: int) -> dict[str, Tensor]:
        """Return images (N, 1, size, size, size) and classes as bytes (N, size, size, size)."""
        return self.draw(self.batch_size, 1 + number + 1_000_000 * seed)  # seed 0 is for validation

    def masks(self, classes: Tensor) -> Tensor:
        """Return the organ masks (N, organs, size, size, size) for classes (N, size, size, size)."""
        organs = torch.arange(1, len(self.intensities), device=classes.device)  # without the background
        return classes[:, None] == organs[:, None, None, None]

    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the Dice loss, averaged over samples and organs, and the cross-entropy, averaged over voxels."""
        scores, classes = model(batch["images"]).to(torch.get_default_dtype()), batch["classes"]
        overlap = dice(scores.softmax(1)[:, 1:], self.masks(classes)).mean()
        return {"network": {"dice": 1 - overlap, "cross_entropy": F.cross_entropy(scores, classes.long())}}

    def validate(self, model: nn.Module) -> float:
        """Return the Dice coefficient of the predicted classes, in percent, averaged over volumes and organs."""
        images, classes = self.draw(self.validation, 0).values()
        device = next(model.parameters()).device
        predicted = torch.cat([model(part.to(device)).argmax(1).cpu() for part in images.split(self.batch_size)])
        return 100 * dice(self.masks(predicted), self.masks(classes)).mean().item()


class PaperUNet3D(UNet3D):
    """The U-Net at sizes common in medical imaging: 128 voxels, 32 channels, 4 levels, batches of 2."""

    batch_size, size, width, levels, grain, validation = 2, 128, 32, 4, 4, 8
