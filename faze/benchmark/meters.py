"""Meters for a training step: peak memory, and energy where the device counts it.

The energy counters are those of NVML in NVIDIA's driver and of RAPL in x86 processors. Both count the total energy of
the board or processor package, including idle power and other programs. NVML needs the package nvidia-ml-py; it also
reports clocks, temperature, power limit and the reasons for throttling.
"""

import ctypes
import math
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

POWERCAP = Path("/sys/class/powercap")
# NVML updates its counter some tens of times a second: shorter blocks would be wrong by several percent.
NVML_LEAST_S = 2.0
# Bits of nvmlDeviceGetCurrentClocksEventReasons that mean that the board is slower than it could be.
THROTTLING = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "temperature (driver)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}


class MemoryPeak:
    """Peak memory above what the process used when this was created (after imports and data, before the model).

    On a GPU: the allocator's peak, summed over all devices that this process uses. On a CPU: the kernel's high-water
    mark of resident memory, reset first; getrusage would report the parent's peak, which survives fork and exec.
    """

    def __init__(self, device: torch.device) -> None:
        self._devices = range(torch.cuda.device_count()) if device.type == "cuda" else ()
        self._warm_up: dict[str, float] = {}
        if not self._devices:
            # The first optimiser of a process imports 70 MiB of torch, which is not memory of the training.
            weight = torch.nn.Parameter(torch.zeros(1))
            weight.sum().backward()
            torch.optim.SGD([weight], lr=0.0).step()
        self._reset()
        self._before = 0 if self._devices else status_bytes("VmRSS")

    def settle(self) -> None:
        """Store the peak so far as the warm-up peak: searches and compilers use workspaces that no step needs."""
        self._warm_up = {"warmup_peak_gib": self.read()["peak_gib"]}
        self._reset()

    def read(self) -> dict[str, float]:
        """Return peak_gib; on a GPU, also reserved_gib; after `settle`, also warmup_peak_gib."""
        if not self._devices:
            return {"peak_gib": (status_bytes("VmHWM") - self._before) / 2**30} | self._warm_up
        allocated = sum(map(torch.cuda.max_memory_allocated, self._devices)) + _idle_graph_bytes()
        reserved = sum(map(torch.cuda.max_memory_reserved, self._devices))
        return {"peak_gib": allocated / 2**30, "reserved_gib": reserved / 2**30} | self._warm_up

    def _reset(self) -> None:
        for device in self._devices:
            torch.cuda.reset_peak_memory_stats(device)
        if not self._devices:
            # Only glibc has malloc_trim; without it, steps would reuse freed memory that the peak does not count.
            if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
                trim(0)
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _idle_graph_bytes() -> int:
    """Return the bytes that captured graphs reserve for their replays.

    A replay allocates nothing, so the allocator's peak excludes the memory that a replay writes to, the pool of the
    capture.
    """
    pools = (segment for segment in torch.cuda.memory_snapshot() if tuple(segment["segment_pool_id"]) != (0, 0))
    return sum(segment["total_size"] - segment["allocated_size"] for segment in pools)


def status_bytes(field: str) -> int:
    """Return a size from /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(frozen=True)
class EnergyMeter:
    """A counter of joules, or the reason why there is none."""

    source: str
    reason: str = ""
    read: Callable[[], float | None] = lambda: None  # joules since an arbitrary moment
    boards: Callable[[], list[dict]] = list  # current clocks, temperature, power limit and throttling of each GPU
    least_s: float = 0.0  # shortest block whose energy the counter resolves

    def since(self, before: float | None) -> float | None:
        """Return the joules since an earlier reading."""
        now = self.read()
        return None if now is None or before is None else now - before


def build_energy_meter(device: torch.device, replicas: int = 1) -> EnergyMeter:
    """Build the energy meter for a device, or for the first `replicas` GPUs with DataParallel."""
    if device.type == "cuda":
        return _nvml([torch.device("cuda", i) for i in range(replicas)] if replicas > 1 else [device])
    return _rapl(POWERCAP)


def steps_lasting(least_s: float, steps: int, seconds: float) -> int:
    """Return how many steps make a block last at least `least_s`, if `steps` take `seconds`; at least `steps`."""
    return max(steps, math.ceil(steps * least_s / seconds))


def _rapl(folder: Path) -> EnergyMeter:
    """Return a meter that adds the counters of all processor packages; each wraps around to 0 at its maximum."""
    # The folder also has the parts of each package and, on many laptops, the whole platform (psys) around them.
    packages = sorted(
        name.parent for name in folder.glob("intel-rapl:*/name") if name.read_text().startswith("package")
    )
    if not packages:
        return EnergyMeter("none", f"no processor energy counters (RAPL) in {folder}")

    def microjoules(package: Path) -> int:
        return int((package / "energy_uj").read_text())

    try:
        ranges = [int((package / "max_energy_range_uj").read_text()) for package in packages]
        last = list(map(microjoules, packages))
    except OSError as error:  # on many machines only root may read them
        return EnergyMeter("none", str(error))
    total = 0.0

    def read() -> float:
        nonlocal total
        for i, package in enumerate(packages):
            now = microjoules(package)
            total += ((now - last[i]) % (ranges[i] + 1)) / 1e6
            last[i] = now
        return total

    return EnergyMeter("RAPL, processor packages", read=read)


def _nvml(devices: Sequence[torch.device]) -> EnergyMeter:
    """Return a meter of the GPUs' energy counters, in mJ since the driver was loaded (Volta and later)."""
    try:
        import pynvml
    except ImportError:
        return EnergyMeter(
            "none", "measuring the energy of a GPU needs the package nvidia-ml-py: pip install nvidia-ml-py"
        )
    try:
        pynvml.nvmlInit()
        names = [f"GPU-{torch.cuda.get_device_properties(device).uuid}" for device in devices]
        handles = [pynvml.nvmlDeviceGetHandleByUUID(name) for name in names]

        def read() -> float:
            return sum(map(pynvml.nvmlDeviceGetTotalEnergyConsumption, handles)) / 1e3

        read()  # fails here, not during a measurement, if the GPU has no counter
    except pynvml.NVMLError as error:
        return EnergyMeter("none", f"the energy of this GPU cannot be measured (NVML: {error})")

    def boards() -> list[dict]:
        return [_board(pynvml, handle) for handle in handles]

    return EnergyMeter("NVML, GPU board", "", read, boards, NVML_LEAST_S)


def _board(nvml: ModuleType, handle: object) -> dict:
    """Return facts that determine the speed of a GPU; None for those that the board or driver does not report."""

    def ask(function: Callable, *arguments: object) -> float | str | None:
        try:
            return function(*arguments)
        except nvml.NVMLError:
            return None

    limit_mw = ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    reasons = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
    return {
        "sm_mhz": ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        "memory_mhz": ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
        "temperature_c": ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        "power_limit_w": None if limit_mw is None else limit_mw / 1e3,
        "driver": ask(nvml.nvmlSystemGetDriverVersion),
        "throttled": [name for bit, name in THROTTLING.items() if reasons & bit],
    }
