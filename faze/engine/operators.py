"""Operators in a number format of their own: the switches `keep_fp32` and `force_low`.

A listed operator acts where autocast is on: its inputs and weights are converted, and autocast is off inside it. So the
lists act neither in validation, which is in fp32, nor where a network switches autocast off itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_map_only

from faze.base.errors import UserError
from faze.config.parameters import Engine
from faze.engine.machine import lacks_memory
from faze.engine.switches import Switch

UPDATING = ("batch_norm", "instance_norm")  # functions that update their second and third arguments
_originals: dict[str, Callable] = {}  # of the functions that are replaced in torch.nn.functional


def set_operators(
    module: nn.Module, engine: Engine, low: torch.dtype | None, batch: Callable[[], Mapping[str, Tensor]], reason: str
) -> tuple[Switch, Switch]:
    """Convert listed operators to fp32 or `low`, and run the module on a batch to find out which of them it calls.

    `reason` is the reason why no operator can be converted, or "".
    """
    while _originals:  # functions are replaced in the whole process, for the tier that was built last
        setattr(F, *_originals.popitem())
    reason = reason if low else "precision is fp32"
    device = next(module.parameters()).device.type
    keep_fp32 = OperatorList("keep_fp32", engine.keep_fp32, torch.float32, device)
    force_low = OperatorList("force_low", engine.force_low, low, device)
    if not reason and (engine.keep_fp32 or engine.force_low):
        keep_fp32.convert_in(module)
        force_low.convert_in(module)
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        try:
            with torch.no_grad(), torch.random.fork_rng():
                functional_call(module, buffers, (batch(),))
        except RuntimeError as error:
            if lacks_memory(error):
                raise
            fault = str(error).partition("\n")[0]
            raise UserError(f"keep_fp32 or force_low lists an operator that lacks this format: {fault}") from error
    return keep_fp32.report(reason), force_low.report(reason)


class OperatorList:
    """The operators of a switch: modules, by the names of their classes, and functions of torch.nn.functional."""

    def __init__(self, switch: str, names: Sequence[str], dtype: torch.dtype | None, device: str) -> None:
        self.switch, self.names, self.dtype, self.device = switch, names, dtype, device
        self.converted: dict[str, list[nn.Module | str]] = {}
        self.called: set[nn.Module | str] = set()

    def convert_in(self, module: nn.Module) -> None:
        """Convert the operators in a module and its parts; a base class stands for its subclasses."""
        for name in self.names:
            found = [part for part in module.modules() if name in (kind.__name__ for kind in type(part).__mro__)]
            for part in found:
                kind = type(part)
                call = self._where_autocast_is_on(self._call_module, kind.__call__)
                part.__class__ = type(kind.__name__, (kind,), {"__call__": call})
            if callable(function := getattr(F, name, None)):
                found.append(name)
                _originals.setdefault(name, function)
                setattr(F, name, self._where_autocast_is_on(function, function, name))
            self.converted[name] = found

    def report(self, reason: str) -> Switch:
        """Report the functions and the number of modules that were called, and why others were not."""
        acted, idle = [], []
        for name, operators in self.converted.items():
            if count := sum(each in self.called for each in operators):
                acted.append(name if operators == [name] else f"{name} ({count} of {len(operators)})")
            elif operators:
                full = f"torch.nn.functional.{name}" if operators == [name] else name  # x.softmax() is another function
                idle.append(f"{full} is not called where autocast is on")
            else:
                idle.append(f"{name} is neither a class of the network's modules nor a function of torch.nn.functional")
        if acted and idle:
            idle.insert(0, f"only {', '.join(acted)} acts")
        reason = (reason or "; ".join(idle)) if self.names else ""
        return Switch(self.switch, ", ".join(self.names) or "none", ", ".join(acted) or "none", reason)

    def _where_autocast_is_on(self, converted: Callable, plain: Callable, name: str = "") -> Callable:
        """Return a function that converts its arguments and calls `converted` in autocast, and else calls `plain`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_autocast_enabled(self.device):
                return plain(*args, **kwargs)
            if not torch.compiler.is_compiling():
                self.called.add(name or args[0])
            end = 1 if name in UPDATING else len(args)
            given, kwargs = tree_map_only(Tensor, self._convert, (args[:end], kwargs))
            with torch.autocast(self.device, enabled=False):
                return converted(*given, *args[end:], **kwargs)

        return call

    def _call_module(self, part: nn.Module, *args: Any, **kwargs: Any) -> Any:
        weights = {
            name: self._convert(weight)
            for path, inner in part.named_modules()
            if not isinstance(inner, _NormBase)  # its weights must have the format of its statistics
            for name, weight in inner.named_parameters(path, recurse=False)
        }
        return functional_call(part, weights, args, kwargs)

    def _convert(self, value: Tensor) -> Tensor:
        return value.to(self.dtype) if value.is_floating_point() else value
