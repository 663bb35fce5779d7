"""Energy counters of the device, where it has any: NVML of NVIDIA's driver, RAPL of x86 processors.

Both count everything the board or the processor package used, idling and other programs included. NVML needs the
package nvidia-ml-py; it also tells clocks, temperature and power limit, and what holds the clocks down.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

POWERCAP = Path("/sys/class/powercap")
# NVML renews its counter some tens of times a second: it counts shorter blocks wrong by several percent.
NVML_LEAST_S = 2.0
# Bits of nvmlDeviceGetCurrentClocksEventReasons which say that the board is slower than it could be.
THROTTLING = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "temperature, by the driver",
    0x40: "temperature, by the hardware",
    0x80: "power brake",
}


@dataclass(frozen=True)
class Meter:
    """A counter of joules since some moment, or why there is none."""

    source: str
    reason: str = ""
    read: Callable[[], float | None] = lambda: None
    boards: Callable[[], list[dict]] = list  # clocks, temperature, limit and throttling of each GPU at this moment
    least_s: float = 0.0  # of a block whose energy it is to count

    def since(self, before: float | None) -> float | None:
        """Joules since an earlier reading."""
        now = self.read()
        return None if now is None or before is None else now - before


def build_meter(device: torch.device, replicas: int = 1) -> Meter:
    """Build the meter of a device; of the first ones if DataParallel has several replicas."""
    if device.type == "cuda":
        return _nvml([torch.device("cuda", i) for i in range(replicas)] if replicas > 1 else [device])
    return _rapl(POWERCAP)


def lengthened(steps: int, seconds: float, least_s: float) -> int:
    """Count the steps of a block that takes least_s, if so many steps take fewer seconds."""
    return max(steps, math.ceil(steps * least_s / seconds))


def _rapl(folder: Path) -> Meter:
    """Add up all processor packages; the counter of each starts anew from 0 when it is full."""
    # Their parts stand beside them, and on many laptops the whole platform (psys), which holds the packages.
    packages = sorted(name.parent for name in folder.glob("intel-rapl:*/name") if _is_package(name))
    if not packages:
        return Meter("none", f"no energy counters of the processor (RAPL) under {folder}")
    try:
        spans = [int((package / "max_energy_range_uj").read_text()) for package in packages]
        last = [_microjoules(package) for package in packages]
    except OSError as error:  # only root may read them on many machines
        return Meter("none", str(error))
    total = 0.0

    def read() -> float:
        nonlocal total
        for i, package in enumerate(packages):
            now = _microjoules(package)
            total += ((now - last[i]) % (spans[i] + 1)) / 1e6
            last[i] = now
        return total

    return Meter("RAPL, processor packages", read=read)


def _is_package(name: Path) -> bool:
    return name.read_text().startswith("package")


def _microjoules(package: Path) -> int:
    return int((package / "energy_uj").read_text())


def _nvml(devices: Sequence[torch.device]) -> Meter:
    """Add up the GPUs' millijoules since the driver was loaded (Volta and later)."""
    try:
        import pynvml
    except ImportError:
        return Meter("none", "the energy of a GPU needs the package nvidia-ml-py: pip install nvidia-ml-py")
    try:
        pynvml.nvmlInit()
        names = [f"GPU-{torch.cuda.get_device_properties(device).uuid}" for device in devices]
        handles = [pynvml.nvmlDeviceGetHandleByUUID(name) for name in names]

        def read() -> float:
            return sum(map(pynvml.nvmlDeviceGetTotalEnergyConsumption, handles)) / 1e3

        read()  # now, not amid a measurement, say that it cannot
    except pynvml.NVMLError as error:
        return Meter("none", f"no energy of this GPU: NVML says {error}")
    boards = [_Board(pynvml, handle) for handle in handles]
    return Meter("NVML, GPU board", "", read, lambda: [board.state() for board in boards], NVML_LEAST_S)


@dataclass(frozen=True)
class _Board:
    """A GPU as NVML knows it."""

    nvml: ModuleType
    handle: object

    def state(self) -> dict:
        """Read what decides how fast it is; what this board or driver does not tell is None."""
        nvml, handle = self.nvml, self.handle
        limit_mw = self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        return {
            "sm_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            "memory_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            "temperature_c": self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            "power_limit_w": None if limit_mw is None else limit_mw / 1e3,
            "driver": self._ask(nvml.nvmlSystemGetDriverVersion),
            "throttled": [words for bit, words in THROTTLING.items() if reasons & bit],
        }

    def _ask(self, function: Callable, *arguments: object) -> float | str | None:
        try:
            return function(*arguments)
        except self.nvml.NVMLError:
            return None
