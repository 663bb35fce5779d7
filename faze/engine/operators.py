"""Operators in a number format of their own: the switches `keep_fp32` and `force_low`.

A listed operator acts where autocast is on: its inputs and weights are converted, and autocast is off inside it. So the
lists act neither in validation, which is in fp32, nor where a network switches autocast off itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_map_only

from faze.base.errors import UserError
from faze.config.parameters import Engine
from faze.engine.switches import Switch

UPDATING = ("batch_norm", "instance_norm")  # functions that update their second and third arguments
_originals: dict[str, Callable] = {}  # of the functions that are replaced in torch.nn.functional


def set_operators(
    module: nn.Module, engine: Engine, low: torch.dtype | None, batch: Callable[[], Mapping[str, Tensor]], reason: str
) -> list[Switch]:
    """Convert listed operators to fp32 or `low`, and run the module on a batch to find out which of them it calls.

    `reason` is the reason why no operator can be converted, or "".
    """
    while _originals:  # functions are replaced in the whole process, for the tier that was built last
        setattr(F, *_originals.popitem())
    reason = reason if low else "precision is fp32"
    called: dict[str, dict[str, dict]] = {}
    for switch, dtype in (("keep_fp32", torch.float32), ("force_low", low)):
        called[switch] = {name: {} if reason else _convert(module, name, dtype) for name in getattr(engine, switch)}
    if not reason and any(called.values()):
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        try:
            with torch.no_grad(), torch.random.fork_rng():
                functional_call(module, buffers, (batch(),))
        except RuntimeError as error:
            raise UserError(f"keep_fp32, force_low: the network fails with these operators: {error}") from error
    return [_report(switch, operators, reason) for switch, operators in called.items()]


def _report(switch: str, called: Mapping[str, dict], reason: str) -> Switch:
    acted = [f"{name} ({sum(of.values())} of {len(of)})" for name, of in called.items() if any(of.values())]
    acting = ", ".join(acted) or "none"
    idle = [name for name, of in called.items() if not any(of.values())]
    missing = f"{', '.join(idle)}: no such module or function of torch.nn.functional is called under autocast"
    reason = reason or f"{missing}; acting: {acting}"
    return Switch(switch, ", ".join(called) or "none", acting, reason if idle else "")


def _convert(module: nn.Module, name: str, dtype: torch.dtype) -> dict[nn.Module | str, bool]:
    """Convert modules of a class and its subclasses, or a function; return whether each was called, kept up to date."""
    called: dict[nn.Module | str, bool] = {}
    device = next(module.parameters()).device.type

    def where_autocast_is_on(operator: nn.Module | str, converted: Callable, plain: Callable) -> Callable:
        called[operator] = False

        def call(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_autocast_enabled(device):
                return plain(*args, **kwargs)
            if not torch.compiler.is_compiling():
                called[operator] = True
            end = 1 if operator in UPDATING else len(args)
            given, kwargs = _cast((args[:end], kwargs), dtype)
            with torch.autocast(device, enabled=False):
                return converted(*given, *args[end:], **kwargs)

        return call

    def call_module(part: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return functional_call(part, _cast(_weights(part), dtype), args, kwargs)

    for part in module.modules():
        kind = type(part)
        if name in (base.__name__ for base in kind.__mro__):
            call = where_autocast_is_on(part, call_module, kind.__call__)
            part.__class__ = type(kind.__name__, (kind,), {"__call__": call})
    if callable(function := getattr(F, name, None)):
        _originals.setdefault(name, function)
        setattr(F, name, where_autocast_is_on(name, function, function))
    return called


def _weights(part: nn.Module) -> dict[str, Tensor]:
    """Return the parameters, except those of layers whose weights must have the format of their running statistics."""
    layers = [(path, layer) for path, layer in part.named_modules() if not isinstance(layer, _NormBase)]
    return {name: weight for path, layer in layers for name, weight in layer.named_parameters(path, recurse=False)}


def _cast(values: Any, dtype: torch.dtype) -> Any:
    return tree_map_only(Tensor, lambda value: value.to(dtype) if value.is_floating_point() else value, values)
