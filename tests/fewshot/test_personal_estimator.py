"""The adapted networks that a person's calibration contains."""

import numpy as np
import pytest
import torch

from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.config.validation import read_config
from faze.fewshot.interface import Learned
from faze.fewshot.learners import LEARNERS, PersonalEstimator, calibrate, load_fields, save_fields
from faze.fewshot.mlp import PARTS, random_network
from faze.fewshot.person_codes import Calibration, PersonCodes

FEWSHOT = read_config().fewshot.model_copy(update={"shots": (1, 4), "adapt_steps": 50, "adapt_lr": 1e-4})


def a_person() -> PersonCodes:
    """Return a person with 20 entries, whose gaze head is off by 4 degrees in pitch, plus noise."""
    rng = np.random.default_rng(3)
    gaze = rng.uniform(-0.3, 0.3, (20, 2))
    seen = gaze + [np.radians(4), 0] + rng.normal(0, 0.005, gaze.shape)
    code = np.stack([vector_from_pitchyaw(seen), vector_from_pitchyaw(seen + 0.5)], axis=1).reshape(20, 6)
    return PersonCodes(
        "me", "mine", "test", code.astype(np.float32), vector_from_pitchyaw(gaze), vector_from_pitchyaw(seen), 0 * gaze
    )


def a_learner(learner: str) -> Learned:
    """Return two very different networks, for k = 1 and k = 4, with the learner's own settings."""
    both = [random_network(6, 8, seed) for seed in (1, 2)]
    state = {name: torch.cat([network[name] for network in both]) for name in PARTS}
    own = {"activation": "relu"} if learner == "none" else {}
    return Learned(learner, [1, 4], FEWSHOT.model_dump() | {"shots": [1, 4]}, state, **own)


@pytest.mark.parametrize(("learner", "k"), [("maml", 1), ("none", 4)])
def test_the_adapted_network_is_the_one_that_adapt_measures_and_its_file_is_documented(learner, k, tmp_path):
    """All entries after the first k are query entries, so the learner itself measures on the same entries."""
    person, learned = a_person(), a_learner(learner)
    save_fields(calibrate(person, range(k), np.arange(k, 20), learned), tmp_path / "me.pt")
    found = load_fields(PersonalEstimator, tmp_path / "me.pt", "a calibration", "")
    settings = FEWSHOT.model_copy(update={"query_entries": 20 - k})
    errors = LEARNERS[learner].errors(learned, [Calibration(person, 0, np.arange(k))], settings)
    assert found.error_deg == pytest.approx(errors.adapted_deg[0], abs=1e-3)
    assert abs(errors.adapted_deg[0] - errors.start_deg[0]) > 0.1
    state = {name: value.numpy().astype(float) for name, value in found.state.items()}
    x = person.code @ state["hidden_weight"] + state["hidden_bias"]
    selu = 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    hidden = np.maximum(x, 0) if learner == "none" else selu
    gaze = hidden @ state["output_weight"] + state["output_bias"]
    np.testing.assert_allclose(found.error_deg, np.degrees(angular_error(gaze, person.gaze)[k:].mean()), rtol=1e-4)


def test_an_offset_is_the_mean_difference() -> None:
    person = a_person()
    found = calibrate(person, range(9), np.arange(9, 20), Learned("offset", [], {}))
    assert found.state["offset_rad"].tolist() == pytest.approx([np.radians(4), 0], abs=0.005)
    assert found.error_deg < 0.6 and found.unadapted_deg > 3 and found.query_entries == 11
