"""What a step keeps: recomputed activations, a batch in parts, what the allocators do with freed memory."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from faze.base.allocator_retention import keeps_memory
from faze.engine.switches import Switch


def set_recompute(module: nn.Module, wanted: bool) -> Switch:
    """Let every part with the attribute `recompute` take its second way, which keeps fewer activations."""
    parts = [part for part in module.modules() if hasattr(part, "recompute")]
    for part in parts:
        part.recompute = wanted
    return Switch.of("recompute", wanted, "" if parts else "no part of the model has a recompute way")


def set_checkpointing(
    module: nn.Module, wanted: bool, *, recompute: bool, within: Callable[[], contextlib.AbstractContextManager] | None
) -> Switch:
    """Let every network that calls its parts by its attribute `call` keep only what passes between them.

    Args:
        module: the objective.
        wanted: compute what is inside a part again in the backward pass.
        recompute: the parts are recompute already; a recompute block keeps its output alone, as a checkpoint would.
        within: context that the second computation must enter; autocast is entered anyway.
    """
    parts = [part for part in module.modules() if hasattr(part, "call")]
    reason = "the recompute layers compute inner activations again anyway" if recompute else ""
    reason = reason or ("" if parts else "no part of the model can be computed again")
    if wanted and not reason:
        # Without random numbers there is no random state to restore.
        how = {"use_reentrant": False, "preserve_rng_state": False}
        if within is not None:  # only then: torch.compile refuses foreign contexts here
            how["context_fn"] = lambda: (contextlib.nullcontext(), within())
        for part in parts:
            part.call = functools.partial(checkpoint, **how)
    return Switch.of("checkpointing", wanted, reason)


def find_allocator(wanted: str) -> Switch:
    """Say what becomes of freed memory (`faze.base.allocator_retention`): that was settled when the process started."""
    acted = "keep" if keeps_memory() else "default"
    if wanted == acted:
        return Switch("allocator", wanted, acted)
    reasons = {
        "keep": "this process keeps memory, as every training does whatever its tier",
        "default": "glibc was not told so when this process started; another C library cannot be told",
    }
    return Switch("allocator", wanted, acted, reasons[acted])


def in_parts(batch: Mapping[str, Tensor], parts: int) -> Iterator[dict[str, Tensor]]:
    """Cut a batch into contiguous parts of equal size.

    Raises:
        ValueError: it cannot be cut into so many.
    """
    size = len(next(iter(batch.values())))
    if size % parts:
        raise ValueError(f"{size} pairs on one process cannot be cut into engine.accumulate {parts} equal parts")
    for first in range(0, size, size // parts):
        yield {name: value[first : first + size // parts] for name, value in batch.items()}
