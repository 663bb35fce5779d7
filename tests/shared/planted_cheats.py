"""A workload that cheats in the tiers whose switch `resident` is on; the variable CHEAT selects the fault."""

import os

import torch
from tiny_workload import Tiny
from torch import Tensor, nn
from torch.nn import functional as F

from faze.engine.switches import Switch


class Cheats(Tiny):
    """The tiny workload with a rising learning rate."""

    cheat = ""

    def keep_resident(self, wanted: bool, device: torch.device) -> Switch:
        self.cheat, self.first = os.environ.get("CHEAT", "") if wanted else "", None
        return Switch.of("resident", wanted)

    def build(self) -> nn.Module:
        if self.cheat == "cannot_run":
            raise ValueError("no such part")
        model = super().build()
        for parameter in model.parameters():
            if self.cheat == "adds_up_parts":
                parameter.register_hook(lambda gradient: 2 * gradient)
        if self.cheat == "loses_a_gradient":
            model[0].weight.register_hook(torch.zeros_like)
        return model

    def rate(self, number: int) -> float:
        if self.cheat == "never_moves" or (self.cheat == "skips_every_tenth_update" and number % 10 == 9):
            return 0.0
        return 1.0 if self.cheat == "keeps_the_first_rate" else 1.0 + 0.1 * number

    def prepare(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        image = batch["image"]
        if self.cheat == "trains_on_half_the_resolution":
            image = F.interpolate(F.avg_pool2d(image, 2), scale_factor=2)
        if self.cheat == "rounds_to_bf16":
            image = image.bfloat16().to(image.dtype)
        if self.cheat == "repeats_a_batch":
            self.first = image if self.first is None else self.first
            image = self.first
        return batch | {"image": image}


class OnlyInFloat32(Tiny):
    """A network that cannot be computed in float64."""

    def build(self) -> nn.Module:
        if torch.get_default_dtype() == torch.float64:
            raise RuntimeError("this network is float32 only\nand more")
        return super().build()


class Dropout(Tiny):
    """Dropout instead of BatchNorm."""

    def build(self) -> nn.Module:
        model = super().build()
        model[1] = nn.Dropout(0.5)
        return model


class InFloat32(Dropout):
    def build(self) -> nn.Module:
        return super().build().float()

    def prepare(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return batch | {"image": batch["image"].float()}


class Noise(Dropout):
    """Dropout, and noise drawn by the loss."""

    def losses(self, model: nn.Module, batch: dict[str, Tensor]) -> dict:
        noise = torch.randn_like(batch["image"]) + torch.randn_like(batch["image"])
        return super().losses(model, batch | {"image": batch["image"] + noise})


class Chaotic(Tiny):
    """Layers of BatchNorm and a high learning rate, so that a rounding error grows tenfold in a step."""

    def build(self) -> nn.Module:
        layers = [nn.Conv2d(1, 8, 3, padding=1)]
        for _ in range(3):
            layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

    def rate(self, number: int) -> float:
        return 5.0
