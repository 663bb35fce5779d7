"""The peak memory of a training step."""

import ctypes
import resource
from pathlib import Path

import torch


class MemoryPeak:
    """Peak memory above what the process held when this was made (after imports and data, before the model).

    On a GPU: the allocator's peak. On a CPU: the kernel's high-water mark of resident memory, reset first; getrusage
    would report the parent's peak, since it survives fork and exec.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            _import_the_rest_of_torch()
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:  # glibc's: else the first steps would use what loading the data has freed, unseen
                trim(0)
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            self._before = status_bytes("VmRSS")

    def read(self) -> dict[str, float]:
        """Read peak_gib, and on a GPU the reserved peak too."""
        if self._device.type == "cuda":
            return {
                "peak_gib": torch.cuda.max_memory_allocated(self._device) / 2**30,
                "reserved_gib": torch.cuda.max_memory_reserved(self._device) / 2**30,
            }
        return {"peak_gib": (status_bytes("VmHWM") - self._before) / 2**30}


def _import_the_rest_of_torch() -> None:
    """Make an optimiser: the first of a process imports 70 MiB of torch, which no training is to blame for."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    weight.sum().backward()
    optimizer.step()


def status_bytes(field: str) -> int:
    """Read a size from what the kernel says of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
