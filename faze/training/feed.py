"""Training batches: from step numbers to tensors on the device, ready for the model.

Training and benchmark use the same feed. Streamed strips are read on the host and copied. Resident strips are all on
the device, and only the indices of the pairs are copied. Both ways yield the same batches, bit for bit.
"""

from dataclasses import dataclass
from typing import Literal

from torch.utils.data import Dataset

from faze.config.parameters import Engine, Loss, Model, Train
from faze.data.network_input import to_network
from faze.data.pairs import Batch, PairIndices, People, cache
from faze.engine.parallel import World
from faze.engine.switches import Switch
from faze.engine.transfer import Feed, build_transfer, resident_switch
from faze.training.augmentation import Augmentation
from faze.training.worker_count import choose_workers


@dataclass(frozen=True)
class TrainingSetup:
    """The configuration sections for training a tier, and this process's position among the training processes."""

    model: Model
    loss: Loss
    engine: Engine
    train: Train
    world: World
    seed: int  # of the first weights, the order of pairs, and their augmentation


@dataclass(frozen=True)
class HostBatches(Dataset):
    """Dataset whose item `step` is this process's batch on the host: indices, augmentation draws and strips."""

    indices: PairIndices
    people: People | None = None  # whose strips and labels replace the indices; None keeps the indices
    augmentation: Augmentation | None = None

    def __getitem__(self, step: int) -> Batch:
        """Return the batch; see PairIndices, People.gather_pairs and Augmentation.draw."""
        batch = self.indices[step]
        if self.augmentation:
            batch |= self.augmentation.draw(step, self.indices)
        return self.people.gather_pairs(batch) if self.people else batch


def build_feed(
    people: People,
    setup: TrainingSetup,
    *,
    workers: int | Literal["auto"] = 0,
    augmentation: Augmentation | None = None,
) -> Feed:
    """Build the feed, choosing what is copied to the device and how.

    Args:
        people: the people whose pairs are used for training.
        setup: configuration and process.
        workers: number of loader processes; auto tries several numbers.
        augmentation: augmentation of the strips on the device; None for no augmentation.
    """
    world, device = setup.world, setup.world.device
    switch = _choose_resident(people, setup)
    resident = setup.engine.resident and switch.active
    indices = PairIndices(people.counts, setup.seed, setup.train.global_batch, world.rank, world.size)
    source = HostBatches(indices, None if resident else people, augmentation)
    changes = ([cache(people, device).gather_pairs] if resident else []) + ([augmentation] if augmentation else [])
    notes: tuple[str, ...] = ()
    if resident:
        workers = 0  # drawing indices is faster than receiving them from another process
    elif workers == "auto":
        workers, note = choose_workers(source, world, pin=setup.engine.pin, cached=people.cached)
        notes = (note,)
    transfer = build_transfer(pin=setup.engine.pin, workers=workers, device=device)

    def to_device(batch: Batch) -> Batch:
        batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
        for change in changes:
            batch = change(batch)
        return batch | {name: to_network(batch[name]) for name in ("image_a", "image_b")}

    return Feed(source, to_device, transfer, (transfer.switch, switch), notes)


def _choose_resident(people: People, setup: TrainingSetup) -> Switch:
    """Return whether strips are resident; all processes agree, because `choose_workers` is a collective call."""
    wanted, world = setup.engine.resident, setup.world
    switch = resident_switch(wanted, size=people.nbytes, cached=people.cached, device=world.device)
    if wanted and world.least(switch.active) < switch.active:
        return Switch.of("resident", True, "the device of another process has too little memory for the strips")
    return switch
