"""Files of trained learners and of people's calibrations. Files of strangers are checked once, when they are read."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from faze.base.errors import UserError
from faze.config.parameters import Fewshot
from faze.fewshot.mlp import Activation, Weights
from faze.model.torch_file import read_mapping, write_mapping

T = TypeVar("T")
MOST_HIDDEN = 4096  # kernel.c has a network on its stack


@dataclass(frozen=True)
class Learned:
    """A trained learner; its file contains a dict of these fields."""

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)

    learner: str
    shots: list[int]
    settings: dict[str, object]
    state: dict[str, Tensor] = field(default_factory=dict)  # of networks, each (number of shots, ...)
    history: list[dict[str, object]] = field(default_factory=list)  # of meta_training.Trained
    activation: Activation = "selu"
    outer_steps: list[int] = field(default_factory=list)  # after which each k's weights were selected
    val_deg: dict[str, float] = field(default_factory=dict)  # k -> mean error of val people, as at test; "0": unadapted
    seconds: float = 0.0  # duration of the training
    left_out: list[str] = field(default_factory=list)  # a sentence about each person with too few entries
    checkpoint: str = ""  # CodeStore.checkpoint of the training codes; "" if unknown

    @property
    def weights(self) -> Weights:
        """The network of each k, from which calibrations start."""
        return Weights(**self.state)

    def check_codes(self, checkpoint: str, path: Path | str) -> None:
        """Raise a UserError if codes come from another checkpoint than the training codes. Without state, any do."""
        if self.state and checkpoint and self.checkpoint and checkpoint != self.checkpoint:
            raise UserError(
                f"{path}: does not belong to the network whose codes trained the learner {self.learner}: pass the "
                "learner of this network, or run meta_train again with its codes"
            )


def load_learned(path: Path | str) -> Learned:
    """Read a learner's file, and raise a UserError if it is invalid: compiled code does not check shapes."""
    learned = load_fields(Learned, path, "a learner file: run meta_train again")
    if learned.learner in ("maml", "fomaml", "reference", "none"):
        shapes = {name: tuple(value.shape) for name, value in learned.state.items()}
        of_first = shapes.get("hidden_weight", ())
        k, inputs, hidden = of_first if len(of_first) == 3 else (0, 0, 0)
        expected = ((k, inputs, hidden), (k, 1, hidden), (k, hidden, 3), (k, 1, 3))
        if (
            shapes != dict(zip(Weights._fields, expected, strict=True))
            or k != len(learned.shots)
            or hidden > MOST_HIDDEN
        ):
            raise UserError(f"{path}: not a learner file (shapes {shapes}): run meta_train again")
    return learned


def load_fields(kind: type[T], path: Path | str, what: str) -> T:
    """Read a file of save_fields; raise a UserError with `what`, the expected content and the remedy, if it is none."""
    try:
        return TypeAdapter(kind).validate_python(dict(read_mapping(path)))
    except ValidationError as error:
        raise UserError(f"{path}: {error.errors()[0]['loc'][0]} is invalid for {what}") from None


def save_fields(content: Any, path: Path | str) -> None:
    """Write a dataclass atomically as a dict of its fields; torch.load(path, weights_only=True) reads it."""
    write_mapping(path, {f.name: getattr(content, f.name) for f in dataclasses.fields(content)})


def plain(settings: Fewshot) -> dict[str, object]:
    """Convert settings to plain values, which can be stored in a file."""
    return settings.model_dump(mode="json")
