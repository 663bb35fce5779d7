"""Calibrations as ONNX graphs: their gaze is that of the estimators in numpy.

Checked by breaking the code: pitch and yaw of the residual exchanged, the rotation in the camera's frame, the offset
added instead of subtracted, the activation of the other network.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from test_closed_forms import affine_person, learn, people
from torch import Tensor, nn

from faze.base.errors import UserError
from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.fewshot.learners import LEARNERS
from faze.fewshot.mlp import random_weights
from faze.fewshot.onnx_person import CLOSED_FORMS, calibration_in_torch
from faze.fewshot.person_codes import Seen
from faze.fewshot.personal_estimator import PersonalEstimator, calibrate
from faze.model.onnx_graphs import export_part, open_graph


def person_of(learner: str) -> PersonalEstimator:
    """Calibrate on 9 samples; an adapted network, named by its activation, has random weights."""
    if learner in ("selu", "relu"):
        state = {name: value[0] for name, value in random_weights(1, 6, 8, 3)._asdict().items()}
        state |= {"hidden_bias": torch.full((8,), 0.1), "output_bias": torch.tensor([0.1, 0.2, 0.3])}
        return PersonalEstimator("none", "me", "mine", 9, list(range(9)), {}, state, learner)
    learned = learn(learner, affine_person) if LEARNERS[learner].learns_from_tasks else None
    return calibrate(people(affine_person, 1, 900)[0], range(9), learned)


class Calibrations(nn.Module):
    """Calibrations by all learners in one graph, as export_part expects a part."""

    learners = (*CLOSED_FORMS, "selu", "relu")
    outputs = tuple(f"gaze_{learner}" for learner in learners)

    def __init__(self) -> None:
        super().__init__()
        self.calibrations = [calibration_in_torch(person_of(learner)) for learner in self.learners]

    def forward(self, code: Tensor, gaze: Tensor, head: Tensor) -> tuple[Tensor, ...]:
        return tuple(calibrate(code, gaze, head) for calibrate in self.calibrations)

    def examples(self, count: int) -> dict[str, Tensor]:
        draw = np.random.default_rng(7)
        hat, head = draw.normal(0, 0.3, (2, count, 2))
        # As in test_closed_forms, a code contains both directions.
        code = np.concatenate([vector_from_pitchyaw(hat), vector_from_pitchyaw(head)], axis=1)
        code += draw.normal(0, 0.02, code.shape)
        arrays = {"code": code, "gaze": vector_from_pitchyaw(hat), "head": head}
        return {name: torch.from_numpy(array).float() for name, array in arrays.items()}


def test_a_graphs_calibration_is_that_of_the_estimator(tmp_path: Path) -> None:
    assert set(CLOSED_FORMS) == {name for name, learner in LEARNERS.items() if not learner.takes_steps}
    part, path = Calibrations(), tmp_path / "calibrations.onnx"
    export_part(part, path)
    inputs = {name: value.numpy() for name, value in part.examples(1000).items()}
    found = dict(zip(part.learners, open_graph(path).run(None, inputs), strict=True))
    for learner, gaze in found.items():
        expected = person_of(learner).gaze(Seen(inputs["code"], inputs["gaze"].astype(np.float64), inputs["head"]))
        assert np.degrees(angular_error(gaze, expected).max()) < 0.01, learner
        assert np.degrees(angular_error(inputs["gaze"], expected).mean()) > 0.5, learner


def test_a_rotation_by_zero_leaves_the_gaze_unchanged() -> None:
    person = dataclasses.replace(person_of("kappa"), state={"rotation_rad": torch.zeros(3)})
    gaze, head = torch.tensor([[0.0, 0.6, 0.8], [0.6, 0.0, 0.8]]), torch.tensor([[0.1, -0.2], [0.3, 0.4]])
    torch.testing.assert_close(calibration_in_torch(person)(torch.zeros(2, 6), gaze, head), gaze)


def test_a_learner_without_a_graph_is_refused() -> None:
    with pytest.raises(UserError, match="by mine cannot be exported, only one by offset, affine, bayes, kappa, gp or"):
        calibration_in_torch(dataclasses.replace(person_of("offset"), learner="mine"))
