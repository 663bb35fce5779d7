"""Number formats: autocast, dynamic loss scaling, TF32.

O1 of the talk is fp16 autocast with dynamic loss scaling. `apex.amp` left apex in 2025; torch.amp is its successor.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from faze.config.parameters import Engine
from faze.engine.operations import formats_of
from faze.engine.switches import Switch

Context = Callable[[], contextlib.AbstractContextManager]


class Scaler(torch.amp.GradScaler):
    """Dynamic loss scaling that counts the steps it skips, on the device: no step waits for the count."""

    def __init__(self, device: torch.device, *, enabled: bool) -> None:
        super().__init__(device.type, enabled=enabled)
        self._skipped = torch.zeros((), dtype=torch.int64, device=device)
        self._one = torch.ones((), device=device)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Adapt the scale; it falls if, and only if, the step was skipped."""
        before = self.scale(self._one)
        super().update(new_scale)
        self._skipped += self.scale(self._one) < before

    def counts(self) -> dict[str, float]:
        """Count the skipped steps for the run log; nothing if the scaler is off. Reading waits for the device."""
        return {"train/skipped_steps": float(self._skipped)} if self.is_enabled() else {}

    def state_dict(self) -> dict[str, float]:
        """Give the state for a checkpoint; empty if the scaler is off."""
        return super().state_dict() | ({"skipped": int(self._skipped)} if self.is_enabled() else {})

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue from a checkpoint."""
        super().load_state_dict(state)
        self._skipped.fill_(state["skipped"])


@dataclass(frozen=True)
class Precision:
    """How the step computes; off is a no-op context and a scaler that passes everything through."""

    autocast: Context
    operations: Context | None  # formats of single operations; a layer that is recomputed must enter it again
    scaler: Scaler
    switches: tuple[Switch, ...]


@contextlib.contextmanager
def exact(module: nn.Module) -> Iterator[None]:
    """Compute fp32 as fp32, whatever a tier trains with: errors are compared between tiers, so all are found alike.

    TF32, on by default in cuDNN, is off, and every part with the attribute `autocast` computes without it.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    parts = [(part, part.autocast) for part in module.modules() if hasattr(part, "autocast")]
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    for part, _ in parts:
        part.autocast = contextlib.nullcontext
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
        for part, autocast in parts:
            part.autocast = autocast


def build_precision(engine: Engine, device: torch.device) -> Precision:
    """Set TF32 for the process, and make the autocast context and the scaler of a tier."""
    torch.backends.cuda.matmul.allow_tf32 = engine.tf32
    torch.backends.cudnn.allow_tf32 = engine.tf32
    reason = "" if engine.precision == "fp32" or engine.force else _no_kernels(engine.precision, device)
    acts = "fp32" if reason else engine.precision
    dtype = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}[acts]
    autocast = functools.partial(torch.autocast, device.type, dtype) if dtype else contextlib.nullcontext
    lists_reason = _no_lists(acts, engine)
    operations = None
    if (engine.keep_fp32 or engine.force_low) and not lists_reason:
        operations = formats_of(engine.keep_fp32, engine.force_low, dtype, device.type)
        autocast = functools.partial(_inside, autocast, operations)
    acted = {"fp16": "fp16 autocast, dynamic loss scaling", "bf16": "bf16 autocast"}.get(acts, "fp32")
    tf32_reason = "" if device.type == "cuda" else "TF32 is a format of CUDA devices"
    switches = (
        Switch("precision", engine.precision, acted, reason),
        Switch.of("force", engine.force, "" if acts != "fp32" else "no low precision is asked for"),
        Switch.of("tf32", engine.tf32, tf32_reason),
        Switch.of("keep_fp32", engine.keep_fp32, lists_reason),
        Switch.of("force_low", engine.force_low, lists_reason),
    )
    return Precision(autocast, operations, Scaler(device, enabled=acts == "fp16"), switches)


@contextlib.contextmanager
def _inside(autocast: Context, operations: Context) -> Iterator[None]:
    with autocast(), operations():
        yield


def _no_lists(acts: str, engine: Engine) -> str:
    """Return why operations cannot have their own format: recompute and fused layers hide their names; else ""."""
    if acts == "fp32":
        return "no operation is in low precision"
    if engine.recompute:
        return "the recompute layers follow autocast alone"
    if engine.fused_norm and {*engine.keep_fp32, *engine.force_low} & {"instance_norm", "leaky_relu"}:
        return "fused_norm makes one operation of instance_norm and leaky_relu, which follows autocast alone"
    return ""


def _no_kernels(precision: str, device: torch.device) -> str:
    if device.type == "cuda":
        supported = precision == "fp16" or torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        supported = torch.cpu._is_amx_fp16_supported() if precision == "fp16" else torch.cpu._is_avx512_bf16_supported()
    if supported:
        return ""
    where = "GPU" if device.type == "cuda" else "CPU"
    slow = "autocast would be many times slower; `force: true` uses it all the same"
    return f"this {where} has no {precision} kernels, {slow}"
