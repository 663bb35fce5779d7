"""How batches reach the device: loader processes, page-locked memory, strips that stay on the device."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from faze.base.preemption import ignore_in_worker
from faze.engine.step import Clock
from faze.engine.switches import Switch

Tensors = dict[str, Tensor]  # a batch by name; the engine does not know what the names mean
RESIDENT_SHARE = 0.5  # share of free device memory that strips may use; the step needs the rest


@dataclass(frozen=True)
class Transfer:
    """A reader of batches and the reports of its switches."""

    workers: int
    pin: bool  # batches are in page-locked memory
    switch: Switch

    @property
    def ahead(self) -> int:
        """Number of batches that may be prefetched: torch lets each process prefetch two."""
        return 2 * self.workers

    def load(self, dataset: Dataset, numbers: Iterable[int]) -> Iterator[Tensors]:
        """Read the items with these indices in order; there may be infinitely many. Items stay on the host."""
        if not self.workers and not self.pin:  # a loader would add 0.1 ms to each batch
            return map(dataset.__getitem__, numbers)
        options = {"num_workers": self.workers, "pin_memory": self.pin, "worker_init_fn": ignore_in_worker}
        return iter(DataLoader(dataset, batch_size=None, sampler=numbers, **options))

    def __call__(
        self, dataset: Dataset, numbers: Iterable[int], to_device: Callable[[Tensors], Tensors], clock: Clock
    ) -> Iterator[Tensors]:
        """Read batches and copy each to the device when it is needed.

        Args:
            dataset: data set whose items are batches on the host.
            numbers: indices of the items, possibly infinitely many.
            to_device: copies a batch to the device asynchronously, and prepares it there.
            clock: times the phases data and copy.
        """
        batches = self.load(dataset, numbers)  # loader processes start now

        def next_batch() -> Tensors | None:
            with clock("data"):
                batch = next(batches, None)
            if batch is not None:
                with clock("copy"):
                    batch = to_device(batch)
            return batch

        return iter(next_batch, None)


def build_transfer(*, pin: bool, workers: int, device: torch.device) -> Transfer:
    """Choose how batches are read; on a CPU they are not copied, so `pin` is inactive."""
    cuda = device.type == "cuda"
    return Transfer(workers, pin and cuda, Switch.of("pin", pin, "" if cuda else "batches are not copied on a CPU"))


def resident_switch(wanted: bool, *, size: int, cached: bool, device: torch.device) -> Switch:
    """Report whether strips fit on the device.

    Args:
        wanted: the configured value.
        size: bytes of all strips.
        cached: whether all strips are already in memory, in one tensor.
        device: the device that would store them.
    """
    if device.type == "cuda":
        free, where = torch.cuda.mem_get_info(device)[0], f"on {device}"
        fits, limit = size <= RESIDENT_SHARE * free, f"{RESIDENT_SHARE:.0%} of the device's free {free / 2**30:.2f} GiB"
    else:
        fits, where, limit = cached, "in memory, gathered from one table", "data.memory_gib"
    need = f"{size / 2**30:.2f} GiB"
    switch = Switch.of("resident", wanted, "" if fits else f"the strips need {need}, more than {limit}")
    return replace(switch, acted=f"{need} {where}") if wanted and fits else switch
