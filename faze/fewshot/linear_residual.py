"""Learners that correct gaze_hat with a linear model of the person's residual, label - gaze_hat.

Pitch and yaw are modelled independently, in degrees: residual = f(entry) + noise, where f is linear in a few features,
and its weights are normally distributed over people. The prior of f is estimated from train people, and conditioned on
the k samples of a person. The network was trained on the train people, so they differ less from one another than other
people do. Therefore three factors (for the variances of f's constant, of the rest of f, and of the noise) are fitted by
maximum likelihood on val people.

The noise has Student's t distribution, whose degrees of freedom `dof` are estimated as well. Its tails are heavier than
those of a normal distribution, so a sample that differs from the others has less weight.

Shapes: P people, n entries, of which k are calibration samples, 2 axes, d features.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.geometry import pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.fewshot.interface import ClosedForm, MetaTraining
from faze.fewshot.learner_file import Learned, plain
from faze.fewshot.likelihood import likely_dof, likely_factors, negative_log_likelihood, some_entries
from faze.fewshot.person_codes import PersonCodes, Seen

_LEAST_RMS = 1e-8  # that is divided by
_REWEIGHTINGS, _SETTLED = 30, 1e-3  # of samples at most; a relative change of every variance that ends them
_ROUNDS, _LEAST = 500, 1e-8  # of expectation maximisation; square degrees, the least variance
State = Mapping[str, NDArray[np.float64]]


def residual_deg(person: PersonCodes, entries: NDArray[np.int64] | slice) -> NDArray[np.float64]:
    """Compute the residual, label minus gaze_hat, of some entries in pitch and yaw: (n, 2) degrees."""
    truth, estimate = (pitchyaw_from_vector(vectors[entries]) for vectors in (person.gaze, person.gaze_hat))
    return np.degrees(pitchyaw_difference(truth, estimate))


class Gaussian(NamedTuple):
    """The predictive distribution of residuals."""

    mean: NDArray[np.float64]  # (n, 2) degrees
    variance: NDArray[np.float64]  # (n, 2) square degrees, noise included


class LinearResidual(ClosedForm):
    """A learner whose features a subclass defines.

    The mean and the covariance of the weights, and the noise, are estimated by expectation maximisation; the posterior
    is in closed form (Bishop, Pattern Recognition and Machine Learning, sections 3.3 and 9.3).
    """

    learns_from_tasks = True
    around_identity = False  # people's mean weights are zero, and weights are independent

    @abstractmethod
    def features(self, seen: Seen) -> NDArray[np.float64]:
        """Compute the features (2, n, d) for each axis; the first is the constant 1."""

    def meta_train(self, training: MetaTraining) -> Learned:
        """Estimate the prior from train people, and the factors for unseen people from val people."""
        prior = self.learn_prior(training.train)
        surprise = [self._left_out(prior, training.train)]
        if training.val:
            prior = self.scaled(prior, self._factors(prior, training.val))
            surprise.append(self._left_out(prior, training.val))
        prior["dof"] = np.array([likely_dof(np.concatenate(surprise))])
        state = {name: torch.from_numpy(np.asarray(value)) for name, value in prior.items()}
        return Learned(self.name, list(training.settings.shots), plain(training.settings), state)

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute the person's posterior."""
        prior = {name: value.numpy() for name, value in learned.state.items()}
        own = self._posterior(prior, person.seen(support), residual_deg(person, support))
        return {name: torch.from_numpy(np.asarray(value)) for name, value in own.items()}

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Add the posterior mean of the residual to gaze_hat."""
        own = {name: value.numpy() for name, value in correction.items()}
        return vector_from_pitchyaw(pitchyaw_from_vector(seen.gaze_hat) + np.radians(self.predict(own, seen).mean))

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

    def _posterior(self, prior: State, seen: Seen, residual: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Compute the posterior from residuals (k, 2) whose noise has a t distribution, by expectation maximisation.

        A t distribution is a mixture of normal ones, so every sample has its own variance, a common factor for both
        axes. It is large for samples that the others do not explain (Lange, Little and Taylor, Robust Statistical
        Modeling Using the t Distribution, J. Am. Stat. Assoc. 84, 1989).
        """
        common, dof = prior["noise"], float(prior["dof"][0])
        factor = np.ones(len(residual))
        for _ in range(_REWEIGHTINGS):
            own = self.condition(prior, seen, residual, common[:, None] * factor)
            believed, before = self.predict(own, seen), factor
            square = np.sum((np.square(residual - believed.mean) + believed.variance) / common - 1, axis=1)  # (k,)
            factor = (dof - 2 + square) / (dof + 2)
            if np.allclose(factor, before, rtol=_SETTLED, atol=0):
                break
        return self.condition(prior, seen, residual, common[:, None] * factor)

    def _left_out(self, prior: State, people: Sequence[PersonCodes]) -> NDArray[np.float64]:
        """Compute residuals (n, 2) of some entries, each standardised by its prediction from the person's others.

        For normal distributions, the precision matrix contains these predictions (Rasmussen and Williams, 5.4.2).
        """
        found = []
        for person, entries in zip(people, some_entries(people), strict=True):
            seen = person.seen(entries)
            spread = self.covariance(prior, seen) + prior["noise"][:, None, None] * np.eye(len(entries))
            precision = np.linalg.inv(spread)  # (2, n, n)
            surprise = (residual_deg(person, entries) - self.predict(prior, seen).mean).T[..., None]
            found.append((precision @ surprise)[..., 0] / np.sqrt(np.diagonal(precision, axis1=1, axis2=2)))
        standard = np.concatenate(found, axis=1).T
        return standard / np.maximum(np.sqrt(np.mean(standard**2, axis=0)), _LEAST_RMS)

    def _factors(self, prior: State, people: Sequence[PersonCodes]) -> NDArray[np.float64]:
        """Find the maximum-likelihood factors (3,) for `scaled`, on people who did not contribute to the prior."""
        rows = some_entries(people)
        residual = np.stack([residual_deg(person, r) for person, r in zip(people, rows, strict=True)])  # (P, n, 2)
        sight = [person.seen(r) for person, r in zip(people, rows, strict=True)]
        mean = np.stack([self.predict(prior, seen).mean for seen in sight])
        surprise = torch.from_numpy(np.swapaxes(residual - mean, 1, 2).copy())  # (P, 2, n)
        parts = []  # covariances of the constant alone, of the rest alone, of both
        for factors in ([1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0]):
            part = self.scaled(prior, np.array(factors))
            parts.append(torch.from_numpy(np.stack([self.covariance(part, seen) for seen in sight])))
        constant, rest, both = parts
        noise = torch.from_numpy(prior["noise"])[:, None, None] * torch.eye(surprise.shape[-1], dtype=torch.float64)

        def unlikelihood(factors: Tensor) -> Tensor:
            a, b, c = factors
            spread = a * constant + b * rest + (a * b).sqrt() * (both - constant - rest) + c * noise
            return negative_log_likelihood(spread, surprise)

        return likely_factors(unlikelihood, 3)

    def _design(self, state: State, seen: Seen) -> NDArray[np.float64]:
        return (self.features(seen) - state["center"][:, None]) / state["scale"][:, None]


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
