"""Closed-form learners compared with brute force, integration, known optima and the true parameters.

Checked by breaking the code: a posterior that forgets the prior's mean, the variances of pitch and yaw exchanged,
samples that keep their weight, a weight that ignores the posterior's variance, degrees of freedom estimated from one
axis, a mean that is not shrunk, a shrunk mean whose length is missing from the covariance, familiar people only.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from test_fewshot import settings

from faze.base.geometry import angular_error, pitchyaw_from_vector, vector_from_pitchyaw
from faze.fewshot import residual as residual_module
from faze.fewshot.interface import Learned, MetaTraining
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import PersonCodes, Seen, draw_calibrations
from faze.fewshot.residual import FACTORS, UNFAMILIAR, learn_weights, likely_dof, residual_deg, stretch

CLOSED = ("affine", "bayes")
Truth = Callable[[np.random.Generator, Seen], np.ndarray]  # of a person: residuals (n, 2), degrees
VARIANCE, NOISE, DOF = np.array([9.0, 4.0]), np.array([1.0, 2.0]), 4.0  # square degrees


def person(name: str, seed: int, residual: Truth, entries: int = 80, split: str = "train") -> PersonCodes:
    """Create a person whose gaze_hat is off by a residual, and whose code contains gaze_hat and noise."""
    rng = np.random.default_rng([11, seed])
    hat, head = rng.normal(0, 0.2, (entries, 2)), rng.normal(0, 0.15, (entries, 2))
    code = np.concatenate([vector_from_pitchyaw(hat), vector_from_pitchyaw(head)], axis=1).astype(np.float32)
    seen = Seen(code, vector_from_pitchyaw(hat), head)
    gaze = vector_from_pitchyaw(hat + np.radians(residual(rng, seen)))
    return PersonCodes(name, "gazecapture", split, code, gaze, seen.gaze_hat, head)


def people(residual: Truth, count: int = 60, first: int = 0, **named: object) -> list[PersonCodes]:
    return [person(f"{i:05d}", i, residual, **named) for i in range(first, first + count)]


@functools.cache
def learn(learner: str, residual: Truth, **changes: object) -> Learned:
    """Train a learner on people with this residual; tests with the same arguments share the result."""
    training = MetaTraining(people(residual), people(residual, 40, 500, split="val"), settings(**changes), 0)
    return LEARNERS[learner].meta_train(training)


def with_normal_noise(learned: Learned) -> Learned:
    return dataclasses.replace(learned, state=learned.state | {"dof": torch.tensor([1e12], dtype=torch.float64)})


def affine_person(rng: np.random.Generator, seen: Seen) -> np.ndarray:
    hat = np.degrees(pitchyaw_from_vector(seen.gaze_hat))
    return rng.normal(0, 3, 2) + rng.normal(0, 0.2, 2) * hat + rng.normal(0, 0.5, hat.shape)


def offset_person(rng: np.random.Generator, seen: Seen) -> np.ndarray:
    return rng.normal([1.0, 0.0], 3, 2) + rng.normal(0, 1.0, (len(seen.head), 2))


@pytest.mark.parametrize("learner", CLOSED)
@pytest.mark.parametrize("k", [1, 2, 9, 40])
def test_the_posterior_is_brute_forces(learner: str, k: int) -> None:
    """The reference adds the precisions of weights, whereas the code uses the covariances of samples."""
    learned = with_normal_noise(learn(learner, affine_person))
    someone, support = people(affine_person, 1, 900)[0], np.arange(k)
    found = LEARNERS[learner].fit(someone, support, learned)
    prior = {name: value.numpy() for name, value in learned.state.items()}
    share, means, residual = [], [], residual_deg(someone, support)
    features = LEARNERS[learner].features(someone.seen(support))
    design = (features - prior["center"][:, None]) / prior["scale"][:, None]
    for one, probability in ((prior, 1 - UNFAMILIAR), (stretch(prior, FACTORS), UNFAMILIAR)):
        weights = []
        for x, r, mean, spread, noise in zip(
            design, residual, one["mean"], one["covariance"], one["noise"], strict=True
        ):
            covariance = np.linalg.inv(np.linalg.inv(spread) + x.T @ x / noise)
            weights.append(covariance @ (np.linalg.solve(spread, mean) + x.T @ r / noise))
            probability *= multivariate_normal(x @ mean, x @ spread @ x.T + noise * np.eye(k)).pdf(r)
        share.append(probability)
        means.append(weights)
    np.testing.assert_allclose(found["mean"], np.average(means, axis=0, weights=share), rtol=1e-3, atol=1e-5)


def test_expectation_maximisation_finds_what_people_were_drawn_from() -> None:
    rng = np.random.default_rng(0)
    mean, root, noise = np.array([1.0, -2.0, 0.5]), rng.normal(0, 1, (3, 3)), 0.3
    designs = [np.column_stack([np.ones(40), rng.normal(size=(40, 2))]) for _ in range(2000)]
    drawn = [design @ (mean + root @ rng.normal(size=3)) + noise**0.5 * rng.normal(size=40) for design in designs]
    found_mean, covariance, found_noise = learn_weights(designs, drawn, around_identity=False)
    np.testing.assert_allclose(found_mean, mean, atol=0.12)
    np.testing.assert_allclose(covariance, root @ root.T, atol=0.25)
    assert found_noise == pytest.approx(noise, rel=0.03)
    found_mean, covariance, _ = learn_weights(designs, drawn, around_identity=True)
    assert not found_mean.any() and np.array_equal(covariance, np.diag(np.diag(covariance)))
    np.testing.assert_allclose(np.diag(covariance), mean**2 + np.diag(root @ root.T), rtol=0.15)


@pytest.mark.parametrize("learner", CLOSED)
def test_val_people_say_how_much_more_others_differ_than_train_people(learner: str) -> None:
    """The network was trained on the train people: they differ a third as much as others, with half the noise.

    Fails without the factors from val people.
    """

    def known(rng: np.random.Generator, seen: Seen) -> np.ndarray:
        return rng.normal(0, 1, 2) + rng.normal(0, 0.5, (len(seen.head), 2))

    def others(rng: np.random.Generator, seen: Seen) -> np.ndarray:
        return rng.normal(0, 3, 2) + rng.normal(0, 1.0, (len(seen.head), 2))

    def spread(val: list[PersonCodes]) -> float:
        """Return the variance of a person's offset divided by that of the noise."""
        learned = LEARNERS[learner].meta_train(MetaTraining(people(known, 200), val, settings(), 0))
        prior = {name: value.numpy() for name, value in learned.state.items()}
        design = LEARNERS[learner].design(prior, people(others, 1, 900)[0].seen(slice(0, 40)))
        of_person = design @ prior["covariance"] @ design.mT
        return float(np.mean(np.median(of_person, axis=(1, 2)) / prior["noise"]))

    assert 2 < spread([]) < 6  # 4 of train people
    assert 7 < spread(people(others, 100, 500, split="val")) < 12  # 9 of others


@pytest.mark.parametrize("learner", CLOSED)
def test_people_whose_gaze_is_known_exactly_are_left_as_they_are(learner: str) -> None:
    """Nothing can be learned, and nothing may be divided by a variance of zero."""

    def exact(rng: np.random.Generator, seen: Seen) -> np.ndarray:
        return np.zeros((len(seen.head), 2))

    fewshot = settings(shots=[3])
    test = people(exact, 2, 700, split="test")
    errors = LEARNERS[learner].errors(learn(learner, exact), draw_calibrations(test, fewshot, repeats=2), fewshot)
    assert errors.adapted_deg.max() < 1e-3


def heavy(rng: np.random.Generator, count: int, dof: float) -> np.ndarray:
    """Draw (count, 2) from a bivariate t distribution with unit variances."""
    common = np.sqrt((dof - 2) / rng.chisquare(dof, (count, 1)))
    return common * rng.normal(size=(count, 2))


def heavy_person(rng: np.random.Generator, seen: Seen) -> np.ndarray:
    return rng.normal(0, 3, 2) + 2.0 * heavy(rng, len(seen.head), 3.0)


def mild_person(rng: np.random.Generator, seen: Seen) -> np.ndarray:
    return rng.normal(0, 3, 2) + 2.0 * heavy(rng, len(seen.head), 6.0)


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
def test_the_offset_is_near_the_posterior_mean(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expectation maximisation is approximate, but closer to the mean than a model with normal noise is."""
    monkeypatch.setattr(residual_module, "UNFAMILIAR", 1e-12)
    rng = np.random.default_rng(k)
    ours, normal = [], []
    for _ in range(40):
        residual = rng.normal(0, VARIANCE**0.5) + NOISE**0.5 * heavy(rng, k, DOF)
        truth = posterior_mean_by_integration(residual)
        ours.append(found_offset(residual, offset_prior()) - truth)
        normal.append(found_offset(residual, offset_prior(1e12)) - truth)
    assert np.abs(ours).max() < 0.6
    assert np.std(ours) < 0.6 * np.std(normal)


def test_a_large_constant_error_is_an_unfamiliar_persons() -> None:
    """The remaining share of an error is noise / (prior + noise): 1 / (9 + 1) if familiar, 8 / (90 + 8) if not."""
    found = [found_offset(np.array([[error, 0.0]]), offset_prior(20.0))[0] / error for error in (1.0, 13.0)]
    assert found[0] == pytest.approx(0.9, abs=0.04) and found[1] > 0.91


@pytest.mark.parametrize("learner", [*CLOSED, "offset"])
@pytest.mark.parametrize("k", [3, 9])
def test_expected_errors_are_those_of_new_people(learner: str, k: int) -> None:
    """Errors are below multiples of the expected error as often as for a bivariate t distribution with 6 dof."""
    learned = Learned("offset", [], {}) if learner == "offset" else learn(learner, mild_person)
    errors, expected = [], []
    for one in people(mild_person, 150, 700):
        state, query = LEARNERS[learner].fit(one, np.arange(k), learned), one.seen(slice(20, None))
        errors.append(np.degrees(angular_error(LEARNERS[learner].estimate(state, query), one.gaze[20:])))
        expected.append(LEARNERS[learner].expected_error_deg(state, query))
    assert np.mean(expected) == pytest.approx(np.mean(errors), rel=0.1)
    ratio = np.divide(errors, expected)
    if learner != "offset":  # which does not know how uncertain a variance from few samples is
        assert np.mean(ratio < 1.16) == pytest.approx(0.68, abs=0.05)
        assert np.mean(ratio < 2.2) == pytest.approx(0.95, abs=0.05)


def test_an_expected_error_may_be_unknown() -> None:
    """With one sample, and for a network."""
    someone = people(mild_person, 1)[0]
    one = LEARNERS["offset"].fit(someone, np.arange(1), Learned("offset", [], {}))
    for learner, state in (("offset", one), ("maml", {})):
        assert np.isnan(LEARNERS[learner].expected_error_deg(state, someone.seen(slice(0, 5)))).tolist() == [True] * 5


@pytest.mark.parametrize("dof", [3.0, 6.0, 20.0])
def test_the_degrees_of_freedom_are_found(dof: float) -> None:
    assert likely_dof(heavy(np.random.default_rng(0), 40_000, dof)) == pytest.approx(dof, rel=0.1)


@pytest.mark.parametrize("learner", ["affine", "bayes"])
def test_heavy_tails_are_recognised_and_used(learner: str) -> None:
    learned, fewshot = learn(learner, heavy_person), settings(shots=[5])
    assert float(learned.state["dof"]) == pytest.approx(3.0, rel=0.25)
    draws = draw_calibrations(people(heavy_person, 40, 700, split="test"), fewshot, repeats=5)
    ours, normal = (
        LEARNERS[learner].errors(state, draws, fewshot).adapted_deg for state in (learned, with_normal_noise(learned))
    )
    assert ours.mean() < 0.97 * normal.mean()


def test_the_mean_of_few_people_is_zero_and_counts_as_variance() -> None:
    rng, mean = np.random.default_rng(0), np.array([5.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    designs = [np.column_stack([np.ones(60), rng.normal(size=(60, 5))]) for _ in range(6)]
    drawn = [design @ (mean + rng.normal(size=6)) + 0.1 * rng.normal(size=60) for design in designs]
    mean, covariance, _ = learn_weights(designs, drawn, around_identity=False)
    assert not mean.any()
    own = np.stack([np.linalg.lstsq(*pair, rcond=None)[0] for pair in zip(designs, drawn, strict=True)])
    np.testing.assert_allclose(covariance, own.T @ own / len(own), atol=0.02)
