"""Clocks and memory of a training step. DESIGN section 7: one definition of time, one of memory.

Standard library, numpy and torch only: the benchmark runs on a bare machine.
"""

import contextlib
import ctypes
import math
import os
import resource
import sys
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike

from faze.base.errors import UserError

# Each makes steps slower, or memory larger, than those of a training. (Autograd's gradcheck is a call, not a mode.)
DEBUG_VARIABLES = (
    "CUDA_INJECTION64_PATH",  # Nsight and other profilers come in through it
    "CUDA_LAUNCH_BLOCKING",
    "DNNL_VERBOSE",
    "MKL_VERBOSE",
    "ONEDNN_VERBOSE",
    "PYTHONDEVMODE",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_CUDA_SANITIZER",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_SHOW_DISPATCH_TRACE",
)


def refuse_debugging() -> None:
    """See that nothing which is on in this process for finding errors slows down what is measured.

    Raises:
        UserError: something is; names all of it.
    """
    modes = {
        "autograd's anomaly mode": torch.is_anomaly_enabled(),
        # The first knows all threads, the second also the marks for Nsight and VTune.
        "torch's profiler": torch.autograd.profiler._is_profiler_enabled or torch.autograd._profiler_enabled(),
        "CUDA's sync debug mode": torch.cuda.is_initialized() and torch.cuda.get_sync_debug_mode() != 0,
        "a tracer or profiler of Python": sys.gettrace() is not None or sys.getprofile() is not None,
        "tracemalloc": tracemalloc.is_tracing(),
        "Python's development mode": sys.flags.dev_mode,
    }
    off = ("", "0", "OFF", "NONE", "FALSE")
    variables = [
        f"{name}={os.environ[name]}" for name in DEBUG_VARIABLES if os.environ.get(name, "").upper() not in off
    ]
    if found := [name for name, is_on in modes.items() if is_on] + variables:
        raise UserError(f"nothing was measured, since debugging slows it down: switch off {', '.join(found)}")


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class PhaseClock:
    """Seconds per phase of a step; synchronises around each, so its sum is more than an undisturbed step takes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time of the block to the phase."""
        synchronize(self._device)
        began = time.perf_counter()
        yield
        synchronize(self._device)
        self.seconds[phase] += time.perf_counter() - began


class MemoryPeak:
    """Peak memory above what the process held when this was made (after imports and data, before the model).

    On a GPU: the allocator's peak. On a CPU: the kernel's high-water mark of resident memory, reset first; getrusage
    would report the parent's peak, since it survives fork and exec.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            _import_the_rest_of_torch()
            _give_back_freed_memory()
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            self._before = _status_bytes("VmRSS")

    def read(self) -> dict[str, float]:
        """peak_gib, and on a GPU the reserved peak too."""
        if self._device.type == "cuda":
            return {
                "peak_gib": torch.cuda.max_memory_allocated(self._device) / 2**30,
                "reserved_gib": torch.cuda.max_memory_reserved(self._device) / 2**30,
            }
        return {"peak_gib": (_status_bytes("VmHWM") - self._before) / 2**30}


def _import_the_rest_of_torch() -> None:
    """Torch imports 70 MiB of itself when the first optimiser of a process is made: interpreter, not training."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    weight.sum().backward()
    optimizer.step()


def _give_back_freed_memory() -> None:
    """What loading the data left in malloc's hands would serve the first steps, and their peak would miss it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc's
        trim(0)


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95) -> dict:
    """Ratio of two interleaved series, block by block, with a t interval on the logarithms.

    Returns:
        ratio, low, high; ratio is the geometric mean.
    """
    logs = mean_interval(np.log(np.asarray(numerator)) - np.log(np.asarray(denominator)), confidence)
    return {"ratio": math.exp(logs["mean"]), "low": math.exp(logs["low"]), "high": math.exp(logs["high"])}


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> dict[str, float]:
    """Mean of independent values with its t interval: mean, low, high."""
    values = np.asarray(values, dtype=float)
    n, mean = len(values), float(values.mean())
    half = student_quantile((1 + confidence) / 2, n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def student_quantile(p: float, freedom: int) -> float:
    """Quantile of Student's t for p >= 0.5, by bisection of its integrated density (scipy is not in the core)."""
    # Substituting t = sqrt(freedom) tan(u) makes the density a power of the cosine on a finite interval.
    u = np.linspace(0.0, math.pi / 2, 20001)
    density = np.cos(u) ** (freedom - 1)
    cumulative = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(float(np.interp(2 * p - 1, cumulative / cumulative[-1], u)))
