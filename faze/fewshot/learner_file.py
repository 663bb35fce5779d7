"""A learner's file: what meta-training leaves, and how it is kept."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.config.parameters import Fewshot
from faze.fewshot.fine_tuning import InitialNetworks
from faze.fewshot.mlp import Activation, Weights

_SCALE = "rate_scale_"  # begins the names of what meta_sgd learnt about each parameter's rate


@dataclass(frozen=True)
class Learned:
    """What meta-training leaves: a learner's file."""

    learner: str
    shots: list[int]
    settings: dict[str, object]
    state: dict[str, Tensor] = field(default_factory=dict)  # each (number of shots, ...)
    history: list[dict[str, object]] = field(default_factory=list)  # fields of meta_training.Record
    activation: Activation = "selu"
    outer_steps: list[int] = field(default_factory=list)  # after which each k's weights were kept
    stop_steps: list[int] = field(default_factory=list)  # of adaptation, best for val people at each k; [] without any
    left_out: list[str] = field(default_factory=list)  # a sentence about each person with too few entries
    checkpoint: str = ""  # store.Codes.checkpoint of the codes learnt from; "" where they did not tell

    @property
    def start(self) -> InitialNetworks:
        """Where adaptation starts."""
        scales = {name: self.state[_SCALE + name] for name in Weights._fields if _SCALE + name in self.state}
        weights = Weights(*(self.state[name] for name in Weights._fields))
        return InitialNetworks(self.shots, weights, Weights(**scales) if scales else None, self.activation)

    def check_codes(self, checkpoint: str, path: Path | str) -> None:
        """Raise a ValueError where codes are of another checkpoint than those learnt from, as far as both tell."""
        if checkpoint and self.checkpoint and checkpoint != self.checkpoint:
            raise UserError(
                f"{path}: its codes are of another checkpoint than those that the learner {self.learner} learnt from: "
                "run meta_train again, on codes of this one"
            )


def state_of(start: InitialNetworks) -> dict[str, Tensor]:
    """Learned.state of where adaptation starts."""
    scales = {} if start.scales is None else {_SCALE + name: s for name, s in start.scales._asdict().items()}
    return start.weights._asdict() | scales


def load_learned(path: Path | str, learner: str | None, shots: Sequence[int]) -> Learned:
    """Read a learner's file and check that it serves; any learner's, where None is asked for.

    Raises:
        UserError: it is no such file, is another learner's, or lacks one of the k.
    """
    try:
        learned = Learned(**torch.load(path, map_location="cpu", weights_only=True))
    except OSError:
        raise
    except Exception:  # torn bytes make the unpickler raise whatever they happen to lead it to
        raise UserError(f"{path}: is not the file of a learner: run meta_train again") from None
    if learner not in (None, learned.learner):
        raise UserError(f"{path}: is of the learner {learned.learner}, not {learner}")
    if missing := sorted(set(shots) - set(learned.shots)):
        raise UserError(f"{path}: was trained for k = {learned.shots}, not for {missing}: run meta_train again")
    return learned


def save_learned(learned: Learned, path: Path | str) -> None:
    """Write a learner's file, whole or not at all."""
    with whole_file(path) as temporary:
        torch.save({f.name: getattr(learned, f.name) for f in dataclasses.fields(learned)}, temporary)


def plain(settings: Fewshot) -> dict[str, object]:
    """Settings as a file of tensors and plain values holds them."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(settings).items()}
