"""From the numbers of training steps to batches that are ready for the model, on its device.

One way for training and benchmark alike. Streamed, strips are read on the host and travel; resident, all strips lie on
the device, and only the places of the pairs travel. The batches are the same, bit for bit.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.utils.data import Dataset

from faze.data.network_input import to_network
from faze.data.pairs import Batch, PairBatches, PairPlaces, PeopleStrips, gather_pairs, hold
from faze.engine.step import Clock, no_clock
from faze.engine.switches import Switch
from faze.engine.transfer import Bring, Transfer, build_transfer, judge_resident
from faze.training.augmentation import Augmentation, Drawn
from faze.training.setup import TrainingSetup
from faze.training.worker_count import choose_workers


@dataclass(frozen=True)
class Feed:
    """The batches of a training on the device of this process."""

    source: Dataset  # item `step`: what travels in that step
    bring: Bring
    transfer: Transfer
    switches: tuple[Switch, ...]
    notes: tuple[str, ...] = ()  # on what was chosen here and changes no pair

    def __call__(self, steps: Iterable[int], clock: Clock = no_clock) -> Iterator[Batch]:
        """Give this process's shares of the global batches of these steps; strips are (B, 3, H, W) in [-1, 1]."""
        return self.transfer(self.source, steps, self.bring, clock)


def build_feed(
    people: PeopleStrips,
    setup: TrainingSetup,
    *,
    workers: int | Literal["auto"] = 0,
    augmentation: Augmentation | None = None,
) -> Feed:
    """Choose what travels to the device, and how.

    Args:
        people: whose pairs are trained on.
        setup: of the training.
        workers: processes that read ahead; auto tries some counts.
        augmentation: of the strips on the device; None leaves them as they are.
    """
    device, share = setup.world.device, setup.share
    resident, acts = _choose_resident(people, setup)
    source: Dataset = PairPlaces(people.counts, share) if acts else PairBatches(people, share)
    changes: list[Bring] = [lay_out(people, device)] if acts else []
    if augmentation:
        source = Drawn(source, augmentation.settings, share)
        changes.append(augmentation)
    notes: tuple[str, ...] = ()
    if acts:
        workers = 0  # places are drawn faster than they would come from another process
    elif workers == "auto":
        workers, note = choose_workers(source, setup.world, pin=setup.engine.pin, held=people.held)
        notes = (note,)
    transfer = build_transfer(pin=setup.engine.pin, workers=workers, device=device)

    size = (setup.model.image_height_px, setup.model.image_width_px)

    def bring(batch: Batch) -> Batch:
        batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
        for change in changes:
            batch = change(batch)
        return batch | {name: to_network(batch[name], *size) for name in ("image_a", "image_b")}

    return Feed(source, bring, transfer, (*transfer.switches, resident), notes)


def _choose_resident(people: PeopleStrips, setup: TrainingSetup) -> tuple[Switch, bool]:
    """Say whether strips lie on the device: in all processes or in none.

    A process that reads otherwise than the others would wait for them where they do not come.
    """
    wanted, world = setup.engine.resident, setup.world
    switch = judge_resident(wanted, size=people.nbytes, held=people.held, device=world.device)
    acts = wanted and switch.active
    if wanted and world.least(acts) < acts:
        return Switch.of("resident", True, "another process's device has no room for the strips"), False
    return switch, acts


def lay_out(people: PeopleStrips, device: torch.device) -> Bring:
    """Put everyone's strips and labels on a device; the result maps places of pairs to what PairBatches gives."""
    table, labels = hold(people, device), torch.from_numpy(np.concatenate(people.labels)).to(device)
    return lambda places: gather_pairs(places, table, labels)
