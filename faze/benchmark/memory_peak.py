"""The peak memory of a training step."""

import ctypes
import resource
from pathlib import Path

import torch


class MemoryPeak:
    """Peak memory above what the process held when this was made (after imports and data, before the model).

    On a GPU: the allocator's peak, over all devices that this process uses. On a CPU: the kernel's high-water mark of
    resident memory, reset first; getrusage would report the parent's peak, since it survives fork and exec.
    """

    def __init__(self, device: torch.device) -> None:
        self._devices = range(torch.cuda.device_count()) if device.type == "cuda" else ()
        self._warm_up: dict[str, float] = {}
        if not self._devices:
            _import_the_rest_of_torch()
        self._begin()
        self._before = 0 if self._devices else status_bytes("VmRSS")

    def settle(self) -> None:
        """Keep the peak so far as the warm-up's: it holds workspaces of searches and compilers, which no step needs."""
        self._warm_up = {"warmup_peak_gib": self.read()["peak_gib"]}
        self._begin()

    def read(self) -> dict[str, float]:
        """Read peak_gib; on a GPU the reserved peak too, and once settled that of the warm-up."""
        if not self._devices:
            return {"peak_gib": (status_bytes("VmHWM") - self._before) / 2**30} | self._warm_up
        allocated = sum(map(torch.cuda.max_memory_allocated, self._devices)) + _idle_in_graphs()
        reserved = sum(map(torch.cuda.max_memory_reserved, self._devices))
        return {"peak_gib": allocated / 2**30, "reserved_gib": reserved / 2**30} | self._warm_up

    def _begin(self) -> None:
        for device in self._devices:
            torch.cuda.reset_peak_memory_stats(device)
        if not self._devices:
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:  # glibc's: else the next steps would use what has been freed before, unseen
                trim(0)
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _idle_in_graphs() -> int:
    """Count the bytes that captured graphs hold back for their replays.

    A replay allocates nothing, so the allocator's peak misses what it writes to: the pool of the capture.
    """
    pools = (segment for segment in torch.cuda.memory_snapshot() if tuple(segment["segment_pool_id"]) != (0, 0))
    return sum(segment["total_size"] - segment["allocated_size"] for segment in pools)


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
