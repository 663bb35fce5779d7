"""All few-shot learners, the personal gaze estimators that they produce, and the file formats of both."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from faze.base.errors import UserError
from faze.base.geometry import mean_angle_deg
from faze.fewshot.fine_tuning import FineTuned
from faze.fewshot.interface import Learned, Learner
from faze.fewshot.mlp import PARTS
from faze.fewshot.person_codes import PersonCodes, Seen
from faze.fewshot.residual import Affine, Bayes, Offset
from faze.model.torch_file import read_mapping, write_mapping

LEARNERS: dict[str, Learner] = {
    **{rule: FineTuned(rule) for rule in ("maml", "fomaml", "reference", "none")},
    "offset": Offset(),
    "affine": Affine(),
    "bayes": Bayes(),
}


@dataclass(frozen=True, eq=False)
class PersonalEstimator:
    """A person's estimator; its file contains a dict of these fields.

    `state` is the result of `fit`. For `offset`, it contains offset_rad (2,), to be subtracted from gaze_hat's pitch
    and yaw, and for k >= 3 variance_deg2 (2,), the variances of the remaining errors. For a network, it contains
    hidden_weight (F, H), hidden_bias (H,), output_weight (H, 3), output_bias (3,) and is_relu. The gaze, which (like
    the labels) points from the target to the eye, is then the direction of
    act(z_gaze @ hidden_weight + hidden_bias) @ output_weight + output_bias, where act is ReLU or SELU.
    """

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)

    learner: str
    person: str
    dataset: str
    shots: int  # k
    support: list[int]  # entries of the store used for calibration
    state: dict[str, Tensor]
    query_entries: int = 0  # number of entries, outside the support or cross-validated, with errors; 0: no query
    error_deg: float | None = None  # mean after calibration; None without a query
    unadapted_deg: float | None = None  # mean before calibration
    checkpoint: str = ""  # hash of the network that computed the codes (CodeStore.checkpoint); "" if unknown
    setup: dict[str, Any] = field(default_factory=dict)  # network, date; from the page also camera, hfov_deg, screen

    def gaze(self, seen: Seen) -> NDArray[np.float64]:
        """Estimate calibrated gaze directions as unit vectors (n, 3)."""
        return LEARNERS[self.learner].estimate(self.state, seen)

    def expected_error_deg(self, seen: Seen) -> NDArray[np.float64]:
        """Return the expected angular errors (n,) of these estimates in degrees; NaN if they are unknown."""
        return LEARNERS[self.learner].expected_error_deg(self.state, seen)


def calibrate(
    person: PersonCodes, support: Sequence[int], query: NDArray[np.int64], learned: Learned
) -> PersonalEstimator:
    """Adapt a learner to a person's support entries; measure the error on the query. `offset` needs no training."""
    state = LEARNERS[learned.learner].fit(person, np.asarray(support), learned)
    unadapted_deg = mean_angle_deg(person.gaze_hat[query], person.gaze[query])
    about = (learned.learner, person.name, person.dataset, len(support), list(support))
    found = PersonalEstimator(*about, state, len(query), unadapted_deg=unadapted_deg)
    error_deg = mean_angle_deg(found.gaze(person.seen(query)), person.gaze[query])
    return dataclasses.replace(found, error_deg=error_deg)


def load_personal_estimator(path: Path, checkpoint: str) -> PersonalEstimator:
    """Read a file from `faze calibrate`; raise a UserError if it was made with a network other than `checkpoint`."""
    found = load_fields(PersonalEstimator, path, "a person's calibration", "run faze calibrate again")
    if found.checkpoint != checkpoint:
        raise UserError(f"{path}: was made with another network: run faze calibrate again with this network")
    return found


def load_learned(path: Path | str) -> Learned:
    """Read a learner's file; raise a UserError if it is invalid, since compiled code does not check shapes."""
    learned = load_fields(Learned, path, "a learner file", "run meta_train again")
    if isinstance(LEARNERS[learned.learner], FineTuned):
        shapes = {name: tuple(part.shape) for name, part in learned.state.items()}
        k, (*_, inputs, hidden) = len(learned.shots), (0, 0, *shapes.get("hidden_weight", ()))
        expected = ((k, inputs, hidden), (k, 1, hidden), (k, hidden, 3), (k, 1, 3))
        if shapes != dict(zip(PARTS, expected, strict=True)) or hidden > 4096:  # kernel.c's stack holds a gradient
            raise UserError(f"{path}: not a learner file (shapes {shapes}): run meta_train again")
    return learned


def load_fields(kind: type, path: Path | str, what: str, remedy: str) -> Any:
    """Read a file written by `save_fields`; raise a UserError if a field is invalid or the learner is unknown."""
    try:
        found = TypeAdapter(kind).validate_python(dict(read_mapping(path)))
    except ValidationError as error:
        raise UserError(f"{path}: not {what} ({error.errors()[0]['loc'][0]} is invalid): {remedy}") from None
    if found.learner not in LEARNERS:
        raise UserError(f"{path}: contains an unknown learner, {found.learner:.100}: {remedy}")
    return found


def save_fields(content: Any, path: Path | str) -> None:
    """Write a dataclass atomically as a dict of its fields; torch.load(path, weights_only=True) reads it."""
    write_mapping(path, {f.name: getattr(content, f.name) for f in dataclasses.fields(content)})
