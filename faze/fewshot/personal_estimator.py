"""One person's own calibration: adapted from a few samples, kept in a file, applied to new codes.

Shapes: n samples, F inputs (the gaze code, flattened), H hidden units.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.geometry import angular_error, pitchyaw_from_vector, vector_from_pitchyaw
from faze.fewshot.draws import Calibration, PersonCodes, support_of
from faze.fewshot.kernel import adapt
from faze.fewshot.learner_file import Learned
from faze.fewshot.mlp import Weights, each
from faze.fewshot.offset import offset_rad

ACTIVATIONS = {"selu": torch.selu, "relu": torch.relu}


@dataclass(frozen=True, eq=False)
class PersonalEstimator:
    """A person's calibration: what its file holds, as a dict of these fields.

    Attributes:
        learner: that adapted.
        person, dataset: whose, and of which data set.
        shots: k.
        support: entries of the store that calibrated.
        settings: of the adaptation: steps and lr (which meta_sgd scales); empty for `offset`.
        state: of `offset`: offset_rad (2,), pitch and yaw to be subtracted from the trained gaze head's estimate.
            Of every other learner, the adapted network: hidden_weight (F, H), hidden_bias (H,), output_weight (H, 3),
            output_bias (3,), float32. Gaze = act(z_gaze @ hidden_weight + hidden_bias) @ output_weight + output_bias,
            normalised, with z_gaze flattened row by row; like the labels, it points from the target to the eye.
        activation: act of that network, selu or relu; empty for `offset`.
        query_entries: that the errors are means over, none of them in the support; 0: there was none left.
        error_deg, unadapted_deg: after and before calibration, degrees; None without a query.
    """

    learner: str
    person: str
    dataset: str
    shots: int
    support: list[int]
    settings: dict[str, float]
    state: dict[str, Tensor]
    activation: str = ""
    query_entries: int = 0
    error_deg: float | None = None
    unadapted_deg: float | None = None

    def gaze(self, code: NDArray[np.float32], gaze_hat: NDArray[np.float64]) -> NDArray[np.float64]:
        """Calibrated directions.

        Args:
            code: (n, F) gaze codes, flattened; what a network sees.
            gaze_hat: (n, 3) of the trained gaze head; what `offset` corrects.

        Returns:
            (n, 3) unit vectors.
        """
        if "offset_rad" in self.state:
            return vector_from_pitchyaw(pitchyaw_from_vector(gaze_hat) - self.state["offset_rad"].numpy())
        hidden = torch.addmm(self.state["hidden_bias"], torch.from_numpy(code), self.state["hidden_weight"])
        hidden = ACTIVATIONS[self.activation](hidden)  # (n, F) -> (n, H)
        vector = torch.addmm(self.state["output_bias"], hidden, self.state["output_weight"]).double().numpy()
        return vector / np.linalg.norm(vector, axis=1, keepdims=True)


def calibrate(person: PersonCodes, support: Sequence[int], learned: Learned | None) -> PersonalEstimator:
    """Adapt a learner to one person.

    Args:
        person: with z_gaze, gaze and gaze_hat of every entry.
        support: entries that calibrate.
        learned: a learner's file; None: `offset`, which needs none.

    Raises:
        UserError: the codes are not of the size that the learner learnt from, or the adaptation diverged.
    """
    draw = Calibration(0, len(support), 0, np.asarray(support))
    about = (person.name, person.dataset, len(support), [int(entry) for entry in support])
    if learned is None or learned.learner == "offset":
        return PersonalEstimator(
            "offset", *about, {}, {"offset_rad": torch.from_numpy(offset_rad(person, draw.support))}
        )
    steps, lr = _steps(learned, draw.shots), learned.settings["adapt_lr"]
    initial, rates = _start(person, draw.shots, learned)
    support = support_of([person], [draw])
    [(_, adapted)] = adapt(initial, support, steps=steps, lr=rates, threads=1, activation=learned.activation)
    state = {name: value[0] for name, value in adapted._asdict().items()}
    state |= {name: state[name][0] for name in ("hidden_bias", "output_bias")}  # (1, ...) -> (...)
    if not all(value.isfinite().all() for value in state.values()):
        raise UserError(f"adaptation of {person} with k = {draw.shots} diverged: lower fewshot.adapt_lr, learn again")
    return PersonalEstimator(learned.learner, *about, {"steps": steps, "lr": lr}, state, learned.activation)


def _steps(learned: Learned, shots: int) -> int:
    """Of adaptation, as at test: those that val people chose, or all."""
    if learned.settings["stopping"] == "validation" and learned.stop_steps:
        return learned.stop_steps[learned.shots.index(shots)]
    return learned.settings["adapt_steps"]


def _start(person: PersonCodes, shots: int, learned: Learned) -> tuple[Weights, Weights]:
    """The network that adapts with so many samples, and the learning rate of each of its parameters."""
    start, only = learned.start, torch.tensor([learned.shots.index(shots)])
    inputs, found = start.weights.hidden_weight.shape[1], person.code.shape[1]
    if inputs != found:
        raise UserError(f"{person} has gaze codes of {found} numbers, the learner of {inputs}: run meta_train again")
    initial = start.weights.take(only)
    scales = each(torch.ones_like, initial) if start.scales is None else start.scales.take(only)
    return initial, each(lambda scale: learned.settings["adapt_lr"] * scale, scales)


def measured(calibration: PersonalEstimator, person: PersonCodes, query: NDArray[np.int64]) -> PersonalEstimator:
    """The calibration with its error on a person's query, mean angle in degrees; without one as it was."""
    if not len(query):
        return calibration
    after = calibration.gaze(person.code[query], person.gaze_hat[query])
    errors = [np.degrees(angular_error(g, person.gaze[query]).mean()) for g in (after, person.gaze_hat[query])]
    return dataclasses.replace(
        calibration, query_entries=len(query), error_deg=float(errors[0]), unadapted_deg=float(errors[1])
    )


def save_estimator(calibration: PersonalEstimator, path: Path | str) -> None:
    """Write a calibration's file, whole or not at all; `torch.load(path, weights_only=True)` reads it as a dict."""
    fields = {f.name: getattr(calibration, f.name) for f in dataclasses.fields(calibration)}
    with whole_file(path) as temporary:
        torch.save(fields, temporary)


def load_estimator(path: Path | str) -> PersonalEstimator:
    """Read a calibration's file.

    Raises:
        UserError: it is no such file.
    """
    try:
        return PersonalEstimator(**torch.load(path, map_location="cpu", weights_only=True))
    except OSError:
        raise
    except Exception:  # torn bytes make the unpickler raise whatever they happen to lead it to
        raise UserError(f"{path}: is not the file of a calibration: run faze calibrate again") from None
