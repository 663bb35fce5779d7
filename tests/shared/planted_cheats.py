"""Builders of trainings for the proofs, which separate processes import: an honest one, and planted faults.

A builder acts on the tier whose `set_to_none` is on; the baseline stays honest.
"""

import dataclasses

import torch
from tiny_workload import Tiny
from torch import nn
from torch.nn import functional as F

from faze.base.errors import UserError
from faze.config.parameters import Engine
from faze.engine.parallel import World
from faze.engine.step import launch_eagerly
from faze.training.loop import Training
from faze.training.workload_training import build_workload_training


def built(engine: Engine, world: World) -> Training:
    return build_workload_training(Tiny(), engine, world, 0)


def skips_every_tenth_update(engine: Engine, world: World) -> Training:
    made, taken = built(engine, world), []

    def launch(step, batch, weights, clock) -> dict:
        taken.append(1)
        if len(taken) % 10 or not engine.set_to_none:
            return launch_eagerly(step, batch, weights, clock)
        terms = step.add_gradients(batch, weights, clock)
        step.clear()
        return terms

    return dataclasses.replace(made, step=dataclasses.replace(made.step, launch=launch))


def trains_on_half_the_resolution(engine: Engine, world: World) -> Training:
    made = built(engine, world)

    def to_device(batch: dict) -> dict:
        small = F.interpolate(F.avg_pool2d(batch["image"], 2), scale_factor=2)
        return batch | {"image": small} if engine.set_to_none else batch

    return dataclasses.replace(made, feed=dataclasses.replace(made.feed, to_device=to_device))


def only_in_float32(engine: Engine, world: World) -> Training:
    if torch.get_default_dtype() == torch.float64:
        raise RuntimeError("this network is float32 only\nand more")
    return built(engine, world)


class Chaotic(Tiny):
    """Layers of BatchNorm and a high learning rate, so that a rounding error grows tenfold in a step."""

    def build(self) -> nn.Module:
        layers = [nn.Conv2d(1, 8, 3, padding=1)]
        for _ in range(3):
            layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

    def rate(self, number: int) -> float:
        return 5.0


def chaotic(engine: Engine, world: World) -> Training:
    return build_workload_training(Chaotic(), engine, world, 0)


def broken(engine: Engine, world: World) -> Training:
    if engine.set_to_none:
        raise UserError("no such part")
    return built(engine, world)
