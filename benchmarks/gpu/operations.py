"""The error of each operation in low precision, compared with the same operation in float64 on the same inputs.

Over several steps, rounding in low precision moves weights so far that a comparison with float32 shows little. A single
operation must only round its result.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

MOST = 4.0  # in units of the format's rounding. On a CPU: 0.5, since a result is rounded once; batch norm up to 1.6


class OperationErrors(TorchDispatchMode):
    """Compare every operation inside the context that returns low-precision tensors, forward and backward.

    Args:
        low: the low-precision format.
    """

    def __init__(self, low: torch.dtype) -> None:
        super().__init__()
        self._low = low
        self.errors: dict[str, float] = {}  # operation -> largest error, in units of the format's rounding
        self.unchecked: set[str] = set()  # operations without float64

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run an operation, and again in float64 if it computes in low precision."""
        kwargs = kwargs or {}
        computes = any(isinstance(leaf, Tensor) and leaf.dtype == self._low for leaf in tree_leaves((args, kwargs)))
        wide = tree_map(self._widen, (args, kwargs)) if computes else None  # copies, since operations may be in place
        out = func(*args, **kwargs)
        compared = not func.is_view and "empty" not in str(func)  # views share memory, and new memory has no value
        if wide is not None and compared and any(map(self._is_low, tree_leaves(out))):
            self._compare(func, out, *wide)
        return out

    def _compare(self, func: Any, out: Any, args: tuple, kwargs: dict) -> None:
        name = str(func)
        try:
            expected = func(*args, **kwargs)
        except (RuntimeError, TypeError):
            self.unchecked.add(name)
            return
        for found, wanted in zip(tree_leaves(out), tree_leaves(expected), strict=True):
            if self._is_low(found) and wanted.is_floating_point() and (length := float(wanted.norm())):
                gap = float((found.double() - wanted).norm()) / length / (torch.finfo(self._low).eps / 2)
                self.errors[name] = max(self.errors.get(name, 0.0), gap if math.isfinite(gap) else math.inf)

    def _is_low(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype == self._low

    def _widen(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.double()
        return torch.float64 if value is self._low else value

    def summary(self) -> dict[str, Any]:
        """Return the number of operations, the worst and its error, those unchecked, and `failed` if one is wrong."""
        worst = max(self.errors, key=self.errors.__getitem__, default="")
        error = self.errors.get(worst, 0.0)
        found = {"operations": len(self.errors), "worst": worst, "error": error, "unchecked": sorted(self.unchecked)}
        wrong = [name for name, each in self.errors.items() if not each <= MOST]
        return found | ({"failed": f"wrong operations: {', '.join(wrong)}"} if wrong else {})
