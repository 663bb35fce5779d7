"""A workload that trains in seconds: which quarter of a noisy image is bright."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faze.training.workload import Workload


class Tiny(Workload):
    """Images of 8 x 8 pixels, a convolution and a BatchNorm."""

    batch_size, steps = 8, 40
    score, higher_is_better = "accuracy, %", True
    lr, weight_decay = 0.1, 1e-4

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 4),
        )

    def batch(self, number: int, seed: int) -> dict[str, Tensor]:
        return self.draw(self.batch_size, 2**20 * seed + number)

    def draw(self, count: int, seed: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        quarter = torch.randint(4, (count,), generator=generator)
        bright = F.one_hot(quarter, 4).view(count, 1, 2, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
        return {"image": bright + 1.5 * torch.randn(count, 1, 8, 8, generator=generator), "quarter": quarter}

    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        return {"network": {"cross_entropy": F.cross_entropy(model(batch["image"]), batch["quarter"])}}

    def validate(self, model: nn.Module) -> float:
        batch = self.draw(512, 2**31)
        device = next(model.parameters()).device
        found = model(batch["image"].to(device)).argmax(1).cpu()
        return 100.0 * float((found == batch["quarter"]).double().mean())


class WithArguments(Tiny):
    """A class that cannot be created without arguments."""

    def __init__(self, width: int) -> None:
        self.width = width
