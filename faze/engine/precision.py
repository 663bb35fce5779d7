"""Number formats: autocast, formats of single operations, dynamic loss scaling, TF32.

The talk's O1 is fp16 autocast with dynamic loss scaling. `apex.amp` was removed from apex in 2025; torch.amp is its
successor.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from faze.config.parameters import Engine
from faze.engine.switches import Switch

Context = Callable[[], contextlib.AbstractContextManager]

# The functions behind each name of `faze.config.parameters.Operation`.
FUNCTIONS: dict[str, tuple[Callable, ...]] = {
    "conv": (F.conv2d,),
    "conv_transpose": (F.conv_transpose2d,),
    "linear": (F.linear,),
    "instance_norm": (F.instance_norm, F.layer_norm),
    "leaky_relu": (F.leaky_relu,),
    "relu": (F.relu,),
    "avg_pool": (F.avg_pool2d,),
    "mean": (Tensor.mean, torch.mean),
}
# Flag of torch.cpu.get_capabilities() that a CPU needs to compute in a format.
CPU_FLAGS = {"fp16": "amx_fp16", "bf16": "avx512_bf16"}
# Variables by which oneDNN ignores features of the CPU, and values by which it does not.
CPU_LIMITS, ALL = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"), ("", "ALL", "DEFAULT")


class Scaler(torch.amp.GradScaler):
    """Dynamic loss scaling, with a count of skipped steps that stays on the device, so that no step waits for it."""

    def __init__(self, device: torch.device, *, enabled: bool) -> None:
        super().__init__(device.type, enabled=enabled)
        self._skipped = torch.zeros((), dtype=torch.int64, device=device)
        self._one = torch.ones((), device=device)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Adapt the scale; it decreases if, and only if, the step was skipped."""
        before = self.scale(self._one)
        super().update(new_scale)
        self._skipped += self.scale(self._one) < before

    def skipped(self) -> float:
        """Return the number of skipped steps. This waits for the device."""
        return float(self._skipped)

    def state_dict(self) -> dict[str, float]:
        """Return the state for a checkpoint; {} if the scaler is off."""
        return super().state_dict() | ({"skipped": int(self._skipped)} if self.is_enabled() else {})

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore the state from a checkpoint."""
        super().load_state_dict(state)
        self._skipped.fill_(state["skipped"])


class OperationFormats(TorchFunctionMode):
    """Run some functions in another number format: inputs are converted, and autocast is off inside.

    Functions are intercepted by `torch.overrides.TorchFunctionMode`, so the network needs no change. Operations inside
    an autograd function, such as the recompute layers' backward pass, are not intercepted. Enter this context inside
    autocast.

    Args:
        keep_fp32: names of FUNCTIONS that compute in float32.
        force_low: names of FUNCTIONS that compute in `low`.
        low: the low-precision format.
        device: type of the device that autocast acts on.
    """

    def __init__(self, keep_fp32: Sequence[str], force_low: Sequence[str], low: torch.dtype, device: str) -> None:
        super().__init__()
        formats = dict.fromkeys(keep_fp32, torch.float32) | dict.fromkeys(force_low, low)
        self._formats = {function: dtype for name, dtype in formats.items() for function in FUNCTIONS[name]}
        self._device = device

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: Mapping | None = None) -> Any:
        """Call `func`; if it is listed, convert its floating-point tensors first."""
        kwargs = kwargs or {}
        dtype = self._formats.get(func)
        if dtype is None:
            return func(*args, **kwargs)
        with torch.autocast(self._device, enabled=False):
            args = tuple(_convert(value, dtype) for value in args)
            return func(*args, **{name: _convert(value, dtype) for name, value in kwargs.items()})


@dataclass(frozen=True)
class Precision:
    """The precision of a step; a context that is off does nothing, and a scaler that is off does not scale."""

    autocast: Context
    operations: Context | None  # formats of single operations; the second computation of a checkpoint must enter it
    scaler: Scaler
    switches: tuple[Switch, ...]


@contextlib.contextmanager
def exact(module: nn.Module) -> Iterator[None]:
    """Compute in true fp32, whatever precision a tier trains with, so that errors are comparable between tiers.

    TF32, which cuDNN uses by default, is off, and every part with the attribute `autocast` computes without autocast.
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
    """Set TF32, which is process-wide, and build the autocast context and the scaler for a tier."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = engine.tf32
    reason = "" if engine.precision == "fp32" or engine.force else _missing_kernels(engine.precision, device)
    effective = "fp32" if reason else engine.precision
    dtype = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}[effective]
    autocast = functools.partial(torch.autocast, device.type, dtype) if dtype else contextlib.nullcontext
    lists_reason = _unreachable_operations(effective, engine)
    operations = None
    if (engine.keep_fp32 or engine.force_low) and not lists_reason:
        operations = functools.partial(OperationFormats, engine.keep_fp32, engine.force_low, dtype, device.type)
        autocast = functools.partial(_nested, autocast, operations)
    acted = {"fp16": "fp16 autocast, dynamic loss scaling", "bf16": "bf16 autocast"}.get(effective, "fp32")
    switches = (
        Switch("precision", engine.precision, acted, reason),
        Switch.of("force", engine.force, "" if effective != "fp32" else "precision is fp32"),
        Switch.of("tf32", engine.tf32, "" if device.type == "cuda" else "only CUDA devices have TF32"),
        Switch.of("keep_fp32", engine.keep_fp32, lists_reason),
        Switch.of("force_low", engine.force_low, lists_reason),
    )
    return Precision(autocast, operations, Scaler(device, enabled=effective == "fp16"), switches)


@contextlib.contextmanager
def _nested(autocast: Context, operations: Context) -> Iterator[None]:
    with autocast(), operations():
        yield


def _unreachable_operations(effective: str, engine: Engine) -> str:
    """Return why single operations cannot use their own format; "" if they can."""
    if effective == "fp32":
        return "no operation uses low precision"
    if engine.recompute:
        return "the recompute layers only follow autocast"
    if engine.fused_norm and {*engine.keep_fp32, *engine.force_low} & {"instance_norm", "leaky_relu"}:
        return "fused_norm combines instance_norm and leaky_relu in one operation, which only follows autocast"
    return ""


def _missing_kernels(precision: str, device: torch.device) -> str:
    """Return why low precision would be slow on a device; "" if the device has the kernels."""
    if device.type == "cuda":
        supported = precision == "fp16" or torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        supported = torch.cpu.get_capabilities().get(CPU_FLAGS[precision], False)
    name = "GPU" if device.type == "cuda" else "CPU"
    limits = [f"{limit}={os.environ[limit]}" for limit in CPU_LIMITS if os.environ.get(limit, "").upper() not in ALL]
    if supported and limits and device.type == "cpu":
        name, supported = f"CPU, limited by {limits[0]} in the environment,", False
    if supported:
        return ""
    return f"this {name} has no {precision} kernels, and autocast would be many times slower; set force: true to use it"


def _convert(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
