"""The machine, versions and commit behind a measurement."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

from faze.base import cgroup
from faze.base.errors import UserError

OLDEST_TORCH, NEWEST_TORCH = (2, 11), (2, 13)  # tested
PACKAGES = ("torch", "numpy", "opencv-python-headless", "h5py", "apex")


def describe() -> dict[str, str]:
    """Return processor, GPUs, operating system, versions, git commit, and the cores and memory (GiB) for this process.

    In a container, these are limited by its CPU quota and memory limit.
    """
    facts = {
        "processor": _processor(),
        "cores": str(cgroup.usable_cores()),
        "cpu_quota": cgroup.describe_quota(),
        "memory_gib": f"{cgroup.memory_bytes() / 2**30:.1f}",
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": commit(),
    }
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        facts |= {
            "gpus": ", ".join(names),
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
        }
    return facts | {package: _version(package) for package in PACKAGES}


def check_torch() -> None:
    """Check that the installed torch is one with which the switches have been tested.

    Raises:
        UserError: it is older or newer.
    """
    if not OLDEST_TORCH <= tuple(map(int, torch.__version__.split(".")[:2])) <= NEWEST_TORCH:
        tested = " to ".join(".".join(map(str, version)) for version in (OLDEST_TORCH, NEWEST_TORCH))
        raise UserError(
            f"torch {torch.__version__} is not tested with faze, so a switch could go wrong: install {tested}"
        )


def commit() -> str:
    """Return the git commit of faze's checkout, with `+` for uncommitted changes.

    Without .git, return $FAZE_COMMIT, or else "unknown".
    """
    git = ["git", "-C", str(Path(__file__).resolve().parent)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("FAZE_COMMIT", "unknown")
    return head.stdout.strip() + ("+" if status.stdout.strip() else "")


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
