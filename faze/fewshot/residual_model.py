"""Learners that correct gaze_hat with a Gaussian model of the person's residual, label - gaze_hat.

Pitch and yaw are modelled independently, in degrees: residual = f(entry) + noise. In `affine` and `bayes`, f is linear
in a few features of an entry; in `gp`, it is a Gaussian process over the gaze code. The prior of f is estimated from
train people, and conditioned on the k samples of a person. The network was trained on the train people, so they differ
less from one another than other people do. Therefore three factors (for the variances of f's constant, of the rest of
f, and of the noise) are fitted by maximum likelihood on val people, which makes the predicted uncertainty valid for
unseen people.

Shapes: P people, n entries, of which k are calibration samples, 2 axes, d features, F numbers in a gaze code.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.errors import UserError
from faze.base.geometry import pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.fewshot.interface import ClosedForm, MetaTraining
from faze.fewshot.learner_file import Learned, plain
from faze.fewshot.person_codes import PersonCodes, Seen

_OF_EACH = 60  # entries of a person used for a likelihood
_LOG_FACTOR = 2.0  # prior standard deviation of a factor's logarithm
_FURTHEST = 6 * _LOG_FACTOR  # bound of a logarithm, so that covariances stay definite in double precision
_LEAST = 1e-8  # that is added to every variance


def some_entries(people: Sequence[PersonCodes]) -> list[NDArray[np.int64]]:
    """Select evenly spaced entries, the same number for each person: at most _OF_EACH."""
    count = min(_OF_EACH, *(len(person.code) for person in people))
    return [np.linspace(0, len(person.code) - 1, count).astype(int) for person in people]


def negative_log_likelihood(spread: Tensor, residual: Tensor) -> Tensor:
    """Compute the negative log likelihood, up to a constant, of residuals (..., n) with covariances (..., n, n)."""
    root = torch.linalg.cholesky(spread + _LEAST * torch.eye(spread.shape[-1], dtype=spread.dtype))
    whitened = torch.linalg.solve_triangular(root, residual[..., None], upper=False)
    return 0.5 * whitened.square().sum() + root.diagonal(dim1=-2, dim2=-1).log().sum()


def likely_factors(unlikelihood: Callable[[Tensor], Tensor], count: int) -> NDArray[np.float64]:
    """Find the factors (count,) that maximise the posterior for a log-normal prior around 1 with width _LOG_FACTOR."""
    logs = torch.zeros(count, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logs], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = unlikelihood(logs.clamp(-_FURTHEST, _FURTHEST).exp()) + (logs / _LOG_FACTOR).square().sum() / 2
        found.backward()
        return found

    optimizer.step(loss)
    return logs.detach().clamp(-_FURTHEST, _FURTHEST).exp().numpy()


_PLAIN = 0.9  # share of the entries from which samples are chosen; best of 0.5, 0.75, 0.9 and 1 on val people
State = Mapping[str, NDArray[np.float64]]


def residual_deg(person: PersonCodes, entries: NDArray[np.int64] | slice) -> NDArray[np.float64]:
    """Compute the residual, label minus gaze_hat, of some entries in pitch and yaw: (n, 2) degrees."""
    truth, estimate = (pitchyaw_from_vector(vectors[entries]) for vectors in (person.gaze, person.gaze_hat))
    return np.degrees(pitchyaw_difference(truth, estimate))


def check_features(found: int, learnt: int) -> None:
    """Refuse codes that differ in size from a learner's training codes.

    Raises:
        UserError: the sizes differ; the message contains both.
    """
    if found != learnt:
        raise UserError(f"a person's codes have {found} features, but the learner has {learnt}: run meta_train again")


class Gaussian(NamedTuple):
    """The predictive distribution of residuals."""

    mean: NDArray[np.float64]  # (n, 2) degrees
    variance: NDArray[np.float64]  # (n, 2) square degrees, noise included


class ResidualModel(ClosedForm):
    """A learner with a Gaussian residual model; subclasses define how the prior is trained and updated."""

    learns_from_tasks = True

    @abstractmethod
    def learn_prior(self, people: Sequence[PersonCodes]) -> dict[str, NDArray[np.float64]]:
        """Estimate the prior of f from people; it includes `noise` (2,), a variance for each axis."""

    @abstractmethod
    def condition(self, prior: State, seen: Seen, residual: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Compute a person's posterior from k samples and their residuals (k, 2), k >= 0."""

    @abstractmethod
    def predict(self, own: State, seen: Seen) -> Gaussian:
        """Return the posterior distribution of the residuals of other entries."""

    @abstractmethod
    def covariance(self, prior: State, seen: Seen) -> NDArray[np.float64]:
        """Compute the prior covariances (2, n, n) of f between entries, without the noise."""

    @abstractmethod
    def scaled(self, prior: State, factors: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Multiply the variances of f's constant, of the rest of f, and of the noise by factors (3,)."""

    def choose(self, learned: Learned, seen: Seen, count: int, known: Sequence[int] = ()) -> list[int]:
        """Choose entries for calibration one by one, each reducing the mean variance over all entries the most.

        The variance does not depend on labels, so all entries can be chosen in advance (Cohn, Ghahramani and Jordan,
        Active Learning with Statistical Models, J. Artif. Intell. Res. 4, 1996). The 10 % of entries with the largest
        prior variance are excluded: an entry can be unusual because of a closed eye or glare, which is not informative
        about other entries.

        Args:
            learned: the prior.
            seen: the person's entries.
            count: number of entries to choose.
            known: entries with known gaze.

        Returns:
            Indices of the chosen entries, in the order of choice.
        """
        prior = {name: value.numpy() for name, value in learned.state.items()}
        spread, noise, taken = self.covariance(prior, seen), prior["noise"][:, None], list(known)
        unsure = np.diagonal(spread, axis1=1, axis2=2).sum(axis=0)
        odd = unsure > np.quantile(unsure, _PLAIN)
        for entry in known:
            spread = _told(spread, entry, noise)
        for _ in range(count):
            own = np.diagonal(spread, axis1=1, axis2=2)  # (2, n)
            gain = np.sum(np.square(spread).mean(axis=1) / (own + noise), axis=0)
            gain[odd] = -1.0  # after all others
            gain[taken] = -np.inf
            taken.append(int(gain.argmax()))
            spread = _told(spread, taken[-1], noise)
        return taken[len(known) :]

    def meta_train(self, training: MetaTraining) -> Learned:
        """Estimate the prior from train people, and the factors for unseen people from val people."""
        prior = self.learn_prior(training.train)
        if training.val:
            prior = self.scaled(prior, self._factors(prior, training.val))
        state = {name: torch.from_numpy(np.asarray(value)) for name, value in prior.items()}
        return Learned(self.name, list(training.settings.shots), plain(training.settings), state)

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute the person's posterior; raise UserError if the trained state is not a prior."""
        prior = {name: value.numpy() for name, value in learned.state.items()}
        try:
            own = self.condition(prior, person.seen(support), residual_deg(person, support))
        except np.linalg.LinAlgError:
            raise UserError(
                f"the trained state of {self.name} is not a covariance, so {person} cannot be calibrated: run "
                "meta_train again"
            ) from None
        return {name: torch.from_numpy(np.asarray(value)) for name, value in own.items()}

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Add the posterior mean of the residual to gaze_hat."""
        return corrected(seen, self._believed(correction, seen).mean)

    def variance_deg2(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Return the variance of the estimate's pitch and yaw."""
        return self._believed(correction, seen).variance

    def _believed(self, correction: Mapping[str, Tensor], seen: Seen) -> Gaussian:
        return self.predict({name: value.numpy() for name, value in correction.items()}, seen)

    def _factors(self, prior: State, people: Sequence[PersonCodes]) -> NDArray[np.float64]:
        """Find the maximum-likelihood factors (3,) for `scaled`, on people who did not contribute to the prior."""
        rows = some_entries(people)
        residual = np.stack([residual_deg(person, r) for person, r in zip(people, rows, strict=True)])  # (P, n, 2)
        sight = [person.seen(r) for person, r in zip(people, rows, strict=True)]
        nobodys = self.condition(prior, people[0].seen(slice(0)), np.zeros((0, 2)))
        mean = np.stack([self.predict(nobodys, seen).mean for seen in sight])
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


def _told(spread: NDArray[np.float64], entry: int, noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Condition covariances (2, n, n) on the gaze of one entry."""
    column = spread[:, :, entry]
    return spread - column[:, :, None] * column[:, None, :] / (column[:, entry, None] + noise)[..., None]


def corrected(seen: Seen, residual: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add residuals (n, 2), in degrees, to gaze_hat, giving unit vectors (n, 3)."""
    return vector_from_pitchyaw(pitchyaw_from_vector(seen.gaze_hat) + np.radians(residual))


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
    return mean, covariance, noise


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


class GaussianProcess(ResidualModel):
    """A residual model whose f is a Gaussian process over the gaze code: a constant plus a smooth function.

    The kernel for each axis is c^2 + s^2 exp(-|x - x'|^2 / 2 l^2) over the standardised code, with maximum-likelihood
    parameters from train people (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2.2 and 5.4).
    """

    name = "gp"

    def learn_prior(self, people: Sequence[PersonCodes]) -> dict[str, NDArray[np.float64]]:
        """Maximise the total log likelihood of some entries of each person."""
        codes = np.concatenate([person.code for person in people]).astype(np.float64)
        center, scale = codes.mean(axis=0), np.maximum(codes.std(axis=0), 1e-9)
        taken = some_entries(people)
        inputs = np.stack([(p.code[rows] - center) / scale for p, rows in zip(people, taken, strict=True)])
        residuals = np.stack([residual_deg(p, rows) for p, rows in zip(people, taken, strict=True)])
        kernel = np.stack([learn_kernel(inputs, residuals[..., axis]) for axis in range(2)])
        return {"kernel": kernel[:, :3], "noise": kernel[:, 3], "center": center, "scale": scale}

    def condition(self, prior: State, seen: Seen, residual: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Store the samples and their weights."""
        code = self._standardised(prior, seen)
        spread = kernel_of(prior["kernel"], code, code) + prior["noise"][:, None, None] * np.eye(len(code))
        inverse = np.linalg.inv(spread)
        return dict(prior) | {
            "samples": code,
            "inverse": inverse,
            "weights": (inverse @ residual.T[..., None])[..., 0],
        }

    def predict(self, own: State, seen: Seen) -> Gaussian:
        """Compute the predictive distribution."""
        across = kernel_of(own["kernel"], self._standardised(own, seen), own["samples"])  # (2, n, k)
        mean = (across @ own["weights"][..., None])[..., 0]
        known = np.sum(across @ own["inverse"] * across, axis=-1)
        variance = (own["kernel"][:, :2].sum(axis=1) + own["noise"])[:, None] - known
        return Gaussian(mean.T, variance.T)

    def covariance(self, prior: State, seen: Seen) -> NDArray[np.float64]:
        """Compute the kernel."""
        code = self._standardised(prior, seen)
        return kernel_of(prior["kernel"], code, code)

    def scaled(self, prior: State, factors: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Multiply c^2, s^2 and the noise by factors."""
        kernel = prior["kernel"] * np.array([factors[0], factors[1], 1.0])
        return dict(prior) | {"kernel": kernel, "noise": factors[2] * prior["noise"]}

    def _standardised(self, state: State, seen: Seen) -> NDArray[np.float64]:
        check_features(seen.code.shape[-1], state["center"].shape[-1])
        return (seen.code.astype(np.float64) - state["center"]) / state["scale"]


def kernel_of(kernel: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute covariances (2, n, m) between codes (n, F) and (m, F); kernel is (2, 3): c^2, s^2, l^2 for each axis."""
    square = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
    constant, varying, length = kernel.T[..., None, None]
    return constant + varying * np.exp(-np.maximum(square, 0) / (2 * length))


def learn_kernel(inputs: NDArray[np.float64], residuals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Find the maximum-likelihood kernel parameters for people's residuals along one axis.

    Args:
        inputs: (P, n, F) standardised codes.
        residuals: (P, n) degrees.

    Returns:
        (4,) c^2, s^2, l^2 and the noise's variance.
    """
    x, y = torch.from_numpy(inputs), torch.from_numpy(residuals)
    square, size = torch.cdist(x, x).square(), max(float(y.square().mean()), 1e-6)
    guess = torch.tensor([0.5 * size, 0.3 * size, float(x.shape[-1]), 0.3 * size], dtype=torch.float64)
    eye = torch.eye(x.shape[1], dtype=torch.float64)

    def unlikelihood(factors: Tensor) -> Tensor:
        constant, varying, length, noise = factors * guess
        spread = constant + varying * torch.exp(-square / (2 * length)) + noise * eye
        return negative_log_likelihood(spread, y)

    return likely_factors(unlikelihood, 4) * guess.numpy()
