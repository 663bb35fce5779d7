"""From the numbers of training steps to batches that are ready for the model, on its device.

One way for training and benchmark alike. Streamed, strips are read on the host and travel; resident, all strips lie on
the device, and only the places of the pairs travel. The batches are the same, bit for bit.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from faze.config.parameters import Model
from faze.data.network_input import to_network
from faze.data.pairs import Batch, PairBatches, PairPlaces, PeopleStrips, in_pairs
from faze.data.reused_memory import Buffers
from faze.data.row_sources import gather as gather_rows
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
        """This process's shares of the global batches of these steps; strips are (B, 3, H, W) in [-1, 1]."""
        return self.transfer(self.source, steps, self.bring, clock)


@dataclass(frozen=True)
class Table:
    """All strips of some people and their labels, one after the other, on a device."""

    strips: Tensor  # (N, height, width, 3) uint8
    labels: Tensor  # (N, 4) float32 radians
    buffers: Buffers = field(default_factory=Buffers)

    def gather(self, places: Batch) -> Batch:
        """Places of pairs -> what PairBatches gives for them."""
        both = torch.cat([places["place_a"], places["place_b"]])
        rest = {name: value for name, value in places.items() if not name.startswith("place_")}
        return rest | in_pairs(places["person"], self._strips(both), self.labels.index_select(0, both))

    def _strips(self, places: Tensor) -> Tensor:
        if self.strips.device.type != "cpu":  # whose allocator uses its blocks again by itself
            return self.strips.index_select(0, places)
        out = self.buffers.take((len(places), *self.strips.shape[1:]), np.uint8)
        gather_rows(self.strips, places, out)
        return out


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
    switches, world, share = setup.engine, setup.world, setup.share
    device = world.device
    held = people.table is not None
    resident = judge_resident(switches.resident, size=people.size, held=held, device=device)
    acts = switches.resident and resident.active
    # All or none: a process that reads otherwise than the others would wait for them where they do not come.
    if switches.resident and world.least(acts) < acts:
        resident = Switch.of("resident", True, "another process's device has no room for the strips")
        acts = False
    source: Dataset = PairPlaces(people.counts, share) if acts else PairBatches(people, share)
    change: Bring = _unchanged
    if augmentation:
        source, change = Drawn(source, augmentation.settings, share), augmentation
    notes: tuple[str, ...] = ()
    if acts:
        workers = 0  # places are drawn faster than they would come from another process
    elif workers == "auto":
        workers, note = choose_workers(source, world, pin=switches.pin, held=held)
        notes = (note,)
    transfer = build_transfer(pin=switches.pin, prefetch=switches.prefetch, workers=workers, device=device)
    gather = lay_out(people, device).gather if acts else _unchanged
    buffers = Buffers()

    def bring(batch: Batch) -> Batch:
        return ready(change(gather(_copy(batch, device))), setup.model, buffers)

    return Feed(source, bring, transfer, (*transfer.switches, resident), notes)


def _unchanged(batch: Batch) -> Batch:
    return batch


def lay_out(people: PeopleStrips, device: torch.device) -> Table:
    """Put everyone's strips on a device; on a CPU they lie there already."""
    labels = torch.cat([torch.from_numpy(labels) for labels in people.labels]).to(device)
    if people.table is not None:
        return Table(torch.from_numpy(people.table).to(device), labels)
    strips = torch.empty(len(labels), *people.pixels[0][0].shape, dtype=torch.uint8, device=device)
    for rows, pixels in zip(strips.split(people.counts), people.pixels, strict=True):
        rows.copy_(torch.from_numpy(pixels[:]))
    return Table(strips, labels)


def ready(batch: Batch, model: Model, buffers: Buffers) -> Batch:
    """Make strips network input: (B, height, width, 3) uint8 -> (B, 3, H, W) in [-1, 1]."""
    size = (model.image_height_px, model.image_width_px)
    return batch | {name: to_network(batch[name], *size, buffers) for name in ("image_a", "image_b")}


def _copy(batch: Batch, device: torch.device) -> Batch:
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
