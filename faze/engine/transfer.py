"""Transfer of batches to the device: loader processes, page-locked memory, or samples that stay on the device."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from faze.engine.step import Clock, no_clock
from faze.engine.switches import Switch

Tensors = dict[str, Tensor]  # a batch: tensors by name; the engine does not know what the names mean
RESIDENT_SHARE = 0.5  # fraction of the device's free memory that stored samples may use; the step needs the rest


@dataclass(frozen=True)
class Feed:
    """The training batches on this process's device."""

    source: Dataset  # item `step` is that step's batch on the host
    to_device: Callable[[Tensors], Tensors]  # copies a batch to the device asynchronously, and prepares it there
    workers: int  # loader processes
    pin: bool  # whether batches are in page-locked memory

    @property
    def ahead(self) -> int:
        """Number of batches that may be prefetched: torch lets each loader process prefetch two."""
        return 2 * self.workers

    def __call__(self, steps: Iterable[int], clock: Clock = no_clock) -> Iterator[Tensors]:
        """Iterate over this process's batches for `steps`, which may be infinite; time the data and copy phases."""
        batches = map(self.source.__getitem__, steps)
        if self.workers or self.pin:  # without either, a loader would only add 0.1 ms to each batch
            options = {"num_workers": self.workers, "pin_memory": self.pin}
            batches = iter(DataLoader(self.source, batch_size=None, sampler=steps, **options))

        def next_batch() -> Tensors | None:
            with clock("data"):
                batch = next(batches, None)
            if batch is not None:
                with clock("copy"):
                    batch = self.to_device(batch)
            return batch

        return iter(next_batch, None)


def resident_switch(wanted: bool, *, size: int, cached: bool, device: torch.device) -> Switch:
    """Report whether stored samples (`size` bytes) stay on the device; `cached`: they are in memory, in one tensor."""
    if device.type == "cuda":
        free, where = torch.cuda.mem_get_info(device)[0], f"on {device}"
        fits, limit = size <= RESIDENT_SHARE * free, f"{RESIDENT_SHARE:.0%} of the device's free {free / 2**30:.2f} GiB"
    else:
        fits, where, limit = cached, "in memory, in one tensor", "data.memory_gib"
    need = f"{size / 2**30:.2f} GiB"
    switch = Switch.of("resident", wanted, "" if fits else f"the strips need {need}, more than {limit}")
    return replace(switch, acted=f"{need} {where}") if wanted and fits else switch
