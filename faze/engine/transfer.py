"""How batches reach the device: loader processes, page-locked memory, strips that stay on the device."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from faze.base.errors import UserError
from faze.engine.step import Clock, no_clock
from faze.engine.switches import Switch

Tensors = dict[str, Tensor]  # a batch by name; the engine does not know what the names mean
SILENT_S = 60.0  # without a batch: then the reason is looked for
LEAST_SHARED_BYTES = 2**24  # free
SHARED_MEMORY = "/dev/shm"  # through which loader processes send batches
RESIDENT_SHARE = 0.5  # share of free device memory that strips may use; the step needs the rest


def _received(batches: Iterator[Tensors]) -> Iterator[Tensors]:
    """Yield the batches of a torch loader; if none arrives for SILENT_S, find out why.

    Raises:
        UserError: loader processes cannot send batches, or have ended.
    """
    while True:
        try:
            batch = next(batches, None)
        except RuntimeError as error:  # the loader can be asked again after its timeout
            if not re.match(r"DataLoader (timed out|worker \(pid)", str(error)):
                raise
            reason = str(error)
        else:
            if batch is None:
                return
            yield batch
            continue
        free = shutil.disk_usage(SHARED_MEMORY).free if os.path.isdir(SHARED_MEMORY) else 0
        if "timed out" not in reason or free <= LEAST_SHARED_BYTES:
            del batches  # this ends its processes
            raise UserError(
                f"loader processes cannot send batches: {SHARED_MEMORY} has {free / 2**20:.1f} MiB left ({reason}). "
                "Set data.workers: 0, or give a container more (--shm-size, --ipc=host)"
            )
        print(f"no batch from the loader processes for {SILENT_S:.0f} s: still waiting", file=sys.stderr)


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
        options = {"num_workers": self.workers, "pin_memory": self.pin}
        timeout = SILENT_S if self.workers else 0
        return _received(iter(DataLoader(dataset, batch_size=None, sampler=numbers, timeout=timeout, **options)))

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


@dataclass(frozen=True)
class Feed:
    """The training batches on the device of this process."""

    source: Dataset  # item `step` is that step's batch on the host
    to_device: Callable[[Tensors], Tensors]
    transfer: Transfer
    switches: tuple[Switch, ...]
    notes: tuple[str, ...] = ()  # on choices made here that change no batch

    def __call__(self, steps: Iterable[int], clock: Clock = no_clock) -> Iterator[Tensors]:
        """Return this process's batches for these steps."""
        return self.transfer(self.source, steps, self.to_device, clock)


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
