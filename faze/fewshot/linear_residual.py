"""Residual models that are linear in a few features of an entry: `affine` and `bayes`.

Shapes: P people, n entries, k of them a person's samples, 2 axes, d features.
"""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from faze.base.geometry import pitchyaw_from_vector
from faze.fewshot.person_codes import PersonCodes, Seen
from faze.fewshot.residual_model import Gaussian, ResidualModel, State, check_features, residual_deg


class LinearResidual(ResidualModel):
    """f is linear in a few features; a person's weights are drawn from a normal distribution over people.

    Its mean and covariance, and the noise, are learnt by expectation maximisation; the posterior is in closed form
    (Bishop, Pattern Recognition and Machine Learning, sections 3.3 and 9.3).
    """

    around_identity = False  # people's mean weights are zero, and weights are independent

    @abstractmethod
    def features(self, seen: Seen) -> NDArray[np.float64]:
        """Compute (2, n, d) features for each axis; the first is the constant 1."""

    def learn_prior(self, people: Sequence[PersonCodes]) -> dict[str, NDArray[np.float64]]:
        """Learn by expectation maximisation."""
        raw = [self.features(person.seen(slice(None))) for person in people]
        everybody = np.concatenate(raw, axis=1)
        center, scale = everybody.mean(axis=1), everybody.std(axis=1)
        center[:, 0], scale[scale < 1e-9] = 0.0, 1.0
        designs = [(features - center[:, None]) / scale[:, None] for features in raw]
        residuals = [residual_deg(person, slice(None)) for person in people]
        found = [
            learn_weights([design[axis] for design in designs], [r[:, axis] for r in residuals], self.around_identity)
            for axis in range(2)
        ]
        mean, covariance, noise = (np.stack(parts) for parts in zip(*found, strict=True))
        return {"mean": mean, "covariance": covariance, "noise": noise, "center": center, "scale": scale}

    def condition(self, prior: State, seen: Seen, residual: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Compute the posterior of the person's weights."""
        design = self._design(prior, seen)  # (2, k, d)
        shared = prior["covariance"] @ np.swapaxes(design, 1, 2)  # (2, d, k)
        spread = design @ shared + prior["noise"][:, None, None] * np.eye(len(residual))
        gain = np.swapaxes(np.linalg.solve(spread, np.swapaxes(shared, 1, 2)), 1, 2)  # (2, d, k)
        surprise = residual.T[..., None] - design @ prior["mean"][..., None]
        return dict(prior) | {
            "mean": prior["mean"] + (gain @ surprise)[..., 0],
            "covariance": prior["covariance"] - gain @ np.swapaxes(shared, 1, 2),
        }

    def predict(self, own: State, seen: Seen) -> Gaussian:
        """Compute the predictive distribution."""
        design = self._design(own, seen)
        mean = (design @ own["mean"][..., None])[..., 0]
        variance = np.sum(design @ own["covariance"] * design, axis=-1) + own["noise"][:, None]
        return Gaussian(mean.T, variance.T)

    def covariance(self, prior: State, seen: Seen) -> NDArray[np.float64]:
        """Compute them from the weights'."""
        design = self._design(prior, seen)
        return design @ prior["covariance"] @ np.swapaxes(design, 1, 2)

    def scaled(self, prior: State, factors: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Stretch the weights' covariance; the first weight is the constant's."""
        stretch = np.full(prior["mean"].shape[1], factors[1] ** 0.5)
        stretch[0] = factors[0] ** 0.5
        covariance = prior["covariance"] * stretch[:, None] * stretch
        return dict(prior) | {"covariance": covariance, "noise": factors[2] * prior["noise"]}

    def _design(self, state: State, seen: Seen) -> NDArray[np.float64]:
        features = self.features(seen)
        check_features(features.shape[-1], state["center"].shape[-1])
        return (features - state["center"][:, None]) / state["scale"][:, None]


def learn_weights(
    designs: Sequence[NDArray[np.float64]], residuals: Sequence[NDArray[np.float64]], around_identity: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Learn how one axis's weights are spread over people, by expectation maximisation.

    Args:
        designs: (n, d) of each person.
        residuals: (n,) of each person, degrees.
        around_identity: the mean stays zero, the covariance diagonal.

    Returns:
        Mean (d,), covariance (d, d) and the variance of the noise.
    """
    gram = np.stack([design.T @ design for design in designs])  # (P, d, d)
    moment = np.stack([design.T @ r for design, r in zip(designs, residuals, strict=True)])  # (P, d)
    square, entries = sum(float(r @ r) for r in residuals), sum(map(len, residuals))
    d = gram.shape[-1]
    mean, noise = np.zeros(d), max(square / entries, _LEAST)
    covariance = np.eye(d) * noise / d
    for _ in range(_ROUNDS):
        precision = np.linalg.inv(covariance)
        own = np.linalg.inv(precision + gram / noise)  # (P, d, d) posterior covariance
        weights = (own @ (precision @ mean + moment / noise)[..., None])[..., 0]  # (P, d)
        mean = np.zeros(d) if around_identity else weights.mean(axis=0)
        aside = weights - mean
        covariance = (own + aside[:, :, None] * aside[:, None, :]).mean(axis=0)
        covariance = np.diag(np.diag(covariance)) if around_identity else covariance
        covariance += _LEAST * np.eye(d)
        fitted = np.einsum("pi,pij,pj->", weights, gram, weights) - 2 * np.sum(weights * moment)
        before, left = noise, float(square + fitted + np.einsum("pij,pji->", own, gram)) / entries
        noise = max(left, _LEAST)
        if abs(before - noise) < 1e-9 * before:
            break
    return mean, covariance, noise


_ROUNDS, _LEAST = 500, 1e-8  # of expectation maximisation; square degrees, below which no variance falls


class Affine(LinearResidual):
    """A slope and an offset of each axis, shrunk to the identity."""

    name, around_identity = "affine", True

    def features(self, seen: Seen) -> NDArray[np.float64]:
        """1, and the axis's own angle."""
        hat = np.degrees(pitchyaw_from_vector(seen.gaze_hat))
        return np.stack([np.column_stack([np.ones(len(hat)), hat[:, axis]]) for axis in range(2)])


class Bayes(LinearResidual):
    """Linear in 1, gaze_hat, head pose, their squares and products, and the gaze code."""

    name = "bayes"

    def features(self, seen: Seen) -> NDArray[np.float64]:
        """Return the same for both axes."""
        angles = np.column_stack([pitchyaw_from_vector(seen.gaze_hat), seen.head])  # (n, 4) rad
        first, second = np.triu_indices(4)
        products = angles[:, first] * angles[:, second]
        whole = np.column_stack([np.ones(len(angles)), angles, products, seen.code.astype(np.float64)])
        return np.stack([whole, whole])
