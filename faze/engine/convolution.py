"""How convolutions are turned into kernels: cuDNN's algorithm search, the order of a tensor in memory."""

import torch
from torch import nn

from faze.engine.switches import Switch


def set_cudnn_benchmark(wanted: bool, device: torch.device) -> Switch:
    """Let cuDNN time its algorithms for each new shape and keep the fastest (process-wide)."""
    torch.backends.cudnn.benchmark = wanted
    return Switch.of("cudnn_benchmark", wanted, "" if device.type == "cuda" else "cuDNN runs on CUDA devices only")


def set_channels_last(module: nn.Module, wanted: bool, *, recompute: bool) -> Switch:
    """Store the kernels channels-last; a convolution then computes and answers in that order.

    Args:
        module: the objective.
        wanted: else every kernel is contiguous.
        recompute: layers that recompute normalise plane by plane, and would copy every map to the other layout.
    """
    switch = Switch.of("channels_last", wanted, "the recompute layers normalise plane by plane" if recompute else "")
    module.to(memory_format=torch.channels_last if wanted and switch.active else torch.contiguous_format)
    return switch
