"""The clock of a training step's phases. DESIGN section 7: one definition of time."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

import torch


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class PhaseClock:
    """Seconds per phase of a step; synchronises around each, so its sum is more than an undisturbed step takes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time of the block to the phase."""
        synchronize(self._device)
        began = time.perf_counter()
        yield
        synchronize(self._device)
        self.seconds[phase] += time.perf_counter() - began
