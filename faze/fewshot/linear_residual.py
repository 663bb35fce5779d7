"""Linear models of a person's residual; faze.fewshot.residual_model explains the training.

Shapes: P people, n entries, of which k are calibration samples, 2 axes, d features.
"""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from faze.base.geometry import pitchyaw_from_vector
from faze.fewshot.person_codes import PersonCodes, Seen
from faze.fewshot.residual_model import Gaussian, ResidualModel, State, check_features, residual_deg


class LinearResidual(ResidualModel):
    """A residual model whose f is linear in a few features; its weights are normally distributed over people.

    The mean and the covariance of the weights, and the noise, are estimated by expectation maximisation; the posterior
    is in closed form (Bishop, Pattern Recognition and Machine Learning, sections 3.3 and 9.3).
    """

    around_identity = False  # people's mean weights are zero, and weights are independent

    @abstractmethod
    def features(self, seen: Seen) -> NDArray[np.float64]:
        """Compute the features (2, n, d) for each axis; the first is the constant 1."""

    def learn_prior(self, people: Sequence[PersonCodes]) -> dict[str, NDArray[np.float64]]:
        """Estimate the mean, the covariance and the noise by expectation maximisation."""
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

    def condition(
        self, prior: State, seen: Seen, residual: NDArray[np.float64], noise: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Compute the posterior of the person's weights."""
        design = self._design(prior, seen)  # (2, k, d)
        shared = prior["covariance"] @ np.swapaxes(design, 1, 2)  # (2, d, k)
        spread = design @ shared + noise[..., None] * np.eye(len(residual))
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
        """Compute the covariances from those of the weights."""
        design = self._design(prior, seen)
        return design @ prior["covariance"] @ np.swapaxes(design, 1, 2)

    def scaled(self, prior: State, factors: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Scale the covariance of the weights; the first weight is that of the constant."""
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
    kept = _kept_share(mean, covariance, len(gram))
    moved = (1 - kept) * mean
    return kept * mean, covariance + np.outer(moved, moved), noise


def _kept_share(mean: NDArray[np.float64], covariance: NDArray[np.float64], people: int) -> float:
    """Return the factor by which to shrink a mean (d,) over people towards zero, James-Stein's for unknown covariance.

    Few people say little about the mean of many weights, and with d people or fewer the factor is 0.
    """
    d = len(mean)
    if people <= d:
        return 0.0
    distance = max(float(mean @ np.linalg.solve(covariance, mean)), _LEAST)
    return max(0.0, 1 - (d - 2) / ((people - d + 2) * distance))


_ROUNDS, _LEAST = 500, 1e-8  # of expectation maximisation; square degrees, the least variance


class Affine(LinearResidual):
    """A slope and an offset for each axis, shrunk towards the identity."""

    name, around_identity = "affine", True

    def features(self, seen: Seen) -> NDArray[np.float64]:
        """Return 1 and the angle of the axis."""
        hat = np.degrees(pitchyaw_from_vector(seen.gaze_hat))
        return np.stack([np.column_stack([np.ones(len(hat)), hat[:, axis]]) for axis in range(2)])


class Bayes(LinearResidual):
    """A model that is linear in 1, gaze_hat, head pose, their squares and products, and the gaze code."""

    name = "bayes"

    def features(self, seen: Seen) -> NDArray[np.float64]:
        """Return the same features for both axes."""
        angles = np.column_stack([pitchyaw_from_vector(seen.gaze_hat), seen.head])  # (n, 4) rad
        first, second = np.triu_indices(4)
        products = angles[:, first] * angles[:, second]
        whole = np.column_stack([np.ones(len(angles)), angles, products, seen.code.astype(np.float64)])
        return np.stack([whole, whole])
