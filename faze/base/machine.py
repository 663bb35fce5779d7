"""The machine and environment of a process: cores, memory, GPUs, a machine-wide lock, and environment variables."""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from faze.base.errors import UserError

LOCK_VARIABLE = "FAZE_MACHINE_LOCK"  # overrides the lock's path, for tests and for containers that share a machine
LAUNCHER = "FAZE_LAUNCHER"  # process id of the torchrun that faze started, set in the environment of torchrun's workers
SINGLE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}  # values of a single process
# Prefixes of variables that can change speed, memory or rounding, followed by the suffixes of exceptions.
RECORDED = (
    *("ATEN_", "CUBLAS", "CUDNN_", "DNNL_", "GLOO_", "GOMP_", "KMP_", "MALLOC_", "MKL_", "NCCL_", "OMP_", "ONEDNN_"),
    *("PYTORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TORCH_", "TRITON_", "NVIDIA_TF32_OVERRIDE"),
    *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "LD_PRELOAD", "PYTHONMALLOC", "PYTHONOPTIMIZE"),
)
UNRECORDED = ("_NUM_THREADS", "_DIR", "_HOME", "_PATH", "TORCH_NCCL_ASYNC_ERROR_HANDLING")  # torchrun sets the last one


def usable_cores() -> int:
    """Return how many cores this process may use, given its CPU affinity and its container's CPU quota."""
    import joblib  # imported late, like pydantic in __main__, since `faze --help` needs neither

    return joblib.cpu_count()


def memory_bytes() -> int:
    """Return how many bytes of memory this process may use: the machine's memory, or its container's limit if lower."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max" means no limit
            limits.append(int(Path(path).read_text()))
    return min(limits)


def gpus() -> int:
    """Count the GPUs that CUDA would see, without importing torch."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    with contextlib.suppress(Exception):  # no pynvml or no driver
        import pynvml

        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetCount()
    return 0


@contextlib.contextmanager
def machine_lock(exclusive: bool) -> Iterator[None]:
    """Hold the machine's lock, which all checkouts use: exclusive for a benchmark, shared for training runs.

    The kernel releases the lock when the last process that holds it ends, even by kill -9.
    """
    path = Path(os.environ.get(LOCK_VARIABLE, "/tmp/faze-machine.lock"))
    if not path.exists():
        path.touch()
        path.chmod(0o644)  # whatever the umask, so that other users can open it
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    with path.open() as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            others = "training runs and benchmarks" if exclusive else "a benchmark"
            print(f"waiting for {others} on this machine to end ({path})", file=sys.stderr, flush=True)
            fcntl.flock(file, kind)
        yield


def check_environment() -> None:
    """Raise a UserError if another launcher started this process as one of several, as faze would wait for the rest."""
    stated = {name: os.environ.get(name) or single for name, single in SINGLE.items()}
    found = [f"{name}={value}" for name, value in stated.items() if value != SINGLE[name]]
    if found and LAUNCHER not in os.environ:
        effect = "set by another launcher, would make faze wait for processes that never start"
        remedy = "Unset the variables, or start faze without torchrun"
        raise UserError(f"{', '.join(found)} in the environment, {effect}. {remedy}")


def recorded_variables() -> str:
    """Return the environment variables that can change speed, memory or rounding, as "NAME=value, ...", or ""."""
    found = {name: value for name, value in sorted(os.environ.items()) if name.startswith(RECORDED)}
    return ", ".join(f"{name}={value}" for name, value in found.items() if value and not name.endswith(UNRECORDED))
