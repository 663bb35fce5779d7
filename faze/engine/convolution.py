"""How convolutions are turned into kernels: cuDNN's algorithm search."""

import torch

from faze.engine.switches import Switch


def set_cudnn_benchmark(wanted: bool, device: torch.device) -> Switch:
    """Let cuDNN time its algorithms for each new shape and keep the fastest (process-wide)."""
    torch.backends.cudnn.benchmark = wanted
    reason = "cuDNN runs on CUDA devices only" if wanted and device.type != "cuda" else ""
    return Switch("cudnn_benchmark", str(wanted).lower(), str(wanted and not reason).lower(), reason)
