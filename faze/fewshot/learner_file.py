"""Files of trained learners, and checks of their contents, because compiled code does not check shapes."""

import dataclasses
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from faze.base.errors import UserError
from faze.config.check import build, check_mapping, fields_of
from faze.config.parameters import MOST_HIDDEN, Fewshot
from faze.fewshot.mlp import Activation, InitialNetworks, Weights
from faze.model.torch_file import read_mapping, write_mapping

T = TypeVar("T")

MOST_STEPS = 100_000  # limit for compiled code, a hundred times the paper's


@dataclass(frozen=True)
class Learned:
    """A trained learner; its file contains a dict of these fields."""

    learner: str
    shots: list[int]
    settings: dict[str, object]
    state: dict[str, Tensor] = field(default_factory=dict)  # of networks, each (number of shots, ...)
    history: list[dict[str, object]] = field(default_factory=list)  # of meta_training.OuterState
    activation: Activation = "selu"
    outer_steps: list[int] = field(default_factory=list)  # after which each k's weights were selected
    stop_steps: list[int] = field(default_factory=list)  # of adaptation, best for val people at each k; [] without any
    val_deg: dict[str, float] = field(default_factory=dict)  # k -> mean error of val people, as at test; "0": unadapted
    seconds: float = 0.0  # duration of the training since its last start
    left_out: list[str] = field(default_factory=list)  # a sentence about each person with too few entries
    checkpoint: str = ""  # CodeStore.checkpoint of the training codes; "" if unknown

    @property
    def networks(self) -> InitialNetworks:
        """The initial networks for adaptation."""
        scales = {name: self.state[RATE_SCALE + name] for name in Weights._fields if RATE_SCALE + name in self.state}
        weights = Weights(*(self.state[name] for name in Weights._fields))
        return InitialNetworks(self.shots, weights, Weights(**scales) if scales else None, self.activation)

    @property
    def fewshot(self) -> Fewshot:
        """The settings of the training; raises UserError if the file does not contain all of them."""
        known = {f.name: self.settings[f.name] for f in dataclasses.fields(Fewshot) if f.name in self.settings}
        if faults := list(check_mapping("settings", known, fields_of(Fewshot))):
            raise UserError(f"the file of the learner {self.learner}: {faults[0]}: run meta_train again")
        return build(Fewshot, known)

    def check_codes(self, checkpoint: str, path: Path | str) -> None:
        """Check that codes come from the same checkpoint as the training codes, if both checkpoints are known.

        Raises:
            UserError: they come from another checkpoint. Learners without training, such as `offset`, match any.
        """
        if self.state and checkpoint and self.checkpoint and checkpoint != self.checkpoint:
            raise UserError(
                f"{path}: does not belong to the network whose codes trained the learner {self.learner}: pass the "
                "learner of this network, or run meta_train again with its codes"
            )


def state_of(networks: InitialNetworks) -> dict[str, Tensor]:
    """Return the tensors of networks by their names in Learned.state."""
    scales = {} if networks.scales is None else {RATE_SCALE + n: s for n, s in networks.scales._asdict().items()}
    return networks.weights._asdict() | scales


def load_learned(path: Path | str, learner: str | None, shots: Sequence[int]) -> Learned:
    """Read a learner's file and check it; any learner is accepted if `learner` is None.

    Raises:
        UserError: the file is invalid, belongs to another learner, or lacks one of the values of k.
    """
    learned = load_fields(Learned, path, "a learner file: run meta_train again")
    fault = _fault(learned)
    if fault:
        raise UserError(f"{path}: not a learner file ({fault}): run meta_train again")
    if learner not in (None, learned.learner):
        raise UserError(f"{path}: contains the learner {learned.learner}, not {learner}")
    if missing := sorted(set(shots) - set(learned.shots)):
        raise UserError(f"{path}: was trained for k = {learned.shots}, not for {missing}: run meta_train again")
    return learned


def load_fields(kind: type[T], path: Path | str, what: str) -> T:
    """Read a file that save_fields wrote; `what` describes the expected content and the remedy.

    Raises:
        UserError: the file is invalid.
    """
    content = read_mapping(path)
    try:
        fields = kind(**content)
    except TypeError:  # other fields
        raise UserError(f"{path}: not {what}") from None
    if wrong := wrong_field(content, kind):
        raise UserError(f"{path}: {wrong} is invalid for {what}")
    return fields


def _fault(learned: Learned) -> str:
    """Describe an inconsistency in a learner's file; return "" if there is none."""
    if len(set(learned.shots)) < len(learned.shots) or min(learned.shots, default=1) < 1:
        return f"shots {learned.shots[:20]}"
    if len(learned.stop_steps) not in (0, len(learned.shots)) or min(learned.stop_steps, default=1) < 0:
        return "stop_steps does not have one value per k"
    steps = learned.settings.get("adapt_steps", 0)
    if max([*learned.stop_steps, steps if isinstance(steps, int) else 0]) > MOST_STEPS:
        return f"it would adapt with more than {MOST_STEPS} steps"
    if not all(k.isdecimal() for k in learned.val_deg):
        return "val_deg does not have one value per k"
    return state_fault(learned.learner, len(learned.shots), learned.state)


def save_fields(content: Any, path: Path | str) -> None:
    """Write a dataclass atomically as a dict of its fields; torch.load(path, weights_only=True) reads it."""
    write_mapping(path, {f.name: getattr(content, f.name) for f in dataclasses.fields(content)})


def plain(settings: Fewshot) -> dict[str, object]:
    """Convert settings to tensors and plain values, which can be stored in a file."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(settings).items()}


RATE_SCALE = "rate_scale_"  # begins the names of what meta_sgd learnt about each parameter's rate

# Shapes of the state of each learner: K is the number of shots, a letter the same number everywhere, a digit itself.
_NETWORKS = {"hidden_weight": "KFH", "hidden_bias": "K1H", "output_weight": "KH3", "output_bias": "K13"}
_LINEAR = {"mean": "2D", "covariance": "2DD", "noise": "2", "dof": "1", "center": "2D", "scale": "2D"}
_STATES: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("maml", "fomaml", "meta_sgd", "reference", "none"), _NETWORKS),
    **{"offset": {}, "affine": _LINEAR, "bayes": _LINEAR, "kappa": {"shrink": "3"}},
    "gp": {"kernel": "23", "noise": "2", "dof": "1", "center": "F", "scale": "F"},
}


def is_of(value: Any, kind: Any) -> bool:
    """Return whether a value, including its items, has the declared type."""
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
    """Return the name of a field that does not have its declared type, or "" if all do."""
    declared = get_type_hints(kind)
    return next((name for name, value in content.items() if name in declared and not is_of(value, declared[name])), "")


def state_fault(learner: str, shots: int, state: Mapping[str, Tensor]) -> str:
    """Describe what is wrong with the state of a learner; return "" if nothing is wrong or the learner is unknown.

    Args:
        learner: name of the learner.
        shots: K, the number of values of k.
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
            return f"{name} contains numbers that are not finite"
    if sizes.get("H", 1) > MOST_HIDDEN:
        return f"{sizes['H']} hidden units are more than {MOST_HIDDEN}"
    return _value_fault(state)


def _value_fault(state: Mapping[str, Tensor]) -> str:
    """Check that variances and scales are positive, and that the parameters of a network share one dtype."""
    for name in ("noise", "scale", "shrink"):
        if name in state and not (state[name] > 0).all():
            return f"{name} is not positive"
    if "dof" in state and not (state["dof"] > 2).all():
        return "dof is not greater than 2"
    return "" if len({tensor.dtype for tensor in state.values()}) <= 1 else "its tensors have different dtypes"
