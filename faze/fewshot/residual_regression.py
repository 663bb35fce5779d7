"""Learners that correct gaze_hat by a Gaussian model of the person's residual: what is left between it and the truth.

Pitch and yaw are modelled each by itself, in degrees: residual = label - gaze_hat = f(entry) + noise. Of f each learner
says what people's functions are like (its prior) before any sample of a person; the k samples make it that person's.
The prior is learnt from train people. The network has seen those, so its residuals on them are too small: of val people
is learnt how much larger the noise is than the prior says (`trust`), by their error after calibration, and how much
larger all variances are (`inflation`), so that what is said of the uncertainty is true of them.

Shapes: P people, n entries, k of them a person's samples, 2 axes, d features.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.geometry import mean_angle_deg, pitchyaw_from_vector, vector_from_pitchyaw, wrapped
from faze.fewshot.draws import Calibration, draw_calibrations
from faze.fewshot.interface import ClosedForm, MetaTraining
from faze.fewshot.learner_file import Learned, plain
from faze.fewshot.person_codes import PersonCodes, Seen

_REPEATS = 2
TRUST = tuple(2.0**power for power in range(-2, 8))  # factors of the noise that val people choose from
State = Mapping[str, NDArray[np.float64]]


def residual_deg(person: PersonCodes, entries: NDArray[np.int64] | slice) -> NDArray[np.float64]:
    """Compute truth minus gaze_hat of some entries in pitch and yaw: (n, 2) degrees."""
    residual = pitchyaw_from_vector(person.gaze[entries]) - pitchyaw_from_vector(person.gaze_hat[entries])
    residual[:, 1] = wrapped(residual[:, 1])
    return np.degrees(residual)


class Gaussian(NamedTuple):
    """What is believed of some entries' residuals."""

    mean: NDArray[np.float64]  # (n, 2) degrees
    variance: NDArray[np.float64]  # (n, 2) square degrees, noise included


class ResidualModel(ClosedForm):
    """A subclass says how the prior is learnt, how samples make it a person's, and what that says of other entries."""

    learns_from_tasks = True

    @abstractmethod
    def learn_prior(self, people: Sequence[PersonCodes]) -> dict[str, NDArray[np.float64]]:
        """Learn what people's functions are like; `noise` (2,) is among it, a variance of each axis."""

    @abstractmethod
    def condition(self, prior: State, seen: Seen, residual: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Compute a person's own function from k samples and their residuals (k, 2), k >= 0."""

    @abstractmethod
    def predict(self, own: State, seen: Seen) -> Gaussian:
        """Say what is believed of other entries' residuals."""

    @abstractmethod
    def covariance(self, prior: State, seen: Seen) -> NDArray[np.float64]:
        """Compute the prior covariances (2, n, n) of f between entries, without the noise."""

    def choose(self, learned: Learned, seen: Seen, count: int, known: Sequence[int] = ()) -> list[int]:
        """Choose entries to ask the person's gaze of: each lowers the mean variance over all entries the most.

        The variance depends on no label, so that all can be chosen beforehand (Cohn, Ghahramani and Jordan, Active
        Learning with Statistical Models, J. Artif. Intell. Res. 4, 1996).

        Args:
            learned: the prior.
            seen: the person's entries.
            count: how many are chosen.
            known: entries whose gaze is known already.

        Returns:
            Positions of the entries chosen, in their order.
        """
        prior = {name: value.numpy() for name, value in learned.state.items()}
        spread, noise, taken = self.covariance(prior, seen), prior["noise"][:, None], list(known)
        for entry in known:
            spread = _told(spread, entry, noise)
        for _ in range(count):
            own = np.diagonal(spread, axis1=1, axis2=2)  # (2, n)
            gain = np.sum(np.square(spread).mean(axis=1) / (own + noise), axis=0)
            gain[taken] = -np.inf
            taken.append(int(gain.argmax()))
            spread = _told(spread, taken[-1], noise)
        return taken[len(known) :]

    def meta_train(self, training: MetaTraining) -> Learned:
        """Learn the prior from train people, and from val people how far it is to be trusted."""
        prior = self.learn_prior(training.train) | {"inflation": np.ones(1)}
        if training.val:
            prior = self._validated(prior, training)
        state = {name: torch.from_numpy(np.asarray(value)) for name, value in prior.items()}
        return Learned(self.name, list(training.settings.shots), plain(training.settings), state)

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute the person's own function."""
        prior = {name: value.numpy() for name, value in learned.state.items()}
        own = self.condition(prior, person.seen(support), residual_deg(person, support))
        return {name: torch.from_numpy(np.asarray(value)) for name, value in own.items()}

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Add the mean of what is believed of the residual."""
        return corrected(seen, self._believed(correction, seen).mean)

    def variance_deg2(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Tell the variance of the estimate's pitch and yaw."""
        return self._believed(correction, seen).variance

    def _believed(self, correction: Mapping[str, Tensor], seen: Seen) -> Gaussian:
        return self.predict({name: value.numpy() for name, value in correction.items()}, seen)

    def _validated(self, prior: State, training: MetaTraining) -> dict[str, NDArray[np.float64]]:
        calibrations, query = validation_draws(training), slice(-training.settings.query_entries, None)

        def believed(trust: float) -> Iterator[tuple[PersonCodes, Gaussian]]:
            doubted = dict(prior) | {"noise": trust * prior["noise"]}
            for calibration in calibrations:
                person, support = calibration.person, calibration.support
                own = self.condition(doubted, person.seen(support), residual_deg(person, support))
                yield person, self.predict(own, person.seen(query))

        def gaze(trust: float) -> Iterator[tuple[PersonCodes, NDArray[np.float64]]]:
            return ((person, corrected(person.seen(query), found.mean)) for person, found in believed(trust))

        best = choose_trust(gaze, query)
        missed = [(residual_deg(person, query) - found.mean) ** 2 / found.variance for person, found in believed(best)]
        return dict(prior) | {"noise": best * prior["noise"], "inflation": np.array([max(np.mean(missed), _LEAST)])}


def choose_trust(gaze: Callable[[float], Iterable[tuple[PersonCodes, NDArray[np.float64]]]], query: slice) -> float:
    """Choose of TRUST the factor nearest to 1 whose error on val people is the least, as far as they can tell.

    The rule of one standard error (Hastie, Tibshirani and Friedman, Elements of Statistical Learning, section 7.10),
    here of the paired difference over people.

    Args:
        gaze: from a factor to each val calibration's person and estimates of the query.
        query: entries of each person.
    """
    errors = []  # of each factor, each person's mean over calibrations
    for trust in TRUST:
        of_person: dict[str, list[float]] = {}
        for person, estimate in gaze(trust):
            of_person.setdefault(person.name, []).append(mean_angle_deg(estimate, person.gaze[query]))
        errors.append([np.mean(found) for found in of_person.values()])
    more = np.array(errors) - np.array(errors)[np.mean(errors, axis=1).argmin()]  # (factors, people)
    unsure = more.std(axis=1, ddof=1) / more.shape[1] ** 0.5 if more.shape[1] > 1 else 0.0
    as_good = [trust for trust, good in zip(TRUST, more.mean(axis=1) <= unsure, strict=True) if good]
    return min(as_good, key=lambda trust: abs(np.log(trust)))


def validation_draws(training: MetaTraining) -> list[Calibration]:
    """Draw the val people's calibrations of every k: few, since people differ more than draws do."""
    return draw_calibrations(training.val, training.settings, repeats=min(_REPEATS, training.settings.repeats))


def _told(spread: NDArray[np.float64], entry: int, noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute covariances (2, n, n) after the gaze of an entry is known."""
    column = spread[:, :, entry]
    return spread - column[:, :, None] * column[:, None, :] / (column[:, entry, None] + noise)[..., None]


def corrected(seen: Seen, residual: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add residuals (n, 2), degrees, to gaze_hat: unit vectors (n, 3)."""
    return vector_from_pitchyaw(pitchyaw_from_vector(seen.gaze_hat) + np.radians(residual))


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
        return Gaussian(mean.T, own["inflation"] * variance.T)

    def covariance(self, prior: State, seen: Seen) -> NDArray[np.float64]:
        """Compute them from the weights'."""
        design = self._design(prior, seen)
        return design @ prior["covariance"] @ np.swapaxes(design, 1, 2)

    def _design(self, state: State, seen: Seen) -> NDArray[np.float64]:
        return (self.features(seen) - state["center"][:, None]) / state["scale"][:, None]


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
        """The same of both axes."""
        angles = np.column_stack([pitchyaw_from_vector(seen.gaze_hat), seen.head])  # (n, 4) rad
        first, second = np.triu_indices(4)
        products = angles[:, first] * angles[:, second]
        whole = np.column_stack([np.ones(len(angles)), angles, products, seen.code.astype(np.float64)])
        return np.stack([whole, whole])
