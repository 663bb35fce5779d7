"""What a tier's training is made from, in one of its processes."""

from dataclasses import dataclass

from faze.config.parameters import Engine, Loss, Model, Train
from faze.data.pairs import BatchShare
from faze.engine.parallel import World


@dataclass(frozen=True)
class TrainingSetup:
    """The sections of the configuration that decide how a tier trains, and this process among those that train."""

    model: Model
    loss: Loss
    engine: Engine
    train: Train
    world: World
    seed: int  # of the first weights, the pairs' order, and what augments them

    @property
    def share(self) -> BatchShare:
        """This process's pairs of each step."""
        return BatchShare(self.seed, self.train.global_batch, self.world.rank, self.world.size)
