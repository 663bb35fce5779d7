"""Learner files from strangers: shapes are checked before compiled code computes with them.

Regression: the compiled kernel read beyond its arrays, or overflowed its stack with a large network; values of other
types caused a traceback.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.commands.calibrate import read_learner
from faze.config.parameters import Fewshot
from faze.config.yaml_files import DEFAULTS, read_yaml
from faze.fewshot.learner_file import Learned, is_of, load_learned, plain, save_fields, state_fault
from faze.fewshot.person_codes import PersonCodes
from faze.fewshot.personal_estimator import calibrate

_KEYS = {field.name for field in dataclasses.fields(Fewshot)}
SETTINGS = plain(Fewshot(**{key: value for key, value in read_yaml(DEFAULTS)["fewshot"].items() if key in _KEYS}))


def network(hidden: int = 16, inputs: int = 6, shots: int = 2) -> dict[str, torch.Tensor]:
    shapes = ((shots, inputs, hidden), (shots, 1, hidden), (shots, hidden, 3), (shots, 1, 3))
    names = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
    return {name: torch.full(shape, 0.1) for name, shape in zip(names, shapes, strict=True)}


def linear(d: int = 2) -> dict[str, torch.Tensor]:
    ones = torch.ones(2, d, dtype=torch.float64)
    covariance = torch.eye(d, dtype=torch.float64).repeat(2, 1, 1)
    dof = torch.tensor([5.0], dtype=torch.float64)
    return {"mean": ones, "covariance": covariance, "noise": ones[:, 0], "dof": dof, "center": ones, "scale": ones}


def file_of(folder: Path, learner: str, state: dict[str, torch.Tensor], /, **changed: Any) -> Path:
    learned = Learned(learner, [1, 3], SETTINGS | {"adapt_steps": 2}, state)
    save_fields(dataclasses.replace(learned, **changed), folder / "learner.pt")
    return folder / "learner.pt"


def person() -> PersonCodes:
    rng = np.random.default_rng(0)
    gaze = vector_from_pitchyaw(rng.normal(0, 0.2, (6, 2)))
    return PersonCodes(
        "p00", "mpiigaze", "test", rng.normal(size=(6, 6)).astype(np.float32), gaze, gaze, np.zeros((6, 2))
    )


@pytest.mark.parametrize(
    ("learner", "state"),
    [("maml", network(hidden=4096)), ("affine", linear()), ("offset", {}), ("kappa", {"shrink": torch.ones(3)})],
)
def test_whole_files_are_read(learner: str, state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    found = load_learned(file_of(tmp_path, learner, state), learner, [1])
    assert (found.learner, found.shots, found.settings["adapt_steps"]) == (learner, [1, 3], 2)
    assert found.state.keys() == state.keys() and all(torch.equal(found.state[name], state[name]) for name in state)
    estimator = calibrate(person(), [5, 1, 2], found)
    assert (estimator.learner, estimator.shots, estimator.support) == (learner, 3, [5, 1, 2])


def change(name: str, tensor: torch.Tensor) -> Callable[[dict], dict]:
    return lambda state: state | {name: tensor}


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (change("hidden_bias", torch.zeros(2, 1, 1)), r"hidden_bias has shape \(2, 1, 1\)"),
        (change("hidden_bias", torch.zeros(2, 16)), r"hidden_bias has shape \(2, 16\)"),
        (change("output_weight", torch.zeros(2, 8, 3)), "output_weight has shape"),
        (change("output_weight", torch.zeros(2, 16, 2)), "output_weight has shape"),
        (change("output_bias", torch.zeros(1, 1, 3)), "output_bias has shape"),
        (change("output_bias", torch.zeros(2, 1, 3).double()), "different dtypes"),
        (change("output_bias", torch.zeros(2, 1, 3).long()), "not finite"),
        (change("output_bias", torch.full((2, 1, 3), torch.nan)), "not finite"),
        (change("more", torch.zeros(1)), "its state is not hidden_weight"),
        (change("rate_scale_hidden_bias", torch.zeros(2, 1, 16)), "its state is not hidden_weight"),
        (lambda _: {}, "its state is not hidden_weight"),
        (lambda _: network(hidden=4097), "4097 hidden units are more than 4096"),
        (lambda _: network(shots=3), "hidden_weight has shape"),
        (lambda _: network(inputs=0), "hidden_weight has shape"),
    ],
)
def test_a_network_is_of_one_piece(edit: Callable[[dict], dict], fault: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"learner.pt: not a learner file .*{fault}"):
        load_learned(file_of(tmp_path, "maml", edit(network())), None, [1])


@pytest.mark.parametrize(
    ("learner", "state", "fault"),
    [
        (
            "affine",
            linear() | {"covariance": torch.eye(3, dtype=torch.float64).repeat(2, 1, 1)},
            "covariance has shape",
        ),
        ("affine", linear() | {"noise": torch.zeros(2, dtype=torch.float64)}, "noise is not positive"),
        ("affine", linear() | {"dof": torch.tensor([2.0], dtype=torch.float64)}, "dof is not greater than 2"),
        ("kappa", {"shrink": torch.ones(4)}, "shrink has shape"),
        ("gp", {"kernel": torch.ones(2, 3)}, "its state is not kernel, noise"),
        ("offset", {"x": torch.ones(1)}, "its state is not empty"),
    ],
)
def test_closed_forms_hold_what_they_make(learner: str, state: dict, fault: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=fault):
        load_learned(file_of(tmp_path, learner, state), learner, [])


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"shots": "13"}, "shots is invalid for a learner"),
        ({"shots": [3, 3]}, r"shots \[3, 3\]"),
        ({"shots": [0, 3]}, r"shots \[0, 3\]"),
        ({"shots": [2**70, 3]}, "shots is invalid"),
        ({"settings": {"seed": torch.zeros(2)}}, "settings is invalid"),
        ({"state": {"hidden_weight": 3}}, "state is invalid"),
        ({"stop_steps": [5, 2**40]}, "it would adapt with more than 100000 steps"),  # red before: it did
        ({"settings": SETTINGS | {"adapt_steps": 100_001}}, "it would adapt with more than 100000 steps"),
        ({"stop_steps": [5]}, "stop_steps does not have one value per k"),
        ({"val_deg": {"many": 1.0}}, "val_deg does not have one value per k"),
        ({"val_deg": {"1": float("inf")}}, "val_deg is invalid"),
        ({"activation": "tanh"}, "activation is invalid"),
        ({"learner": 3}, "learner is invalid"),
    ],
)
def test_fields_are_of_their_kinds(changed: dict[str, Any], fault: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"learner.pt: .*{fault}"):
        load_learned(file_of(tmp_path, "maml", network(), **changed), None, [])


def test_a_learner_that_is_not_known_is_said(tmp_path: Path) -> None:
    """The learner is from another checkout, such as `own-learner`: its state is unknown here."""
    path = file_of(tmp_path, "of_others", {"x": torch.ones(1)})
    assert state_fault("of_others", 1, {"x": torch.ones(1)}) == ""
    with pytest.raises(UserError, match="does not know: of_others"):
        read_learner(path, None)


def test_codes_of_another_size_are_said(tmp_path: Path) -> None:
    found = load_learned(file_of(tmp_path, "bayes", linear(5)), "bayes", [])
    with pytest.raises(UserError, match="have 21 features, but the learner has 5"):
        calibrate(person(), [0, 1], found)


def test_settings_that_lack_something_are_said(tmp_path: Path) -> None:
    found = load_learned(file_of(tmp_path, "maml", network(), settings={"seed": 0}), None, [1])
    with pytest.raises(UserError, match="the file of the learner maml: settings.shots: missing: run meta_train again"):
        calibrate(person(), [0], found)


def test_a_prior_that_is_no_covariance_is_said(tmp_path: Path) -> None:
    state = linear() | {name: torch.zeros_like(linear()[name]) for name in ("covariance", "center")}
    state["covariance"][:, 0, 0] = -1.0  # and the noise is 1: nothing can be solved
    found = load_learned(file_of(tmp_path, "affine", state), "affine", [])
    with pytest.raises(UserError, match="the trained state of affine is not a covariance"):
        calibrate(person(), [0], found)


@pytest.mark.parametrize(
    ("value", "kind", "is_it"),
    [
        *((1, int, True), (True, int, False), (2**63, int, False), (1, float, True), (float("nan"), float, False)),
        *(([1, 2], list[int], True), ([1, "x"], list[int], False), ({"a": 1}, dict[str, float], True)),
        *(({1: 1}, dict[str, float], False), (None, float | None, True), ("x", float | None, False)),
    ],
)
def test_kinds(value: object, kind: object, is_it: bool) -> None:
    assert is_of(value, kind) == is_it
