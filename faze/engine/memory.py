"""What a step keeps: recomputed activations, a batch in parts."""

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from faze.engine.switches import Switch


def set_lean(module: nn.Module, wanted: bool) -> Switch:
    """Let every part that has a second way with fewer kept activations, its attribute `lean`, take it."""
    parts = [part for part in module.modules() if hasattr(part, "lean")]
    for part in parts:
        part.lean = wanted
    reason = "no part of the model has a lean way" if wanted and not parts else ""
    return Switch("lean", str(wanted).lower(), str(wanted and not reason).lower(), reason)


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
