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
    reason = "" if precision == "fp32" or force else _no_kernels(precision, device)
    acts = "fp32" if reason else precision
    dtype = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}[acts]
    autocast = functools.partial(torch.autocast, device.type, dtype) if dtype else contextlib.nullcontext
    scaler = torch.amp.GradScaler(device.type, enabled=acts == "fp16")
    acted = {"fp16": "fp16 autocast, dynamic loss scaling", "bf16": "bf16 autocast"}.get(acts, "fp32")
    tf32_reason = "TF32 is a format of CUDA devices" if tf32 and device.type != "cuda" else ""
    switches = (
        Switch("precision", precision, acted, reason),
        Switch("tf32", str(tf32).lower(), str(tf32 and not tf32_reason).lower(), tf32_reason),
    )
    return Precision(autocast, scaler, switches)


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
