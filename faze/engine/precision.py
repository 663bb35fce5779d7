"""Number formats: autocast, dynamic loss scaling and TF32.

NVIDIA's talk calls fp16 autocast with dynamic loss scaling O1. `apex.amp` was removed from apex in 2025; torch.amp is
its successor.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from faze.config.parameters import Engine
from faze.engine.switches import Switch

Context = Callable[[], contextlib.AbstractContextManager]

CPU_FLAGS = {"fp16": "amx_fp16", "bf16": "avx512_bf16"}  # keys of torch.cpu.get_capabilities() for these formats
DTYPES = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}


class Scaler(torch.amp.GradScaler):
    """Dynamic loss scaling, with a count of skipped steps that stays on the device, so that no step waits for it."""

    def __init__(self, device: torch.device, *, enabled: bool) -> None:
        super().__init__(device.type, enabled=enabled)
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)
        self._one = torch.ones((), device=device)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Adapt the scale, which decreases if and only if the step was skipped."""
        before = self.scale(self._one)
        super().update(new_scale)
        self.skipped += self.scale(self._one) < before

    def state_dict(self) -> dict[str, float]:
        """Return the state for a checkpoint, or {} if the scaler is off."""
        return super().state_dict() | ({"skipped": int(self.skipped)} if self.is_enabled() else {})

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore the state from a checkpoint."""
        super().load_state_dict(state)
        self.skipped.fill_(state["skipped"])


@dataclass(frozen=True)
class Precision:
    """The precision of a step; if disabled, the autocast context does nothing and the scaler does not scale."""

    autocast: Context
    low: torch.dtype | None  # the 16-bit format of autocast; None: no autocast
    scaler: Scaler
    switches: tuple[Switch, ...]


@contextlib.contextmanager
def exact(module: nn.Module) -> Iterator[None]:
    """Compute in true fp32, whatever precision a tier trains with, so that errors are comparable between tiers.

    TF32, which cuDNN uses by default, is off, and every part with an `autocast` attribute computes without autocast.
    """
    settings = [(flags, "allow_tf32", False) for flags in (torch.backends.cuda.matmul, torch.backends.cudnn)]
    parts = [part for part in module.modules() if hasattr(part, "autocast")]
    settings += [(part, "autocast", contextlib.nullcontext) for part in parts]
    before = [getattr(owner, name) for owner, name, _ in settings]
    for owner, name, plain in settings:
        setattr(owner, name, plain)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(settings, before, strict=True):
            setattr(owner, name, value)


def build_precision(engine: Engine, device: torch.device) -> Precision:
    """Set TF32, which is process-wide, and build the autocast context and the scaler for a tier."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = engine.tf32
    reason = "" if engine.precision == "fp32" or engine.force else _missing_kernels(engine.precision, device)
    effective = "fp32" if reason else engine.precision
    dtype = DTYPES[effective]
    autocast = functools.partial(torch.autocast, device.type, dtype) if dtype else contextlib.nullcontext
    acted = {"fp16": "fp16 autocast, dynamic loss scaling", "bf16": "bf16 autocast"}.get(effective, "fp32")
    switches = (
        Switch("precision", engine.precision, acted, reason),
        Switch.of("force", engine.force, "" if effective != "fp32" else "precision is fp32"),
        Switch.of("tf32", engine.tf32, "" if device.type == "cuda" else "only CUDA devices have TF32"),
    )
    return Precision(autocast, dtype, Scaler(device, enabled=effective == "fp16"), switches)


def _missing_kernels(precision: str, device: torch.device) -> str:
    """Return why low precision would be slow on a device, or "" if the device has the kernels."""
    if device.type == "cuda":
        name, supported = "GPU", precision == "fp16" or torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        name, supported = "CPU", torch.cpu.get_capabilities().get(CPU_FLAGS[precision], False)
    slow = f"this {name} has no {precision} kernels, and autocast would be many times slower; set force: true to use it"
    return "" if supported else slow
