"""The machine, versions and commit behind a measurement."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

from faze.base.code_hash import ROOT
from faze.base.machine import memory_bytes, recorded_variables, usable_cores

PACKAGES = ("torch", "numpy", "opencv-python-headless", "h5py", "apex")


def describe() -> dict[str, str]:
    """Return the processor, GPUs, system, environment variables, versions, commit, usable cores and memory."""
    cores, allowed = usable_cores(), len(os.sched_getaffinity(0))
    facts = {
        "processor": _processor(),
        "cores": str(cores),
        "cpu_quota": f"{cores} of {allowed} cores" if cores < allowed else "",
        "memory_gib": f"{memory_bytes() / 2**30:.1f}",
        "system": platform.platform(),
        "python": platform.python_version(),
        "variables": recorded_variables(),
        "commit": commit(),
    }
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        versions = {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
        facts |= {"gpus": ", ".join(names)} | versions
    return facts | {package: _version(package) for package in PACKAGES}


def commit() -> str:
    """Return the git commit of faze's checkout, with `+` for uncommitted changes, or "unknown" if there is none."""
    git = ["git", "--no-optional-locks", "-C", str(ROOT)]
    try:
        found = subprocess.check_output([*git, "rev-parse", "--short=12", "HEAD"], stderr=subprocess.DEVNULL, text=True)
        return found.strip() + "+" * bool(subprocess.check_output([*git, "status", "--porcelain"]))
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("FAZE_COMMIT", "unknown")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
