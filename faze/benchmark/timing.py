"""The clock of a training step's phases."""

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
    """Adds up seconds per phase of a step. It synchronises around each, so their sum exceeds an undisturbed step."""

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
