"""Energy counters of the device, where it has any: NVML of NVIDIA's driver, RAPL of x86 processors.

Both count everything the board or the processor package used, idling and other programs included. Standard library and
torch only.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from faze.base.errors import UserError

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
    """The meter of a device."""
    try:
        return _nvml(device) if device.type == "cuda" else _rapl(POWERCAP)
    except (OSError, AttributeError, ValueError) as error:
        return Meter("none", str(error))


def _rapl(folder: Path) -> Meter:
    """Of all processor packages; the counter of each starts anew from 0 when it is full."""
    packages = sorted(path for path in folder.glob("intel-rapl:*") if path.name.count(":") == 1)
    if not packages:
        raise UserError(f"no energy counters of the processor (RAPL) under {folder}")
    spans = [int((package / "max_energy_range_uj").read_text()) for package in packages]
    last = [_microjoules(package) for package in packages]
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
    """Of one GPU, in millijoules since the driver was loaded (Volta and later)."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    _check(nvml.nvmlInit_v2())
    handle = ctypes.c_void_p()
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode()
    _check(nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)))

    def read() -> float:
        millijoules = ctypes.c_ulonglong()
        _check(nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules)))
        return millijoules.value / 1e3

    read()  # now, rather than in the middle of a measurement, say that it cannot
    return Meter("NVML, GPU board", read=read)


def _check(code: int) -> None:
    if code:
        raise OSError(f"NVML answers {code} (nvmlReturn_t): no energy of this GPU")
