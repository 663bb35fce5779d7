"""Steps of one tier over and over, for measuring: the first batches of its training, of stored or made-up strips."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from faze.config.parameters import Engine
from faze.config.stage_config import Resolved, build_config, resolve
from faze.config.validation import read_config
from faze.config.yaml_files import DEFAULTS, merge
from faze.data.pairs import PeopleStrips, cache_what_fits, load_people
from faze.data.row_sources import TableRows
from faze.engine.parallel import World, check_chunks
from faze.engine.step import Clock, Step, no_clock
from faze.engine.switches import Switch
from faze.engine.transfer import Tensors
from faze.training.augmentation import build_augmentation
from faze.training.feed import Feed, TrainingSetup, build_feed
from faze.training.loop import build_step, loss_weights


@dataclass(frozen=True)
class TierSteps:
    """The step of a tier, and the batches that it trains on."""

    setup: TrainingSetup
    step: Step
    feed: Feed

    @property
    def switches(self) -> tuple[Switch, ...]:
        """What became of every switch of the tier."""
        return (*self.step.switches, *self.feed.switches)

    def run(self, batches: Iterable[Tensors], clock: Clock = no_clock) -> None:
        """Do a step on each batch, with the weights of the training's end."""
        train = self.setup.train
        weights = loss_weights(train.pairs, self.setup.loss, train.global_batch)
        for batch in batches:
            self.step(batch, weights, clock)

    def begin(self, steps: int, clock: Clock = no_clock) -> Iterator[Tensors]:
        """Start the reading of batches, do the first step and those whose batches are read ahead meanwhile.

        Returns:
            The batches of the next `steps` steps: their reading takes as long as in a training.
        """
        first = 1 + self.feed.transfer.ahead
        batches = self.feed(range(first + steps), clock)
        self.run(itertools.islice(batches, first), clock)
        return batches


def build_tier_steps(config: Resolved, engine: Engine, world: World, people: PeopleStrips) -> TierSteps:
    """Build the step of a tier; every tier sees the same batches and starts from the same weights.

    Args:
        config: of a training or of a benchmark: both declare the sections that decide how a tier trains.
        engine: the switches of the tier.
        world: this process among those that do the steps together.
        people: whose strips the steps train on.

    Raises:
        UserError: the global batch cannot be shared in whole chunks.
    """
    setup = TrainingSetup(config.model, config.loss, engine, config.train, world, seed=0)
    step = build_step(setup)
    check_chunks(config.train.global_batch, config.loss.chunk_pairs, world.size * step.shares)
    augmentation = build_augmentation(config.augment, config.preprocess, config.model, len(people.names))
    return TierSteps(setup, step, build_feed(people, setup, workers=config.data.workers, augmentation=augmentation))


def read_people(path: Path | None, config: Resolved, processes_here: int = 1) -> PeopleStrips:
    """Read the training people of a store at the network's size; without a store, make four of noise.

    As in a training, data.memory_gib is what the processes of a tier on this machine may hold together.
    """
    size = (config.model.image_height_px, config.model.image_width_px)
    if path:
        people, _ = load_people(path, "train", size, min_entries=config.data.min_entries)
        return cache_what_fits([people], config.data.memory_gib / processes_here)[0]
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (32, *size, 3), dtype=np.uint8)
    labels = list(random.normal(0, 0.2, (4, 8, 4)).astype(np.float32))
    return PeopleStrips([f"made-up-{i}" for i in range(4)], labels, TableRows(torch.from_numpy(pixels)), size)


def tier_config(overrides: Sequence[Path], tier: str, changes: Mapping[str, Any] | None = None) -> Resolved:
    """Read the configuration of a tier's training: the defaults, files of overrides, and last some changes."""
    values = merge(read_config(overrides), changes or {})
    return build_config(resolve(values, "train", tier, seed=0), "train", DEFAULTS)
