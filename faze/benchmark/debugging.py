"""What slows down training steps, or enlarges their memory, in a process that looks for errors."""

import os
import sys
import tracemalloc

import torch

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
    """Check that no debugging mode of this process slows down what is measured.

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
