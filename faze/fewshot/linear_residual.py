"""Learners that correct gaze_hat with a linear model of the person's residual, label - gaze_hat.

Pitch and yaw are modelled independently, in degrees: residual = weights * features of the entry + noise. The weights are
normally distributed over people. Train people give this prior, by expectation maximisation, and the k samples of a
person give the posterior in closed form (Bishop, Pattern Recognition and Machine Learning, sections 9.3 and 3.3). The
network was trained on the train people, so they differ less from one another than other people do. Therefore three
factors (for the variances of the constant, of the other weights, and of the noise) are fitted to val people.

The noise has Student's t distribution with `dof` degrees of freedom. Its tails are heavier than those of a normal
distribution, so a sample that differs from the others has less weight.

Shapes: P people, n entries, of which k are calibration samples, 2 axes, d features.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from faze.base.geometry import pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.fewshot.interface import ClosedForm, MetaTraining
from faze.fewshot.learner_file import Learned, plain
from faze.fewshot.person_codes import PersonCodes, Seen

LEAST = 1e-8  # variance
LIKELIHOOD_ENTRIES = 60  # of each person
MAX_LOG_FACTOR = 12.0  # so that covariances stay definite in double precision
DOF = np.geomspace(2.5, 1000, 100)  # candidates; the noise has a variance only above 2, and is normal in the limit
Array = NDArray[np.float64]
Prior = Mapping[
    str, Array
]  # mean (2, d), covariance (2, d, d), noise (2,), dof (1,); center and scale of features (2, d)


def residual_deg(person: PersonCodes, entries: NDArray[np.int64] | slice) -> Array:
    """Compute the residual of some entries, label minus gaze_hat: (2, n) degrees of pitch and yaw."""
    truth, estimate = (pitchyaw_from_vector(vectors[entries]) for vectors in (person.gaze, person.gaze_hat))
    return np.degrees(pitchyaw_difference(truth, estimate)).T


class LinearResidual(ClosedForm):
    """A learner whose features a subclass defines."""

    learns_from_tasks = True
    around_identity = False  # people's mean weights are zero, and weights are independent

    @abstractmethod
    def features(self, seen: Seen) -> Array:
        """Compute the features (2, n, d) for each axis; the first is the constant 1."""

    def meta_train(self, training: MetaTraining) -> Learned:
        """Estimate the prior from train people, the factors from val people, and the tails of the noise from both."""
        prior = self.learn_prior(training.train)
        surprise = [left_out_residuals(prior, *self._some_samples(prior, training.train))]
        if training.val:
            of_val = self._some_samples(prior, training.val)
            prior = stretch(prior, likely_factors(prior, *of_val))
            surprise.append(left_out_residuals(prior, *of_val))
        prior = prior | {"dof": np.array([likely_dof(np.concatenate(surprise))])}
        state = {name: torch.from_numpy(value) for name, value in prior.items()}
        return Learned(self.name, list(training.settings.shots), plain(training.settings), state)

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute the person's posterior."""
        prior = {name: value.numpy() for name, value in learned.state.items()}
        mean, covariance = posterior(prior, self._design(prior, person.seen(support)), residual_deg(person, support))
        return learned.state | {"mean": torch.from_numpy(mean), "covariance": torch.from_numpy(covariance)}

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> Array:
        """Add the posterior mean of the residual to gaze_hat."""
        own = {name: value.numpy() for name, value in correction.items()}
        residual = predict(self._design(own, seen), own["mean"])
        return vector_from_pitchyaw(pitchyaw_from_vector(seen.gaze_hat) + np.radians(residual.T))

    def learn_prior(self, people: Sequence[PersonCodes]) -> dict[str, Array]:
        """Estimate the distribution of weights, for standardised features."""
        raw = [self.features(person.seen(slice(None))) for person in people]
        everybody = np.concatenate(raw, axis=1)
        center, scale = everybody.mean(axis=1), everybody.std(axis=1)
        center[:, 0], scale[scale < 1e-9] = 0.0, 1.0
        designs = [(features - center[:, None]) / scale[:, None] for features in raw]
        residuals = [residual_deg(person, slice(None)) for person in people]
        axes = [
            learn_weights([design[axis] for design in designs], [r[axis] for r in residuals], self.around_identity)
            for axis in range(2)
        ]
        mean, covariance, noise = (np.stack(parts) for parts in zip(*axes, strict=True))
        return {"mean": mean, "covariance": covariance, "noise": noise, "center": center, "scale": scale}

    def _design(self, prior: Prior, seen: Seen) -> Array:
        return (self.features(seen) - prior["center"][:, None]) / prior["scale"][:, None]

    def _some_samples(self, prior: Prior, people: Sequence[PersonCodes]) -> tuple[Array, Array]:
        """Return features (P, 2, n, d) and residuals (P, 2, n) of evenly spaced entries, as many for each person."""
        count = min(LIKELIHOOD_ENTRIES, *(len(person.code) for person in people))
        entries = [np.linspace(0, len(person.code) - 1, count).astype(int) for person in people]
        both = list(zip(people, entries, strict=True))
        designs = [self._design(prior, person.seen(some)) for person, some in both]
        return np.stack(designs), np.stack([residual_deg(person, some) for person, some in both])


def predict(design: Array, mean: Array) -> Array:
    """Compute residuals (..., n) from features (..., n, d) and mean weights (..., d)."""
    return (design @ mean[..., None])[..., 0]


def posterior(prior: Prior, design: Array, residual: Array) -> tuple[Array, Array]:
    """Compute mean and covariance of weights, given features (2, k, d) and residuals (2, k), whose noise has tails.

    A t distribution is a mixture of normal ones, so every sample has its own variance, a common factor for both axes. It
    is large for samples that the others do not explain (Lange, Little and Taylor, Robust Statistical Modeling Using the
    t Distribution, J. Am. Stat. Assoc. 84, 1989).
    """
    noise, dof = prior["noise"][:, None], prior["dof"][0]
    factor = np.ones(design.shape[1])
    for _ in range(30):
        mean, covariance = condition(prior, design, residual, noise * factor)
        variance = np.sum(design @ covariance * design, axis=-1) + noise
        square = np.sum(((residual - predict(design, mean)) ** 2 + variance) / noise - 1, axis=0)
        before, factor = factor, (dof - 2 + square) / (dof + 2)
        if np.allclose(factor, before, rtol=1e-3, atol=0):
            break
    return condition(prior, design, residual, noise * factor)


def condition(prior: Prior, design: Array, residual: Array, noise: Array) -> tuple[Array, Array]:
    """Compute the mean (2, d) and covariance (2, d, d) of weights for normal noise of variance (2, k)."""
    shared = prior["covariance"] @ design.mT  # (2, d, k)
    spread = design @ shared + noise[..., None] * np.eye(design.shape[1])
    gain = np.linalg.solve(spread, shared.mT).mT  # (2, d, k)
    surprise = residual - predict(design, prior["mean"])
    return prior["mean"] + predict(gain, surprise), prior["covariance"] - gain @ shared.mT


def stretch(prior: Prior, factors: Array) -> dict[str, Array]:
    """Multiply the variances of the constant, of the other weights, and of the noise by factors (3,)."""
    by = np.sqrt([factors[0], *[factors[1]] * (prior["mean"].shape[1] - 1)])
    return dict(prior) | {"covariance": prior["covariance"] * by[:, None] * by, "noise": factors[2] * prior["noise"]}


def covariance_of(prior: Prior, design: Array) -> Array:
    """Compute the covariance (P, 2, n, n) of residuals, given features (P, 2, n, d)."""
    noise = prior["noise"][:, None, None] * np.eye(design.shape[-2])
    return design @ prior["covariance"] @ design.mT + noise


def left_out_residuals(prior: Prior, design: Array, residual: Array) -> Array:
    """Standardise each residual by its prediction from the person's others: (P, 2, n) -> (P * n, 2).

    For normal distributions, the precision matrix contains these predictions (Rasmussen and Williams, 5.4.2).
    """
    precision = np.linalg.inv(covariance_of(prior, design))
    surprise = residual - predict(design, prior["mean"])
    found = predict(precision, surprise) / np.sqrt(np.diagonal(precision, axis1=-2, axis2=-1))
    return np.moveaxis(found / np.sqrt(np.mean(found**2, axis=(0, 2), keepdims=True) + LEAST**2), 1, 2).reshape(-1, 2)


def likely_factors(prior: Prior, design: Array, residual: Array) -> Array:
    """Find the factors for `stretch` that are likeliest, given a log-normal prior around 1 whose logarithm has width 2."""
    surprise = residual - predict(design, prior["mean"])

    def unlikelihood(logs: Array) -> float:
        root = np.linalg.cholesky(
            covariance_of(stretch(prior, np.exp(logs)), design) + LEAST * np.eye(design.shape[-2])
        )
        whitened = np.linalg.solve(root, surprise[..., None])
        determinant = np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum()
        return float(np.sum(whitened**2) / 2 + determinant + np.sum((logs / 2) ** 2) / 2)

    return np.exp(minimize(unlikelihood, np.zeros(3), bounds=[(-MAX_LOG_FACTOR, MAX_LOG_FACTOR)] * 3, tol=1e-12).x)


def likely_dof(standard: Array) -> float:
    """Find the degrees of freedom of the bivariate t distribution with unit variances that is likeliest for (n, 2)."""
    square = np.sum(standard**2, axis=1)[:, None]
    log = np.log(DOF) - np.log(DOF - 2) - (DOF + 2) / 2 * np.log1p(square / (DOF - 2))
    return float(DOF[log.sum(axis=0).argmax()])


def learn_weights(
    designs: Sequence[Array], residuals: Sequence[Array], around_identity: bool
) -> tuple[Array, Array, float]:
    """Estimate the distribution of one axis's weights over people, by expectation maximisation.

    Args:
        designs: (n, d) for each person.
        residuals: (n,) for each person, in degrees.
        around_identity: keep the mean at zero and the covariance diagonal.

    Returns:
        Mean (d,), covariance (d, d) and the variance of the noise.
    """
    gram = np.stack([design.T @ design for design in designs])  # (P, d, d)
    moment = np.stack([design.T @ r for design, r in zip(designs, residuals, strict=True)])  # (P, d)
    square, entries, d = sum(r @ r for r in residuals), sum(map(len, residuals)), gram.shape[-1]
    mean, noise = np.zeros(d), max(square / entries, LEAST)
    covariance = np.eye(d) * noise / d
    for _ in range(500):
        precision = np.linalg.inv(covariance)
        own = np.linalg.inv(precision + gram / noise)  # (P, d, d) posterior covariance
        weights = predict(own, precision @ mean + moment / noise)  # (P, d)
        mean = np.zeros(d) if around_identity else weights.mean(axis=0)
        aside = weights - mean
        covariance = (own + aside[:, :, None] * aside[:, None, :]).mean(axis=0)
        covariance = (np.diag(np.diag(covariance)) if around_identity else covariance) + LEAST * np.eye(d)
        fitted = np.einsum("pi,pij,pj->", weights, gram, weights) - 2 * np.sum(weights * moment)
        before, noise = noise, max((square + fitted + np.einsum("pij,pji->", own, gram)) / entries, LEAST)
        if abs(before - noise) < 1e-9 * before:
            break
    kept = kept_share(mean, covariance, len(gram))
    return kept * mean, covariance + (1 - kept) ** 2 * np.outer(mean, mean), float(noise)


def kept_share(mean: Array, covariance: Array, people: int) -> float:
    """Return the factor by which to shrink a mean (d,) over people towards zero, James-Stein's for unknown covariance.

    Few people say little about the mean of many weights, and with d people or fewer the factor is 0.
    """
    d = len(mean)
    if people <= d:
        return 0.0
    distance = max(mean @ np.linalg.solve(covariance, mean), LEAST)
    return max(0.0, 1 - (d - 2) / ((people - d + 2) * distance))


class Affine(LinearResidual):
    """A slope and an offset for each axis, shrunk towards the identity."""

    name, around_identity = "affine", True

    def features(self, seen: Seen) -> Array:
        """Return 1 and the angle of the axis."""
        hat = np.degrees(pitchyaw_from_vector(seen.gaze_hat))
        return np.stack([np.column_stack([np.ones(len(hat)), hat[:, axis]]) for axis in range(2)])


class Bayes(LinearResidual):
    """A model that is linear in 1, gaze_hat, head pose, their squares and products, and the gaze code."""

    name = "bayes"

    def features(self, seen: Seen) -> Array:
        """Return the same features for both axes."""
        angles = np.column_stack([pitchyaw_from_vector(seen.gaze_hat), seen.head])  # (n, 4) rad
        first, second = np.triu_indices(4)
        products = angles[:, first] * angles[:, second]
        whole = np.column_stack([np.ones(len(angles)), angles, products, seen.code.astype(np.float64)])
        return np.stack([whole, whole])
