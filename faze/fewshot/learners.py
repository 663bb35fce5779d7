"""All few-shot learners, and the gaze estimator that they make for a person, stored in a file and used on new codes."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict
from torch import Tensor

from faze.base.errors import UserError
from faze.base.geometry import mean_angle_deg
from faze.fewshot.fine_tuning import FineTuned
from faze.fewshot.interface import Learned, Learner, load_fields
from faze.fewshot.mlp import gaze_vector, pack
from faze.fewshot.person_codes import PersonCodes, Seen
from faze.fewshot.residual import Affine, Bayes, Offset

LEARNERS: dict[str, Learner] = {
    **{rule: FineTuned(rule) for rule in ("maml", "fomaml", "reference", "none")},
    "offset": Offset(),
    "affine": Affine(),
    "bayes": Bayes(),
}


@dataclass(frozen=True, eq=False)
class PersonalEstimator:
    """A person's estimator; its file contains a dict of these fields.

    For a closed form, `state` is the input of its `estimate`; for `offset`, offset_rad (2,), the pitch and yaw to be
    subtracted from the trained gaze head's estimate. For a learner that takes steps, it is the adapted network, with F
    inputs and H hidden units: hidden_weight (F, H), hidden_bias (H,), output_weight (H, 3), output_bias (3,), float32.
    The gaze is act(z_gaze @ hidden_weight + hidden_bias) @ output_weight + output_bias, normalised, with z_gaze
    flattened row by row. Like the labels, it points from the target to the eye.
    """

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)

    learner: str
    person: str
    dataset: str
    shots: int  # k
    support: list[int]  # entries of the store used for calibration
    settings: dict[str, float]  # of the adaptation: steps and lr; empty for closed forms
    state: dict[str, Tensor]
    activation: str = ""  # `act` of the network, selu or relu; empty for closed forms
    query_entries: int = 0  # over which errors are averaged, disjoint from the support; 0 if there are none
    error_deg: float | None = None  # mean after calibration; None without a query
    unadapted_deg: float | None = None  # mean before calibration
    checkpoint: str = ""  # hash of the network that made the codes (CodeStore.checkpoint); "" if unknown

    def gaze(self, seen: Seen) -> NDArray[np.float64]:
        """Estimate calibrated gaze directions as unit vectors (n, 3)."""
        if not self.activation:
            return LEARNERS[self.learner].estimate(self.state, seen)
        network = pack({name: part[None] for name, part in self.state.items()})
        vector = gaze_vector(network, torch.from_numpy(seen.code)[None], self.activation)[0].double().numpy()
        return vector / np.linalg.norm(vector, axis=-1, keepdims=True)


def load_personal_estimator(path: Path, checkpoint: str) -> PersonalEstimator:
    """Read a file of `faze calibrate`; raise a UserError if it was made with another network than that with a hash."""
    found = load_fields(PersonalEstimator, path, "a person's calibration: run faze calibrate again")
    if found.learner not in LEARNERS:
        raise UserError(f"{path}: contains an unknown learner, {found.learner:.100}: run faze calibrate again")
    if found.checkpoint != checkpoint:
        raise UserError(
            f"{path}: was made with another network ({found.checkpoint or 'unknown'}, not {checkpoint}): run faze "
            "calibrate again with this one"
        )
    return found


def calibrate(
    person: PersonCodes, support: Sequence[int], query: NDArray[np.int64], learned: Learned
) -> PersonalEstimator:
    """Adapt a trained learner to some entries of a person, and measure the error on others.

    A `Learned` of `offset` needs no training.
    """
    learner, entries = LEARNERS[learned.learner], np.asarray(support)
    state, settings, activation = learner.fit(person, entries, learned), {}, ""
    if learner.takes_steps:
        settings = {"steps": learned.settings["adapt_steps"], "lr": learned.settings["adapt_lr"]}
        activation = learned.activation
    about = (learner.name, person.name, person.dataset, len(entries), entries.tolist())
    found = PersonalEstimator(*about, settings, state, activation, query_entries=len(query))
    error_deg = mean_angle_deg(found.gaze(person.seen(query)), person.gaze[query])
    unadapted_deg = mean_angle_deg(person.gaze_hat[query], person.gaze[query])
    return dataclasses.replace(found, error_deg=error_deg, unadapted_deg=unadapted_deg)
