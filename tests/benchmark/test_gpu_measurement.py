"""Memory, energy and clocks of GPUs, by stand-ins for torch's allocator and the driver's NVML; no GPU has run it.

Seen red by breaking the code: a peak that holds the warm-up's workspaces, or one device of several; a captured graph's
memory unseen; energy of the first board alone; blocks too short for the counter; throttling that nobody is told of.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from faze.benchmark.energy import build_meter, lengthened
from faze.benchmark.interleave import RooflineRates, measure
from faze.benchmark.memory_peak import MemoryPeak

from faze.benchmark.tier_table import _throttled
from faze.config.parameters import Benchmark

GIB = 2**30
GPU = torch.device("cuda", 0)


class FakeAllocator:
    """Torch's memory statistics of two devices: now and peak, in GiB; and the segments of a captured graph."""

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


def test_peak_leaves_out_the_workspace_of_the_warm_up_and_tells_it_apart(allocator: FakeAllocator) -> None:
    peak = MemoryPeak(GPU)
    allocator.use(0, 6.0)  # cuDNN tries its algorithms
    peak.settle()
    allocator.use(0, 2.0)
    assert peak.read() == {"peak_gib": 3.5, "reserved_gib": 7.0, "warmup_peak_gib": 7.5}


def test_peak_is_the_sum_over_the_devices_of_data_parallel(allocator: FakeAllocator) -> None:
    peak = MemoryPeak(GPU)
    allocator.use(0, 2.0)
    allocator.use(1, 1.5)
    assert peak.read()["peak_gib"] == 5.0 and peak.read()["reserved_gib"] == 10.0


def test_peak_counts_what_a_captured_graph_writes_to(allocator: FakeAllocator) -> None:
    """A replay allocates nothing: only the pool's segments say what it needs."""
    peak = MemoryPeak(GPU)
    allocator.segments.append({"segment_pool_id": (0, 1), "total_size": 5 * GIB, "allocated_size": GIB})
    peak.settle()
    assert peak.read()["peak_gib"] == 1.5 + 4.0


def test_a_settled_cpu_process_forgets_what_only_the_warm_up_used() -> None:
    peak = MemoryPeak(torch.device("cpu"))
    torch.ones(2**25).sum()  # 128 MiB, freed at once
    peak.settle()
    torch.ones(2**23).sum()
    found = peak.read()
    assert found["warmup_peak_gib"] > 0.12 > 0.08 > found["peak_gib"] > 0.02


class FakeNvml(ModuleType):
    """Two boards: millijoules that grow by 1,000 and 3,000 between readings, and the state of each."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        """As there: no OSError."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.readings, self.reasons = {"GPU-uuid0": 0, "GPU-uuid1": 0}, {"GPU-uuid0": 0x1, "GPU-uuid1": 0x24}

    nvmlInit = staticmethod(lambda: None)  # noqa: N815
    nvmlDeviceGetHandleByUUID = staticmethod(lambda uuid: uuid)  # noqa: N815
    nvmlDeviceGetClockInfo = staticmethod(lambda handle, kind: 1000 * kind)  # noqa: N815
    nvmlDeviceGetTemperature = staticmethod(lambda handle, kind: 60)  # noqa: N815
    nvmlSystemGetDriverVersion = staticmethod(lambda: "580.1")  # noqa: N815

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        self.readings[handle] += 1000 if handle == "GPU-uuid0" else 3000
        return self.readings[handle]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:  # noqa: N802
        raise self.NVMLError("not supported")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802
        return self.reasons[handle]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=f"uuid{device.index}"))
    return fake


def test_energy_of_data_parallel_is_that_of_all_its_boards(nvml: FakeNvml) -> None:
    meter = build_meter(GPU, replicas=2)
    assert meter.since(meter.read()) == 4.0
    alone = build_meter(GPU)
    assert alone.since(alone.read()) == 1.0


def test_boards_tell_clocks_and_what_holds_them_down(nvml: FakeNvml) -> None:
    """An idle GPU (bit 0) is not throttled; what a board does not tell is None."""
    first, second = build_meter(GPU, replicas=2).boards()
    assert first == {
        "sm_mhz": 1000,
        "memory_mhz": 2000,
        "temperature_c": 60,
        "power_limit_w": None,
        "driver": "580.1",
        "throttled": [],
    }
    assert second["throttled"] == ["power cap", "temperature, by the driver"]


@pytest.mark.parametrize(
    ("seconds", "least_s", "steps"), [(0.5, 2.0, 16), (3.0, 2.0, 4), (0.5, 0.0, 4), (0.3, 2.0, 27)]
)
def test_a_block_is_as_long_as_its_energy_needs(seconds: float, least_s: float, steps: int) -> None:
    assert lengthened(4, seconds, least_s) == steps


class FakeTier:
    """A tier whose step takes 0.1 s on a board that is throttled; remembers what it is asked."""

    def __init__(self, name: str) -> None:
        self.name, self.asked = name, []
        self.description = {"settling_steps": 0, "least_block_s": 2.0, "switches": []}

    def ask(self, do: str, steps: int = 0) -> list[dict]:
        self.asked.append((do, steps))
        if do == "memory":
            return [{"peak_gib": 1.0}]
        if do == "phases":
            return [{"forward": 0.1}]
        return [{"seconds": 0.1 * steps, "joules": 5.0 * steps, "boards": [{"throttled": ["power cap"]}]}]


def test_blocks_are_lengthened_after_a_warm_up_that_is_settled_first() -> None:
    settings = Benchmark(
        2, 3, steady_share=0.1, block_steps=4, blocks=2, rounds=1, leave_one_out=False, paper_width=False
    )
    tier = FakeTier("baseline")
    [result] = measure([tier], settings, RooflineRates(), phases=True)
    kinds = [do for do, _ in tier.asked]
    assert kinds == [*["block"] * 4, "settle", *["block"] * 2, "memory", "phases"]
    assert tier.asked[5:7] == [("block", 20), ("block", 20)]
    assert result.joules_per_step == 5.0 and result.blocks_ms == pytest.approx([100.0, 100.0])
    assert [board["throttled"] for board in result.boards] == [["power cap"]] * 2
    assert _throttled({"throttled": ["power cap"]}) == ", throttled: power cap" and _throttled({}) == ""
