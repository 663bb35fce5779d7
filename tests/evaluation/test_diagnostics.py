"""Diagnostics of one person's codes: pixel checks and components of the error.

Regression: a slope seemed to explain pure noise, since degrees of freedom were not counted; pitch and yaw were
exchanged.
"""

import itertools

import numpy as np
import pytest

from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.evaluation.diagnostics import blind_errors, residual_squares


def person(seed: int, offset: float, slope: float, head: float, noise: float, entries: int = 150) -> dict:
    """Return the codes of a person whose residual components have these sizes in degrees, equal on both axes."""
    rng = np.random.default_rng(seed)
    hat, pose = rng.normal(0, 0.2, (entries, 2)), rng.normal(0, 0.2, (entries, 2))
    unit = [offset * rng.choice([-1, 1], (1, 2)), slope * hat / 0.2, head * pose[:, ::-1] / 0.2]
    residual = sum(unit) + noise * rng.normal(size=hat.shape)
    return {"gaze": hat + np.radians(residual), "head": pose, "gaze_hat": vector_from_pitchyaw(hat)}


@pytest.mark.parametrize(("people", "entries"), [(60, 150), (2000, 12)])
@pytest.mark.parametrize("sizes", [(3.0, 1.5, 1.0, 2.0), (0.0, 0.0, 0.0, 1.0)])
def test_each_part_is_found(sizes, people, entries) -> None:
    """Few entries show whether the parameters of the models are subtracted from the degrees of freedom."""
    squares = np.mean([residual_squares(person(seed, *sizes, entries)) for seed in range(people)], axis=0)
    found = np.append(-np.diff(squares), squares[-1])
    assert found == pytest.approx(2 * np.square(sizes), rel=0.1, abs=0.2)


def test_the_pixel_blind_predictor_is_fitted_on_the_pool_only():
    rng = np.random.default_rng(0)
    head = rng.normal(size=(50, 2)) * 0.2
    gaze = 0.1 + head @ np.array([[0.5, 0.1], [-0.2, 0.7]])
    codes = {"gaze": gaze, "head": head, "gaze_hat": vector_from_pitchyaw(gaze)}
    assert blind_errors(codes, 20)["pixel_blind"] == pytest.approx(0.0, abs=1e-6)
    moved = codes | {"gaze": np.concatenate([gaze[:30], gaze[30:] + [0.0, 0.3]])}
    assert blind_errors(moved, 20)["pixel_blind"] > 10  # the query is not used for the fit


def test_the_permuted_error_is_the_mean_over_all_permutations():
    rng = np.random.default_rng(1)
    gaze, estimate = rng.normal(size=(9, 2)) * 0.2, rng.normal(size=(9, 3))
    found = blind_errors({"gaze": gaze, "head": gaze, "gaze_hat": estimate}, 4)["permuted"]
    vectors = vector_from_pitchyaw(gaze[-4:])
    errors = [np.degrees(angular_error(vectors, estimate[-4:][[*p]])).mean() for p in itertools.permutations(range(4))]
    assert found == pytest.approx(np.mean(errors))
