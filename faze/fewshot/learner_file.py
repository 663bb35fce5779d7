"""A learner's file: what meta-training leaves, and how it is kept."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from faze.base.errors import UserError
from faze.config.check import build, check_mapping, fields_of
from faze.config.parameters import Fewshot
from faze.fewshot.learner_checks import RATE_SCALE, state_fault, wrong_field
from faze.fewshot.mlp import Activation, InitialNetworks, Weights
from faze.model.torch_file import read_mapping, write_mapping

T = TypeVar("T")

MOST_STEPS = 100_000  # of adaptation, a hundred times the paper's: compiled code takes them without a look up


@dataclass(frozen=True)
class Learned:
    """What meta-training leaves: a learner's file holds a dict of these fields."""

    learner: str
    shots: list[int]
    settings: dict[str, object]
    state: dict[str, Tensor] = field(default_factory=dict)  # of networks, each (number of shots, ...)
    history: list[dict[str, object]] = field(default_factory=list)  # of meta_training.OuterState
    activation: Activation = "selu"
    outer_steps: list[int] = field(default_factory=list)  # after which each k's weights were kept
    stop_steps: list[int] = field(default_factory=list)  # of adaptation, best for val people at each k; [] without any
    val_deg: dict[str, float] = field(default_factory=dict)  # k -> mean error of val people, as at test; "0": unadapted
    seconds: float = 0.0  # that learning took, since it was last begun
    left_out: list[str] = field(default_factory=list)  # a sentence about each person with too few entries
    checkpoint: str = ""  # CodeStore.checkpoint of the codes learnt from; "" where they did not tell

    @property
    def networks(self) -> InitialNetworks:
        """The networks from which it adapts."""
        scales = {name: self.state[RATE_SCALE + name] for name in Weights._fields if RATE_SCALE + name in self.state}
        weights = Weights(*(self.state[name] for name in Weights._fields))
        return InitialNetworks(self.shots, weights, Weights(**scales) if scales else None, self.activation)

    @property
    def fewshot(self) -> Fewshot:
        """The settings with which it learnt; a UserError where its file does not state them all."""
        known = {f.name: self.settings[f.name] for f in dataclasses.fields(Fewshot) if f.name in self.settings}
        if faults := list(check_mapping("settings", known, fields_of(Fewshot))):
            raise UserError(f"the file of the learner {self.learner}: {faults[0]}: run meta_train again")
        return build(Fewshot, known)

    def check_codes(self, checkpoint: str, path: Path | str) -> None:
        """Check that codes are of the checkpoint learnt from, as far as both tell.

        Raises:
            UserError: they are of another. What learnt nothing from codes, such as `offset`, serves all.
        """
        if self.state and checkpoint and self.checkpoint and checkpoint != self.checkpoint:
            raise UserError(
                f"{path}: its codes are of another checkpoint than those that the learner {self.learner} learnt from: "
                "run meta_train again, on codes of this one"
            )


def state_of(networks: InitialNetworks) -> dict[str, Tensor]:
    """Return the names of the tensors of networks in Learned.state."""
    scales = {} if networks.scales is None else {RATE_SCALE + n: s for n, s in networks.scales._asdict().items()}
    return networks.weights._asdict() | scales


def load_learned(path: Path | str, learner: str | None, shots: Sequence[int]) -> Learned:
    """Read a learner's file and check that it serves; any learner's, where None is asked for.

    Raises:
        UserError: it is no such file, is another learner's, or lacks one of the k.
    """
    learned = load_fields(Learned, path, "a learner: run meta_train again")
    fault = _fault(learned)
    if fault:
        raise UserError(f"{path}: is not the file of a learner ({fault}): run meta_train again")
    if learner not in (None, learned.learner):
        raise UserError(f"{path}: is of the learner {learned.learner}, not {learner}")
    if missing := sorted(set(shots) - set(learned.shots)):
        raise UserError(f"{path}: was trained for k = {learned.shots}, not for {missing}: run meta_train again")
    return learned


def load_fields(kind: type[T], path: Path | str, what: str) -> T:
    """Read what save_fields wrote; `what` says of what the file should be, and the remedy.

    Raises:
        UserError: it is no such file.
    """
    content = read_mapping(path)
    try:
        fields = kind(**content)
    except TypeError:  # other fields
        raise UserError(f"{path}: is not the file of {what}") from None
    if wrong := wrong_field(content, kind):
        raise UserError(f"{path}: its {wrong} is not that of {what}")
    return fields


def _fault(learned: Learned) -> str:
    """Describe a contradiction in a learner's file; return "" if there is none."""
    if len(set(learned.shots)) < len(learned.shots) or min(learned.shots, default=1) < 1:
        return f"shots {learned.shots[:20]}"
    if len(learned.stop_steps) not in (0, len(learned.shots)) or min(learned.stop_steps, default=1) < 0:
        return "stop_steps are not one for each of shots"
    steps = learned.settings.get("adapt_steps", 0)
    if max([*learned.stop_steps, steps if isinstance(steps, int) else 0]) > MOST_STEPS:
        return f"it would adapt by more than {MOST_STEPS} steps"
    if not all(k.isdecimal() for k in learned.val_deg):
        return "val_deg is not by k"
    return state_fault(learned.learner, len(learned.shots), learned.state)


def save_fields(content: Any, path: Path | str) -> None:
    """Write a dataclass as a dict of its fields, whole or not at all; torch.load(path, weights_only=True) reads it."""
    write_mapping(path, {f.name: getattr(content, f.name) for f in dataclasses.fields(content)})


def plain(settings: Fewshot) -> dict[str, object]:
    """Turn settings into what a file of tensors and plain values can hold."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(settings).items()}
