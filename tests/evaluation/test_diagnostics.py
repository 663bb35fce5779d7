"""Checks that the network uses a person's pixels."""

import itertools

import numpy as np
import pytest

from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.evaluation.diagnostics import blind_errors


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
