"""Learner files from strangers: shapes are checked before compiled code computes with them.

Regression: the compiled kernel read beyond its arrays, or overflowed its stack with a large network; values of other
types caused a traceback.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.fewshot.interface import Learned
from faze.fewshot.learners import calibrate, load_learned, save_fields
from faze.fewshot.person_codes import PersonCodes

SETTINGS = {"adapt_steps": 2, "adapt_lr": 1e-6}


def network(hidden: int = 16, inputs: int = 6, shots: int = 2, **changed: torch.Tensor) -> dict[str, torch.Tensor]:
    shapes = ((shots, inputs, hidden), (shots, 1, hidden), (shots, hidden, 3), (shots, 1, 3))
    names = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
    return {name: torch.full(shape, 0.1) for name, shape in zip(names, shapes, strict=True)} | changed


def file_of(folder: Path, learner: str, state: dict[str, torch.Tensor], /, **changed: Any) -> Path:
    learned = Learned(learner, [1, 3], SETTINGS, state)
    save_fields(dataclasses.replace(learned, **changed), folder / "learner.pt")
    return folder / "learner.pt"


def test_a_valid_file_is_read_and_used(tmp_path: Path) -> None:
    found = load_learned(file_of(tmp_path, "maml", network(4096), activation="relu"))
    assert (found.shots, found.settings, found.activation) == ([1, 3], SETTINGS, "relu")
    assert all(torch.equal(value, network(4096)[name]) for name, value in found.state.items())
    rng = np.random.default_rng(0)
    gaze = vector_from_pitchyaw(rng.normal(0, 0.2, (6, 2)))
    code = rng.normal(size=(6, 6)).astype(np.float32)
    person = PersonCodes("p00", "mpiigaze", "test", code, gaze, gaze, np.zeros((6, 2)))
    estimator = calibrate(person, [5, 1, 2], np.arange(3, 5), found)
    assert (estimator.learner, estimator.shots, estimator.support) == ("maml", 3, [5, 1, 2])


INVALID = [  # state, changes to the fields, words
    (network(hidden_bias=torch.zeros(2, 1, 1)), {}, "shapes"),
    (network(output_weight=torch.zeros(2, 16, 2)), {}, "shapes"),
    (network(hidden_weight=torch.zeros(2)), {}, "shapes"),
    (network(hidden=4097), {}, "shapes"),
    (network(shots=3), {}, "shapes"),
    (network(), {"shots": "13"}, "shots is invalid"),
    (network(), {"state": {"hidden_weight": 3}}, "state is invalid"),
    (network(), {"activation": "tanh"}, "activation is invalid"),
]


@pytest.mark.parametrize(("state", "changed", "words"), INVALID)
def test_invalid_files_are_refused(state: dict, changed: dict, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"learner.pt: .*{words}"):
        load_learned(file_of(tmp_path, "maml", state, **changed))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "learner.pt"
    path.write_bytes(b"torn")
    for content in (None, {"model": {}}, [1, 2]):
        if content:
            torch.save(content, path)
        with pytest.raises(UserError, match="learner.pt: "):
            load_learned(path)
