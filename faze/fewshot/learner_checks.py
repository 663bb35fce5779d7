"""What a learner's file must hold before anything is computed with it: compiled code takes its shapes as they come."""

import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from faze.config.parameters import MOST_HIDDEN

RATE_SCALE = "rate_scale_"  # begins the names of what meta_sgd learnt about each parameter's rate

# Shapes of the state of each learner: K is the number of shots, a letter the same number everywhere, a digit itself.
_NETWORKS = {"hidden_weight": "KFH", "hidden_bias": "K1H", "output_weight": "KH3", "output_bias": "K13"}
_LINEAR = {"mean": "2D", "covariance": "2DD", "noise": "2", "center": "2D", "scale": "2D"}
_STATES: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("maml", "fomaml", "meta_sgd", "reference", "none"), _NETWORKS),
    **{"offset": {}, "affine": _LINEAR, "bayes": _LINEAR, "kappa": {"shrink": "3"}},
    "gp": {"kernel": "23", "noise": "2", "center": "F", "scale": "F"},
}


def is_of(value: Any, kind: Any) -> bool:
    """Whether a value that was read is of a declared type, all that it holds included."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is list:
        return isinstance(value, list) and all(is_of(item, args[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(is_of(k, args[0]) and is_of(v, args[1]) for k, v in value.items())
    if origin is Literal:
        return isinstance(value, str) and value in args
    if origin in (Union, types.UnionType):
        return any(is_of(value, arg) for arg in args)
    if kind is object:  # of settings and records: plain values
        return not isinstance(value, Tensor)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, kind)


def wrong_field(content: Mapping[str, Any], kind: type) -> str:
    """Return the name of a field that does not have its declared type, "" if all have."""
    declared = get_type_hints(kind)
    return next((name for name, value in content.items() if name in declared and not is_of(value, declared[name])), "")


def state_fault(learner: str, shots: int, state: Mapping[str, Tensor]) -> str:
    """Describe what is wrong with the state of a learner; return "" if nothing is, or the learner is unknown.

    Args:
        learner: its name.
        shots: K.
        state: tensors by name.
    """
    if learner not in _STATES:
        return ""
    shapes = dict(_STATES[learner])
    if any(name.startswith(RATE_SCALE) for name in state):
        shapes |= {f"{RATE_SCALE}{name}": shape for name, shape in shapes.items()}
    if state.keys() != shapes.keys():
        return f"its state is not {', '.join(shapes) or 'empty'}"
    sizes: dict[str, int] = {"K": shots}
    for name, letters in shapes.items():
        tensor = state[name]
        wanted = [
            int(x) if x.isdecimal() else sizes.setdefault(x, n) for x, n in zip(letters, tensor.shape, strict=False)
        ]
        if tensor.ndim != len(letters) or list(tensor.shape) != wanted or 0 in tensor.shape:
            return f"{name} has shape {tuple(tensor.shape)}"
        if not tensor.is_floating_point() or not tensor.isfinite().all():
            return f"{name} holds what are no finite numbers"
    if sizes.get("H", 1) > MOST_HIDDEN:
        return f"{sizes['H']} hidden units are more than {MOST_HIDDEN}"
    return _value_fault(state)


def _value_fault(state: Mapping[str, Tensor]) -> str:
    """Variances and scales are positive; every parameter of a network has one type."""
    for name in ("noise", "scale", "shrink"):
        if name in state and not (state[name] > 0).all():
            return f"{name} is not positive"
    return "" if len({tensor.dtype for tensor in state.values()}) <= 1 else "its tensors are of several types"
