"""Energy counters of the device, where it has any: NVML of NVIDIA's driver, RAPL of x86 processors.

Both count everything the board or the processor package used, idling and other programs included. NVML needs the
package nvidia-ml-py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Meter:
    """A counter of joules since some moment, or why there is none."""

    source: str
    reason: str = ""
    read: Callable[[], float | None] = lambda: None

    def since(self, before: float | None) -> float | None:
        """Joules since an earlier reading."""
        now = self.read()
        return None if now is None or before is None else now - before


def build_meter(device: torch.device) -> Meter:
    """Build the meter of a device."""
    return _nvml(device) if device.type == "cuda" else _rapl(POWERCAP)


def _rapl(folder: Path) -> Meter:
    """Add up all processor packages; the counter of each starts anew from 0 when it is full."""
    packages = sorted(path for path in folder.glob("intel-rapl:*") if path.name.count(":") == 1)
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


def _microjoules(package: Path) -> int:
    return int((package / "energy_uj").read_text())


def _nvml(device: torch.device) -> Meter:
    """Read one GPU's millijoules since the driver was loaded (Volta and later)."""
    try:
        import pynvml
    except ImportError:
        return Meter("none", "the energy of a GPU needs the package nvidia-ml-py: pip install nvidia-ml-py")
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)  # now, not amid a measurement, say that it cannot
    except pynvml.NVMLError as error:
        return Meter("none", f"no energy of this GPU: NVML says {error}")
    return Meter("NVML, GPU board", read=lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)
