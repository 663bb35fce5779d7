"""Steps of one tier over and over, for measuring: the first batches of its training, of stored or made-up strips."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from faze.config.check import build
from faze.config.data_parameters import Data
from faze.config.parameters import Engine, Loss, Model, Train
from faze.data.pairs import Batch, PeopleStrips, load_people
from faze.engine.parallel import World, check_chunks
from faze.engine.step import Clock, Step, no_clock
from faze.engine.switches import Switch
from faze.training.feed import Feed, build_feed
from faze.training.loop import build_step, loss_weights
from faze.training.setup import TrainingSetup


@dataclass(frozen=True)
class TierSteps:
    """A step and what it is done with."""

    step: Step
    feed: Feed
    world: World
    loss: Loss
    train: Train

    def __call__(self, number: int, clock: Clock = no_clock) -> None:
        """Do the step of a number, from reading its batch on."""
        self.train_on(self.feed([number], clock), clock)

    def train_on(self, batches: Iterable[Batch], clock: Clock = no_clock) -> None:
        """Do a step on each batch, with the weights of the training's end."""
        weights = loss_weights(self.train.pairs, self.loss, self.train.global_batch)
        for batch in batches:
            self.step(batch, weights, clock)

    @property
    def switches(self) -> tuple[Switch, ...]:
        """What became of every switch of the tier."""
        return (*self.step.switches, *self.feed.switches)


def build_tier_steps(
    engine: Engine, world: World, people: PeopleStrips, *, model: Model, loss: Loss, train: Train
) -> TierSteps:
    """Build the step of a tier; every tier sees the same batches and starts from the same weights.

    Raises:
        UserError: the global batch cannot be shared in whole chunks.
    """
    setup = TrainingSetup(model, loss, engine, train, world, seed=0)
    step = build_step(setup)
    check_chunks(train.global_batch, loss.chunk_pairs, world.size * step.shares)
    return TierSteps(step, build_feed(people, setup), world, loss, train)


def read_people(path: Path | None, data: Data, model: Model) -> PeopleStrips:
    """Training people of a store at the network's size; without a store, four of noise."""
    height, width = model.image_height_px, model.image_width_px
    if path:
        sizes = {"height": height, "width": width}
        return load_people(path, "train", min_entries=data.min_entries, memory_gib=data.memory_gib, **sizes)[0]
    random = np.random.default_rng(0)
    pixels = [random.integers(0, 256, (8, height, width, 3), dtype=np.uint8) for _ in range(4)]
    labels = [random.normal(0, 0.2, (8, 4)).astype(np.float32) for _ in range(4)]
    return PeopleStrips([f"made-up-{i}" for i in range(4)], pixels, labels)


def sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """What build_tier_steps needs of a configuration."""
    return {name: build(kind, values[name]) for name, kind in (("model", Model), ("loss", Loss), ("train", Train))}
