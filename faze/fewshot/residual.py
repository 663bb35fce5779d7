"""Learners that correct the estimate gaze_hat with a model of the person's residual, which is label - gaze_hat.

Pitch and yaw are modelled independently, in degrees. `offset` averages the residuals of the k samples. For `affine` and
`bayes`, residual = weights * features of the entry + noise. The weights are normally distributed over people. This
prior is estimated from train people by expectation maximisation; the posterior given a person's k samples has a closed
form (Bishop, Pattern Recognition and Machine Learning, sections 9.3 and 3.3). The network was trained on the train
people, so other people's residuals vary more. Therefore, scale factors for the variances are fitted to val people. The
noise has Student's t distribution with `dof` degrees of freedom, so a sample that is unlike the rest has less weight.
Someone may differ from all these people, for example a real person from rendered ones. Therefore, the prior is a
mixture: some people are unfamiliar, and all their variances are larger.

Shapes: P people; n entries; k calibration samples; 2 axes; d features.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import ellipe, poch, softmax
from torch import Tensor

from faze.base.geometry import pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.fewshot.interface import Learned, Learner, MetaTraining
from faze.fewshot.person_codes import PersonCodes, Seen

LEAST = 1e-8  # smallest variance
DOF = np.geomspace(2.5, 1000, 100)  # candidates: the variance is finite only above 2; in the limit, the noise is normal
# Share of unfamiliar people, and factors of their variances for `stretch`. Chosen on five real people, whom a network
# trained on rendered people had not seen; half or double values change the mean error by less than 0.1 degrees.
UNFAMILIAR, FACTORS = 0.05, np.array([10.0, 4.0, 8.0])
Array = NDArray[np.float64]
Prior = Mapping[str, Array]  # mean (2, d), covariance (2, d, d), noise (2,), dof (1,); center, scale of features (2, d)


def residual_deg(person: PersonCodes, entries: NDArray[np.int64] | slice) -> Array:
    """Compute the residuals (label minus gaze_hat) of some entries in degrees: (2, n), pitch and yaw."""
    truth, estimate = (pitchyaw_from_vector(vectors[entries]) for vectors in (person.gaze, person.gaze_hat))
    return np.degrees(pitchyaw_difference(truth, estimate)).T


class Offset(Learner):
    """A learner that subtracts the mean error of the k samples (estimate - truth, in pitch and yaw) from gaze_hat."""

    name = "offset"

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute offset_rad (2,), the mean error in pitch and yaw; from 3 samples, also the variance of an error."""
        residual, k = residual_deg(person, support), len(support)
        state = {"offset_rad": torch.from_numpy(-np.radians(residual.mean(axis=1)))}
        if k >= 3:
            variance = residual.var(axis=1, ddof=1) * (1 + 1 / k)  # of a sample and of the mean
            state["variance_deg2"] = torch.from_numpy(variance)  # (2,)
        return state

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> Array:
        """Subtract the offset from gaze_hat."""
        return vector_from_pitchyaw(pitchyaw_from_vector(seen.gaze_hat) - correction["offset_rad"].numpy())

    def expected_error_deg(self, correction: Mapping[str, Tensor], seen: Seen) -> Array:
        """Return the same error for all entries; NaN for fewer than 3 samples."""
        variance = correction["variance_deg2"].numpy() if "variance_deg2" in correction else np.full(2, np.nan)
        return mean_error_deg(np.repeat(variance[:, None], len(seen.gaze_hat), axis=1))


class Bayes(Learner):
    """A model that is linear in a constant, gaze_hat, head pose, their squares and products, and the gaze code."""

    name = "bayes"
    learns_from_tasks = True
    around_identity = False  # whether the weights have mean 0 over people and are independent

    def features(self, seen: Seen) -> Array:
        """Compute the features (2, n, d), here the same for both axes; the first feature is the constant 1."""
        angles = np.column_stack([pitchyaw_from_vector(seen.gaze_hat), seen.head])  # (n, 4) rad
        first, second = np.triu_indices(4)
        products = angles[:, first] * angles[:, second]
        whole = np.column_stack([np.ones(len(angles)), angles, products, seen.code.astype(np.float64)])
        return np.stack([whole, whole])

    def design(self, prior: Prior, seen: Seen) -> Array:
        """Compute the standardised features (2, n, d)."""
        return (self.features(seen) - prior["center"][:, None]) / prior["scale"][:, None]

    def meta_train(self, training: MetaTraining) -> Learned:
        """Estimate the prior from train people, its variance scale factors from val people, and `dof` from both."""
        everything = [person.seen(slice(None)) for person in training.train]
        raw = np.concatenate([self.features(seen) for seen in everything], axis=1)
        prior = {"center": raw.mean(axis=1), "scale": raw.std(axis=1)}
        prior["center"][:, 0], prior["scale"][prior["scale"] < 1e-9] = 0.0, 1.0
        designs = [self.design(prior, seen) for seen in everything]
        residuals = [residual_deg(person, slice(None)) for person in training.train]
        axes = [learn_weights([x[i] for x in designs], [r[i] for r in residuals], self.around_identity) for i in (0, 1)]
        prior |= zip(("mean", "covariance", "noise"), map(np.stack, zip(*axes, strict=True)), strict=True)
        surprise = [left_out_residuals(prior, *self._some_samples(prior, training.train))]
        if training.val:
            samples = self._some_samples(prior, training.val)
            prior = stretch(prior, likely_factors(prior, *samples))
            surprise.append(left_out_residuals(prior, *samples))
        prior["dof"] = np.array([likely_dof(np.concatenate(surprise))])
        return training.learned(self.name, {name: torch.from_numpy(value) for name, value in prior.items()})

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute the posterior mean and covariance of the person's weights, and the distribution of the noise."""
        prior = {name: value.numpy() for name, value in learned.state.items()}
        found = posterior(prior, self.design(prior, person.seen(support)), residual_deg(person, support))
        own = dict(zip(("mean", "covariance", "noise"), map(torch.from_numpy, found), strict=True))
        return {name: learned.state[name] for name in ("center", "scale", "dof")} | own

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> Array:
        """Add the posterior mean of the residual to gaze_hat."""
        own = {name: value.numpy() for name, value in correction.items()}
        residual = np.radians(np.matvec(self.design(own, seen), own["mean"]).T)
        return vector_from_pitchyaw(pitchyaw_from_vector(seen.gaze_hat) + residual)

    def expected_error_deg(self, correction: Mapping[str, Tensor], seen: Seen) -> Array:
        """Compute the mean error from the variances of the weights and the noise, for errors with a t distribution."""
        own = {name: value.numpy() for name, value in correction.items()}
        design, half = self.design(own, seen), own["dof"] / 2
        normal = mean_error_deg(np.sum(design @ own["covariance"] * design, axis=-1) + own["noise"][:, None])
        return normal * np.sqrt(half - 1) * poch(half, -0.5)

    def _some_samples(self, prior: Prior, people: Sequence[PersonCodes]) -> tuple[Array, Array]:
        """Return features (P, 2, n, d) of evenly spaced entries, and residuals (P, 2, n) minus their prior mean."""
        count, designs, residuals = min(60, *(len(person.code) for person in people)), [], []
        for person in people:
            entries = np.linspace(0, len(person.code) - 1, count).astype(int)
            designs.append(self.design(prior, person.seen(entries)))
            residuals.append(residual_deg(person, entries))
        return np.stack(designs), np.stack(residuals) - np.matvec(np.stack(designs), prior["mean"])


class Affine(Bayes):
    """A slope and an offset for each axis, shrunk towards the identity."""

    name = "affine"
    around_identity = True

    def features(self, seen: Seen) -> Array:
        """Return features (2, n, 2): the constant 1 and the axis's angle in degrees."""
        hat = np.degrees(pitchyaw_from_vector(seen.gaze_hat)).T
        return np.stack([np.ones_like(hat), hat], axis=-1)


def mean_error_deg(variance: Array) -> Array:
    """Compute the mean length (n,) of normally distributed errors with variances (2, n) of pitch and yaw."""
    small, large = np.sort(np.maximum(variance, LEAST), axis=0)
    return np.sqrt(2 / np.pi * large) * ellipe(1 - small / large)


def learn_weights(
    designs: Sequence[Array], residuals: Sequence[Array], around_identity: bool
) -> tuple[Array, Array, float]:
    """Estimate the mean (d,) and covariance (d, d) of one axis's weights over people, and the noise variance.

    Each person has features (n, d) and residuals (n,). `around_identity` keeps the mean 0 and the covariance diagonal.
    """
    gram = np.stack([x.T @ x for x in designs])  # (P, d, d)
    moment = np.stack([x.T @ r for x, r in zip(designs, residuals, strict=True)])  # (P, d)
    square, entries, d = sum(r @ r for r in residuals), sum(map(len, residuals)), gram.shape[-1]
    mean, noise = np.zeros(d), max(square / entries, LEAST)
    covariance = np.eye(d) * noise / d
    for _ in range(500):
        precision = np.linalg.inv(covariance)
        own = np.linalg.inv(precision + gram / noise)  # (P, d, d) posterior covariance
        weights = np.matvec(own, precision @ mean + moment / noise)  # (P, d)
        mean = np.zeros(d) if around_identity else weights.mean(axis=0)
        aside = weights - mean
        covariance = (own + aside[:, :, None] * aside[:, None, :]).mean(axis=0)
        covariance = (np.diag(np.diag(covariance)) if around_identity else covariance) + LEAST * np.eye(d)
        fitted = np.sum(weights * (np.matvec(gram, weights) - 2 * moment)) + np.sum(own * gram)
        before, noise = noise, max((square + fitted) / entries, LEAST)
        if abs(before - noise) < 1e-9 * before:
            break
    kept = 0.0  # share of the mean to keep: James-Stein factor for unknown covariance (few people, many weights)
    if len(gram) > d:
        distance = max(mean @ np.linalg.solve(covariance, mean), LEAST)
        kept = max(0.0, 1 - (d - 2) / ((len(gram) - d + 2) * distance))
    return kept * mean, covariance + (1 - kept) ** 2 * np.outer(mean, mean), noise


def stretch(prior: Prior, factors: Array) -> dict[str, Array]:
    """Multiply the variances of the constant's weight, the other weights and the noise by factors (3,)."""
    by = np.full(prior["mean"].shape[1], factors[1] ** 0.5)
    by[0] = factors[0] ** 0.5
    return dict(prior) | {"covariance": prior["covariance"] * by[:, None] * by, "noise": factors[2] * prior["noise"]}


def covariance_of(prior: Prior, design: Array) -> Array:
    """Compute the covariance (P, 2, n, n) of the residuals from the features (P, 2, n, d)."""
    return design @ prior["covariance"] @ design.mT + prior["noise"][:, None, None] * np.eye(design.shape[-2])


def likely_factors(prior: Prior, design: Array, surprise: Array) -> Array:
    """Find the most probable factors for `stretch`; the prior on their logarithms is normal with mean 0 and std 2."""
    eye = LEAST * np.eye(surprise.shape[2])

    def unlikelihood(logs: Array) -> float:
        root = np.linalg.cholesky(covariance_of(stretch(prior, np.exp(logs)), design) + eye)
        determinant = np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum()
        return np.sum(np.linalg.solve(root, surprise[..., None]) ** 2) / 2 + determinant + np.sum(logs**2) / 8

    bounds = [(-12, 12)] * 3  # so that covariances stay positive definite in double precision
    return np.exp(minimize(unlikelihood, np.zeros(3), bounds=bounds, tol=1e-12).x)


def left_out_residuals(prior: Prior, design: Array, surprise: Array) -> Array:
    """Standardise residuals by leave-one-out prediction (Rasmussen and Williams, section 5.4.2); return (P * n, 2)."""
    precision = np.linalg.inv(covariance_of(prior, design))
    found = np.matvec(precision, surprise) / np.sqrt(np.diagonal(precision, axis1=-2, axis2=-1))
    standard = found.swapaxes(1, 2).reshape(-1, 2)
    return standard / np.maximum(np.sqrt(np.mean(standard**2, axis=0)), LEAST)


def likely_dof(standard: Array) -> float:
    """Find the degrees of freedom for which a bivariate t distribution with unit variances best fits (n, 2) values."""
    square = np.sum(standard**2, axis=1)[:, None]
    log = np.log(DOF) - np.log(DOF - 2) - (DOF + 2) / 2 * np.log1p(square / (DOF - 2))
    return float(DOF[log.sum(axis=0).argmax()])


def log_likelihood(prior: Prior, design: Array, residual: Array) -> float:
    """Compute the log-likelihood of residuals (2, k), up to a constant, from a joint t distribution of all of them."""
    spread, surprise, dof = covariance_of(prior, design), residual - np.matvec(design, prior["mean"]), prior["dof"][0]
    square = np.sum(surprise * np.linalg.solve(spread, surprise[..., None])[..., 0])
    return -(dof + surprise.size) / 2 * np.log1p(square / (dof - 2)) - np.linalg.slogdet(spread)[1].sum() / 2


def posterior(prior: Prior, design: Array, residual: Array) -> tuple[Array, Array, Array]:
    """Compute the posterior of the weights, mean (2, d) and covariance (2, d, d), and the noise variances (2,).

    The features are (2, k, d), and the residuals (2, k). The posteriors of a familiar and an unfamiliar person are
    averaged, weighted by the probabilities of these two given the residuals (Bishop, section 14.1).
    """
    priors = prior, stretch(prior, FACTORS)
    log_likelihoods = [log_likelihood(one, design, residual) for one in priors]
    share = softmax(np.log([1 - UNFAMILIAR, UNFAMILIAR]) + log_likelihoods)
    means, covariances = map(np.stack, zip(*(robust_posterior(one, design, residual) for one in priors), strict=True))
    mean = np.tensordot(share, means, axes=1)
    aside = means - mean
    covariance = np.tensordot(share, covariances + aside[..., :, None] * aside[..., None, :], axes=1)
    return mean, covariance, np.tensordot(share, [one["noise"] for one in priors], axes=1)


def robust_posterior(prior: Prior, design: Array, residual: Array) -> tuple[Array, Array]:
    """Compute the posterior mean (2, d) and covariance (2, d, d) of the weights for noise with a t distribution.

    A t distribution is a mixture of normals. For a sample that the others do not explain, both noise variances are
    multiplied by one factor (Lange, Little and Taylor, Robust Statistical Modeling Using the t Distribution, 1989).
    """
    noise, dof = prior["noise"][:, None], prior["dof"][0]
    factor = np.ones(design.shape[1])
    for _ in range(30):
        mean, covariance = condition(prior, design, residual, noise * factor)
        variance = np.sum(design @ covariance * design, axis=-1) + noise
        square = np.sum(((residual - np.matvec(design, mean)) ** 2 + variance) / noise - 1, axis=0)
        before, factor = factor, (dof - 2 + square) / (dof + 2)
        if np.allclose(factor, before, rtol=1e-3, atol=0):
            break
    return condition(prior, design, residual, noise * factor)


def condition(prior: Prior, design: Array, residual: Array, noise: Array) -> tuple[Array, Array]:
    """Compute the posterior mean (2, d) and covariance (2, d, d) of the weights, given the noise variances (2, k)."""
    shared = prior["covariance"] @ design.mT  # (2, d, k)
    spread = design @ shared + noise[..., None] * np.eye(design.shape[1])
    gain = np.linalg.solve(spread, shared.mT).mT  # (2, d, k)
    surprise = residual - np.matvec(design, prior["mean"])
    return prior["mean"] + np.matvec(gain, surprise), prior["covariance"] - gain @ shared.mT
