"""Operations kept out of low precision, or forced into it, against what autocast would choose.

The network's functions are intercepted by name (`torch.overrides.TorchFunctionMode`), so that it need not know. What
computes below them, as the recompute layers' own backward pass does, is out of reach.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

# Every function that stands under the names of `faze.config.parameters.AutocastOperation`.
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


class Formats(TorchFunctionMode):
    """Runs some functions in a number format of their own: inputs are converted, autocast does not act inside.

    Args:
        formats: the format of each function.
        device: kind of device that autocast acts on.
    """

    def __init__(self, formats: Mapping[Callable, torch.dtype], device: str) -> None:
        super().__init__()
        self._formats, self._device = formats, device

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Call the function, its floating-point tensors converted if it is one of ours."""
        kwargs = kwargs or {}
        dtype = self._formats.get(func)
        if dtype is None:
            return func(*args, **kwargs)
        with torch.autocast(self._device, enabled=False):
            args = tuple(_converted(value, dtype) for value in args)
            return func(*args, **{name: _converted(value, dtype) for name, value in kwargs.items()})


def formats_of(
    keep_fp32: Sequence[str], force_low: Sequence[str], low: torch.dtype, device: str
) -> Callable[[], contextlib.AbstractContextManager]:
    """Make the context in which the named operations have their own format; enter it inside autocast."""
    named = {name: torch.float32 for name in keep_fp32} | {name: low for name in force_low}
    return functools.partial(Formats, {f: dtype for name, dtype in named.items() for f in FUNCTIONS[name]}, device)


def _converted(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
