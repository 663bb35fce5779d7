"""Meters of a process: its peak memory and, on a GPU, the board's energy and what slows it down."""

import ctypes
import math
import os
import re
from pathlib import Path

import torch

NVML_LEAST_S = 2.0  # NVML updates its counter some tens of times a second: shorter blocks are wrong by several percent
# Bits of nvmlDeviceGetCurrentClocksEventReasons that mean that the board is slower than it could be.
THROTTLING = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "temperature (driver)"}
THROTTLING |= {0x40: "temperature (hardware)", 0x80: "power brake"}


class MemoryPeak:
    """Peak memory above what the process used when this was created: after imports and data, before the model.

    On a GPU: the allocator's peak, summed over all devices that this process uses. On a CPU: the kernel's high-water
    mark of resident memory, reset first; getrusage would report the parent's peak, which survives fork and exec.
    """

    def __init__(self, device: torch.device) -> None:
        self._gpus = range(torch.cuda.device_count()) if device.type == "cuda" else ()
        self._warm_up: dict[str, float] = {}
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0).step()  # imports 70 MiB of torch
        self._reset()
        self._before = 0 if self._gpus else status_bytes("VmRSS")

    def settle(self) -> dict[str, float]:
        """Set the peak of the warm-up apart: compilers and searches use memory that no step needs."""
        self._warm_up = {"warmup_peak_gib": self.read()["peak_gib"]}
        self._reset()
        return self._warm_up

    def read(self) -> dict[str, float]:
        """Return peak_gib; on a GPU, also reserved_gib; after `settle`, also warmup_peak_gib."""
        if not self._gpus:
            return {"peak_gib": (status_bytes("VmHWM") - self._before) / 2**30} | self._warm_up
        # A replayed graph allocates nothing: it writes to the pool of its capture.
        pools = [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) != (0, 0)]
        idle = sum(segment["total_size"] - segment["allocated_size"] for segment in pools)
        allocated = sum(map(torch.cuda.max_memory_allocated, self._gpus)) + idle
        reserved = sum(map(torch.cuda.max_memory_reserved, self._gpus))
        return {"peak_gib": allocated / 2**30, "reserved_gib": reserved / 2**30} | self._warm_up

    def _reset(self) -> None:
        for gpu in self._gpus:
            torch.cuda.reset_peak_memory_stats(gpu)
        if not self._gpus:
            ctypes.CDLL(None).malloc_trim(0)  # or steps would reuse freed memory, which the peak does not count
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def status_bytes(field: str) -> int:
    """Return a size from /proc/self/status, in bytes."""
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))[1])


def busy_seconds() -> tuple[float, float]:
    """Return how long all cores of the machine have been busy, with stolen time, and how long for this process."""
    ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split()[1:9]]
    idle = ticks[3] + ticks[4]  # with waiting for disks
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), sum(os.times()[:2])


class Energy:
    """The energy counters of GPU boards by NVML, which include idle power; nan on a CPU or without nvidia-ml-py."""

    def __init__(self, device: torch.device, replicas: int) -> None:
        self._boards, self.least_s = [], 0.0
        if device.type == "cpu":
            return
        try:
            import pynvml

            pynvml.nvmlInit()  # it ignores CUDA_VISIBLE_DEVICES, so boards are found by UUID
            gpus = range(replicas) if replicas > 1 else [device.index]
            names = [f"GPU-{torch.cuda.get_device_properties(gpu).uuid}" for gpu in gpus]
            self._nvml, self._boards = pynvml, [pynvml.nvmlDeviceGetHandleByUUID(name) for name in names]
            self.joules()
            self.least_s = NVML_LEAST_S
        except Exception:  # no package, no driver, or a board without a counter
            self._boards = []

    def joules(self) -> float:
        """Return the joules since an arbitrary moment."""
        millijoules = [self._nvml.nvmlDeviceGetTotalEnergyConsumption(board) for board in self._boards]
        return sum(millijoules) / 1e3 if millijoules else math.nan

    def throttled(self) -> list[str]:
        """Return why boards are slower than they could be at this moment."""
        reasons = [self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(board) for board in self._boards]
        return [name for bit, name in THROTTLING.items() for reason in reasons if reason & bit]
