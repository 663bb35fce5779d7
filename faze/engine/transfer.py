"""How batches reach the device: page-locked memory, and tables that stay on the device."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from faze.base.preemption import leave_to_parent
from faze.engine.step import Clock
from faze.engine.switches import Switch

Tensors = dict[str, Tensor]  # a batch: the engine knows names, not what they mean
Bring = Callable[[Tensors], Tensors]  # from the host, ready for the model

RESIDENT_SHARE = 0.5  # of the free device memory that tables may take; the rest is the step's


@dataclass(frozen=True)
class Transfer:
    """How batches come to the device."""

    workers: int
    pin: bool
    switches: tuple[Switch, ...]

    @property
    def ahead(self) -> int:
        """Batches that may have been read before they are asked for: torch lets each process read two."""
        return 2 * self.workers

    def __call__(self, dataset: Dataset, numbers: Iterable[int], bring: Bring, clock: Clock) -> Iterator[Tensors]:
        """Bring the items of a dataset with these numbers to the device, in order.

        Args:
            dataset: its items are batches on the host.
            numbers: without end, if need be.
            bring: copies a batch to the device without waiting for it, and makes it ready there.
            clock: times the phases data and copy.
        """
        return iter(functools.partial(_bring_next, self.read(dataset, numbers), bring, clock), None)

    def read(self, dataset: Dataset, numbers: Iterable[int]) -> Iterator[Tensors]:
        """Read the same items; they stay on the host."""
        if not self.workers and not self.pin:  # the loader would add a tenth of a millisecond to each
            return map(dataset.__getitem__, numbers)
        options = {"num_workers": self.workers, "pin_memory": self.pin, "worker_init_fn": leave_to_parent}
        return iter(DataLoader(dataset, batch_size=None, sampler=numbers, **options))


def build_transfer(*, pin: bool, workers: int, device: torch.device) -> Transfer:
    """Return how batches travel; on a CPU they do not."""
    cuda = device.type == "cuda"
    pinned = Switch.of("pin", pin, "" if cuda else "batches do not travel on a CPU")
    return Transfer(workers, pin and cuda, (pinned,))


def _bring_next(batches: Iterator[Tensors], bring: Bring, clock: Clock) -> Tensors | None:
    with clock("data"):
        batch = next(batches, None)
    if batch is not None:
        with clock("copy"):
            batch = bring(batch)
    return batch


def judge_resident(wanted: bool, *, size: int, held: bool, device: torch.device) -> Switch:
    """Say whether tables of this many bytes can lie on the device.

    Args:
        wanted: by the config.
        size: bytes.
        held: they lie in memory in one piece already.
        device: where they are to lie.
    """
    if device.type == "cuda":
        free, where = torch.cuda.mem_get_info(device)[0], f"on {device}"
        fits, limit = size <= RESIDENT_SHARE * free, f"{RESIDENT_SHARE:.0%} of the device's free {free / 2**30:.2f} GiB"
    else:
        fits, where, limit = held, "in memory, gathered from one table", "data.memory_gib"
    need = f"{size / 2**30:.2f} GiB"
    switch = Switch.of("resident", wanted, "" if fits else f"the strips take {need}, more than {limit}")
    return replace(switch, acted=f"{need} {where}") if wanted and fits else switch
