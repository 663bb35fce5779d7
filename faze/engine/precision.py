"""Number formats: autocast, dynamic loss scaling, TF32.

O1 of the talk is fp16 autocast with dynamic loss scaling. `apex.amp` left apex in 2025; torch.amp is its successor.
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from faze.engine.switches import Switch


@dataclass(frozen=True)
class Precision:
    """How the step computes; off is a no-op context and a scaler that passes everything through."""

    autocast: Callable[[], contextlib.AbstractContextManager]
    scaler: torch.amp.GradScaler
    switches: tuple[Switch, ...]


def build_precision(precision: str, *, tf32: bool, force: bool, device: torch.device) -> Precision:
    """Set TF32 for the process, and make the autocast context and the scaler of a precision."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    reason = "" if precision == "fp32" or force else _no_kernels(device)
    low = precision == "fp16" and not reason
    autocast = functools.partial(torch.autocast, device.type, torch.float16) if low else contextlib.nullcontext
    scaler = torch.amp.GradScaler(device.type, enabled=low)
    acted = "fp16 autocast, dynamic loss scaling" if low else "fp32"
    tf32_reason = "TF32 is a format of CUDA devices" if tf32 and device.type != "cuda" else ""
    switches = (
        Switch("precision", precision, acted, reason),
        Switch("tf32", str(tf32).lower(), str(tf32 and not tf32_reason).lower(), tf32_reason),
    )
    return Precision(autocast, scaler, switches)


def _no_kernels(device: torch.device) -> str:
    if device.type == "cuda" or torch.cpu._is_amx_fp16_supported():
        return ""
    return "this CPU has no fp16 kernels, autocast would be many times slower; `force: true` uses it all the same"
