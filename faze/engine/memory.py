"""What a step keeps in memory: recomputed activations, checkpoints, and what glibc does with freed memory."""

import contextlib
import functools
from collections.abc import Callable

from torch import nn
from torch.utils.checkpoint import checkpoint

from faze.base.allocator_retention import keeps_memory
from faze.engine.switches import Switch


def set_recompute(module: nn.Module, wanted: bool) -> Switch:
    """Let every part with the attribute `recompute` use its low-memory implementation."""
    parts = [part for part in module.modules() if hasattr(part, "recompute")]
    for part in parts:
        part.recompute = wanted
    return Switch.of("recompute", wanted, "" if parts else "no part of the model has a low-memory implementation")


def set_checkpointing(
    module: nn.Module, wanted: bool, *, recompute: bool, within: Callable[[], contextlib.AbstractContextManager] | None
) -> Switch:
    """Checkpoint the calls of every network that calls its parts through its attribute `call`.

    Args:
        module: the objective.
        wanted: compute the activations inside a part again in the backward pass.
        recompute: whether the recompute layers are used; a recompute block keeps only its output, as a checkpoint does.
        within: context that the second computation must enter; torch enters autocast by itself.
    """
    parts = [part for part in module.modules() if hasattr(part, "call")]
    reason = "the recompute layers compute inner activations again anyway" if recompute else ""
    reason = reason or ("" if parts else "no part of the model can be computed again")
    if wanted and not reason:
        # The network draws no random numbers, so there is no random state to restore.
        options = {"use_reentrant": False, "preserve_rng_state": False}
        if within is not None:  # torch.compile rejects a context_fn of ours, even one that does nothing
            options["context_fn"] = lambda: (contextlib.nullcontext(), within())
        for part in parts:
            part.call = functools.partial(checkpoint, **options)
    return Switch.of("checkpointing", wanted, reason)


def allocator_switch(wanted: str) -> Switch:
    """Return the report of `allocator`, which takes effect when a process starts (`faze.base.allocator_retention`)."""
    acted = "keep" if keeps_memory() else "default"
    if wanted == acted:
        return Switch("allocator", wanted, acted)
    reasons = {
        "keep": "this process keeps memory, as every training does whatever its tier",
        "default": "this process was started without glibc's settings, or its C library is not glibc",
    }
    return Switch("allocator", wanted, acted, reasons[acted])
