"""Peak memory and energy. Stand-ins replace torch's CUDA allocator and the driver's NVML."""

import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from faze.benchmark.tier_process import Energy, MemoryPeak

ROOT = Path(__file__).resolve().parents[2]
GIB = 2**30
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


class FakeAllocator:
    """A stand-in for torch's statistics: current and peak memory of two devices in GiB, and a graph's segments."""

    def __init__(self) -> None:
        self.now, self.peak = [1.0, 0.5], [1.0, 0.5]
        self.segments: list[dict] = [{"segment_pool_id": (0, 0), "total_size": 9 * GIB, "allocated_size": 0}]

    def use(self, device: int, gib: float) -> None:
        self.peak[device] = max(self.peak[device], self.now[device] + gib)

    def reset(self, device: int) -> None:
        self.peak[device] = self.now[device]


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> FakeAllocator:
    fake = FakeAllocator()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", fake.reset)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: int(fake.peak[device] * GIB))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: int(2 * fake.peak[device] * GIB))
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: fake.segments)
    return fake


def test_peak_excludes_the_workspace_of_the_warm_up(allocator: FakeAllocator) -> None:
    peak = MemoryPeak(GPU)
    allocator.use(0, 6.0)  # cuDNN tries its algorithms
    peak.settle()
    allocator.use(0, 2.0)
    assert peak.read() == {"peak_gib": 3.5, "reserved_gib": 7.0}


def test_peak_includes_the_pool_of_a_captured_graph(allocator: FakeAllocator) -> None:
    peak = MemoryPeak(GPU)
    allocator.segments.append({"segment_pool_id": (0, 1), "total_size": 5 * GIB, "allocated_size": GIB})
    peak.settle()
    assert peak.read()["peak_gib"] == 1.5 + 4.0


FRESH = {
    "late imports of torch": ("torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1).step()", 0.0, 0.02),
    # 96 kB each, less than glibc maps separately; another block above them keeps the end of the heap in place.
    "memory that was freed before": ("blocks = fill()", 0.9 * 2000 * 96_000 / GIB, 1.5 * 2000 * 96_000 / GIB),
}


@pytest.mark.parametrize(("use", "low", "high"), FRESH.values(), ids=FRESH)
def test_peak_of_a_fresh_process(use: str, low: float, high: float) -> None:
    program = f"""
import numpy as np, torch
from faze.benchmark.tier_process import MemoryPeak
def fill():
    return [np.ones(12_000) for _ in range(2000)]
blocks = fill()
last = np.ones(12_000)
del blocks
peak = MemoryPeak(torch.device("cpu"))
{use}
print(peak.read()["peak_gib"])
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert low <= float(ended.stdout) < high


class FakeNvml(ModuleType):
    """Two boards whose energy counters grow by 1,000 and 3,000 mJ between readings."""

    def __init__(self, broken: bool = False) -> None:
        super().__init__("pynvml")
        self.broken = broken
        self.readings = {"GPU-uuid0": 0, "GPU-uuid1": 0}

    NVMLError = OSError
    nvmlDeviceGetHandleByUUID = staticmethod(lambda uuid: uuid)  # noqa: N815

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        self.readings[handle] += 1000 if handle == "GPU-uuid0" else 3000
        return self.readings[handle]


@pytest.fixture(autouse=True)
def uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assign a UUID to each device. NVML ignores CUDA_VISIBLE_DEVICES, so boards are found by UUID."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=f"uuid{number}"))


def test_energy_of_gpus_is_that_of_the_boards_that_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    for device, replicas, joules in ((GPU, 2, 4.0), (GPU, 1, 1.0), (torch.device("cuda", 1), 1, 3.0)):
        energy = Energy(device, replicas)
        assert -energy.joules() + energy.joules() == joules and energy.least_s == 2.0


def test_energy_is_unknown_without_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(broken=True))
    energy = Energy(GPU, 1)
    assert math.isnan(energy.joules()) and energy.least_s == 0
    assert math.isnan(Energy(CPU, 1).joules())
