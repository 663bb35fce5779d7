"""Noise with heavy tails, and means of few people, compared with integration, known optima and the true parameters.

Checked by breaking the code: samples that keep their weight, a weight that ignores the posterior's variance, degrees of
freedom estimated from one axis, a mean that is not shrunk, a shrunk mean whose length is missing from the covariance.
"""

import numpy as np
import pytest
import torch
from test_closed_forms import learn, offset_person, people, with_normal_noise
from test_fewshot import settings

from faze.base.geometry import pitchyaw_from_vector, vector_from_pitchyaw
from faze.fewshot.interface import Adaptation
from faze.fewshot.learner_file import Learned
from faze.fewshot.learners import LEARNERS
from faze.fewshot.linear_residual import learn_weights, likely_dof
from faze.fewshot.person_codes import PersonCodes, Seen, draw_calibrations

VARIANCE, NOISE, DOF = np.array([9.0, 4.0]), np.array([1.0, 2.0]), 4.0  # square degrees


def heavy(rng: np.random.Generator, count: int, dof: float) -> np.ndarray:
    """Draw (count, 2) from a bivariate t distribution with unit variances."""
    common = np.sqrt((dof - 2) / rng.chisquare(dof, (count, 1)))
    return common * rng.normal(size=(count, 2))


def heavy_person(rng: np.random.Generator, seen: Seen) -> np.ndarray:
    return rng.normal(0, 3, 2) + 2.0 * heavy(rng, len(seen.head), 3.0)


def offset_prior(dof: float = DOF) -> Learned:
    """Create the prior of `affine` for people who differ in an offset only."""
    covariance = np.stack([np.diag([variance, 1e-12]) for variance in VARIANCE])
    arrays = {"mean": np.zeros((2, 2)), "covariance": covariance, "noise": NOISE, "dof": np.array([dof])}
    arrays |= {"center": np.zeros((2, 2)), "scale": np.ones((2, 2))}
    return Learned("affine", [9], {}, {name: torch.from_numpy(array) for name, array in arrays.items()})


def posterior_mean_by_integration(residual: np.ndarray) -> np.ndarray:
    """Integrate over a grid of offsets (2,) in degrees, given residuals (k, 2) with bivariate t noise."""
    axes = [np.linspace(-15, 15, 601)] * 2
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    log = -0.5 * (grid**2 / VARIANCE).sum(axis=-1)
    for sample in residual:
        square = ((sample - grid) ** 2 / NOISE).sum(axis=-1)
        log -= (DOF + 2) / 2 * np.log1p(square / (DOF - 2))
    weight = np.exp(log - log.max())
    return (grid * weight[..., None]).sum(axis=(0, 1)) / weight.sum()


def person_with(residual: np.ndarray) -> PersonCodes:
    hat = np.zeros_like(residual)
    gaze = vector_from_pitchyaw(hat + np.radians(residual))
    return PersonCodes("p00", "mpiigaze", "test", hat.astype(np.float32), gaze, vector_from_pitchyaw(hat), hat)


def found_offset(residual: np.ndarray, learned: Learned) -> np.ndarray:
    return LEARNERS["affine"].fit(person_with(residual), np.arange(len(residual)), learned)["mean"][:, 0].numpy()


@pytest.mark.parametrize("k", [1, 3, 5, 9])
def test_the_offset_is_near_the_posterior_mean(k: int) -> None:
    """Expectation maximisation is approximate, but closer to the mean than a model with normal noise is."""
    rng = np.random.default_rng(k)
    ours, normal = [], []
    for _ in range(40):
        residual = rng.normal(0, VARIANCE**0.5) + NOISE**0.5 * heavy(rng, k, DOF)
        truth = posterior_mean_by_integration(residual)
        ours.append(found_offset(residual, offset_prior()) - truth)
        normal.append(found_offset(residual, offset_prior(1e12)) - truth)
    assert np.abs(ours).max() < 0.6
    assert np.std(ours) < 0.6 * np.std(normal)


@pytest.mark.parametrize("size_deg", [8.0, 20.0])
def test_one_bad_sample_of_nine_hardly_matters(size_deg: float) -> None:
    """A mean would move by a ninth of the sample's error."""
    residual = np.tile([2.0, -1.0], (9, 1)) + np.random.default_rng(0).normal(0, 0.5, (9, 2))
    bad = residual.copy()
    bad[4, 1] += size_deg  # the sample loses its weight on both axes
    moved = found_offset(bad, offset_prior()) - found_offset(residual, offset_prior())
    assert np.abs(moved).max() < 0.4
    without = found_offset(np.delete(residual, 4, axis=0), offset_prior())
    np.testing.assert_allclose(found_offset(bad, offset_prior()), without, atol=0.2)


@pytest.mark.parametrize("k", [1, 3, 9])
def test_the_shrinkage_is_optimal_for_known_variances(k: int) -> None:
    """For normal noise, k samples move the offset by variance / (variance + noise / k) of their mean.

    People have offsets of 3 degrees and noise of 1 degree; the pitch of the mean person is off by 1 degree, which
    `affine` adds to the variance.
    """
    learned, someone = learn("affine", offset_person), people(offset_person, 1, 900)[0]
    support = np.arange(k)
    correction = LEARNERS["affine"].fit(someone, support, learned)
    moved = pitchyaw_from_vector(LEARNERS["affine"].estimate(correction, someone.seen(support)))
    moved = np.degrees(moved - pitchyaw_from_vector(someone.gaze_hat[support])).mean(axis=0)
    residual = np.degrees(pitchyaw_from_vector(someone.gaze) - pitchyaw_from_vector(someone.gaze_hat))[support]
    expected = np.array([10.0, 9.0]) / (np.array([10.0, 9.0]) + 1 / k)
    np.testing.assert_allclose(moved / residual.mean(axis=0), expected, atol=0.05)


@pytest.mark.parametrize("dof", [3.0, 6.0, 20.0])
def test_the_degrees_of_freedom_are_found(dof: float) -> None:
    assert likely_dof(heavy(np.random.default_rng(0), 40_000, dof)) == pytest.approx(dof, rel=0.1)


@pytest.mark.parametrize("learner", ["affine", "bayes"])
def test_heavy_tails_are_recognised_and_used(learner: str) -> None:
    learned, fewshot = learn(learner, heavy_person), settings(shots=[5])
    assert float(learned.state["dof"]) == pytest.approx(3.0, rel=0.25)
    adaptation = Adaptation(draw_calibrations(people(heavy_person, 40, 700, split="test"), fewshot, repeats=5), fewshot)
    ours, normal = (
        LEARNERS[learner].errors(state, adaptation).adapted_deg for state in (learned, with_normal_noise(learned))
    )
    assert ours.mean() < 0.97 * normal.mean()


def drawn_weights(people_count: int, mean: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    designs = [np.column_stack([np.ones(60), rng.normal(size=(60, len(mean) - 1))]) for _ in range(people_count)]
    drawn = [design @ (mean + rng.normal(size=len(mean))) + 0.1 * rng.normal(size=60) for design in designs]
    return designs, drawn


def test_the_mean_of_few_people_is_zero_and_counts_as_variance() -> None:
    designs, drawn = drawn_weights(6, np.array([5.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    mean, covariance, _ = learn_weights(designs, drawn, around_identity=False)
    assert not mean.any()
    own = np.stack([np.linalg.lstsq(*pair, rcond=None)[0] for pair in zip(designs, drawn, strict=True)])
    np.testing.assert_allclose(covariance, own.T @ own / len(own), atol=0.02)


def test_a_mean_without_evidence_is_shrunk_and_one_with_evidence_is_not() -> None:
    for first, least, most in ((0.0, 0.0, 0.6), (5.0, 0.98, 1.0)):
        designs, drawn = drawn_weights(40, np.array([first, *np.zeros(7)]))
        own = np.stack([np.linalg.lstsq(*pair, rcond=None)[0] for pair in zip(designs, drawn, strict=True)])
        mean, _, _ = learn_weights(designs, drawn, around_identity=False)
        assert least <= np.linalg.norm(mean) / np.linalg.norm(own.mean(axis=0)) <= most
