"""The machine, versions and commit behind a measurement."""

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

import torch

from faze.base import cgroup
from faze.base.code_hash import ROOT
from faze.base.environment import recorded_variables
from faze.base.errors import UserError

OLDEST_TORCH, NEWEST_TORCH = (2, 11), (2, 13)  # tested
_REFUSALS = {  # part of git's message: the reason
    "not a git repository": "faze's folder is not a git repository",
    "dubious ownership": "git refuses the folder of another user: set git's safe.directory",
    "Needed a single revision": "the repository has no commit",
}
PACKAGES = ("torch", "numpy", "opencv-python-headless", "h5py", "apex")


def describe() -> dict[str, str]:
    """Return processor, GPUs, operating system, variables, versions, git commit, cores and memory (GiB).

    In a container, cores and memory are limited by its CPU quota and memory limit.
    """
    facts = {
        "processor": _processor(),
        "cores": str(cgroup.usable_cores()),
        "cpu_quota": cgroup.describe_quota(),
        "memory_gib": f"{cgroup.memory_bytes() / 2**30:.1f}",
        "system": platform.platform(),
        "python": platform.python_version(),
        "variables": recorded_variables(),
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


def lacks_memory(error: Exception) -> bool:
    """Return whether an error means that memory could not be allocated."""
    words = "can't allocate memory"  # torch's allocator for CPUs
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or words in str(error)


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

    Without a repository of its own, return $FAZE_COMMIT, or else "unknown" and the reason.
    """
    try:
        if Path(_git("rev-parse", "--show-toplevel")).resolve() != ROOT:
            reason = "faze's folder is inside another repository"
        else:
            return _git("rev-parse", "--verify", "--short=12", "HEAD") + "+" * bool(_git("status", "--porcelain"))
    except OSError as error:
        reason = f"git cannot be started: {error.strerror}"
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode(errors="replace")
        reason = next((words for mark, words in _REFUSALS.items() if mark in message), "git failed")
    return os.environ.get("FAZE_COMMIT") or f"unknown ({reason})"


def _git(*words: str) -> str:
    """Run git in faze's folder; ignore GIT_DIR and similar variables, which hooks set for another repository."""
    kept = {name: value for name, value in os.environ.items() if not re.match("GIT_(?!CONFIG_|EXEC_PATH)", name)}
    git = ["git", "--no-optional-locks", "-C", str(ROOT), *words]
    done = subprocess.run(git, capture_output=True, check=True, env=kept | {"LC_ALL": "C"})
    return os.fsdecode(done.stdout.removesuffix(b"\n"))


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
