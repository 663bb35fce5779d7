"""Learners that correct gaze_hat by a Gaussian model of the person's residual: what is left between it and the truth.

Pitch and yaw are modelled each by itself, in degrees: residual = label - gaze_hat = f(entry) + noise. Of f each learner
says what people's functions are like (its prior) before any sample of a person; the k samples make it that person's.
The prior is learnt from train people. The network has seen those, so they differ less than others do: factors of the
variance of f's constant, of the rest of f and of the noise are learnt from val people, by their likelihood. So what is
said of the uncertainty is true of people whom the network has not seen.

Shapes: P people, n entries, k of them a person's samples, 2 axes, d features.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.errors import UserError
from faze.base.geometry import pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.fewshot.interface import ClosedForm, MetaTraining
from faze.fewshot.learner_file import Learned, plain
from faze.fewshot.likelihood import likely_factors, negative_log_likelihood, some_entries
from faze.fewshot.person_codes import PersonCodes, Seen

_PLAIN = 0.9  # share of the entries of which samples are chosen; the best of 0.5, 0.75, 0.9 and 1 for val people
State = Mapping[str, NDArray[np.float64]]


def residual_deg(person: PersonCodes, entries: NDArray[np.int64] | slice) -> NDArray[np.float64]:
    """Compute truth minus gaze_hat of some entries in pitch and yaw: (n, 2) degrees."""
    truth, estimate = (pitchyaw_from_vector(vectors[entries]) for vectors in (person.gaze, person.gaze_hat))
    return np.degrees(pitchyaw_difference(truth, estimate))


def check_features(found: int, learnt: int) -> None:
    """Refuse codes of another size than those that a learner learnt from.

    Raises:
        UserError: naming both.
    """
    if found != learnt:
        raise UserError(f"a person's codes give {found} features, the learner has {learnt}: run meta_train again")


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
        """Return the posterior of other entries' residuals."""

    @abstractmethod
    def covariance(self, prior: State, seen: Seen) -> NDArray[np.float64]:
        """Compute the prior covariances (2, n, n) of f between entries, without the noise."""

    @abstractmethod
    def scaled(self, prior: State, factors: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Multiply the variance of f's constant part, that of its other part, and the noise by factors (3,)."""

    def choose(self, learned: Learned, seen: Seen, count: int, known: Sequence[int] = ()) -> list[int]:
        """Choose entries to ask the person's gaze of: each lowers the mean variance over all entries the most.

        The variance depends on no label, so that all can be chosen beforehand (Cohn, Ghahramani and Jordan, Active
        Learning with Statistical Models, J. Artif. Intell. Res. 4, 1996). The tenth of the entries that the prior is
        least sure of is not asked for: a shut eye or a glare makes an entry odd, and it tells nothing of the others.

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
        """Learn the prior from train people, and from val people how much more others differ."""
        prior = self.learn_prior(training.train)
        if training.val:
            prior = self.scaled(prior, self._factors(prior, training.val))
        state = {name: torch.from_numpy(np.asarray(value)) for name, value in prior.items()}
        return Learned(self.name, list(training.settings.shots), plain(training.settings), state)

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute the person's own function; a UserError where what was learnt is no prior."""
        prior = {name: value.numpy() for name, value in learned.state.items()}
        try:
            own = self.condition(prior, person.seen(support), residual_deg(person, support))
        except np.linalg.LinAlgError:
            raise UserError(f"what {self.name} learnt is no covariance, so {person} cannot be calibrated") from None
        return {name: torch.from_numpy(np.asarray(value)) for name, value in own.items()}

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Add the mean of what is believed of the residual."""
        return corrected(seen, self._believed(correction, seen).mean)

    def variance_deg2(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Return the variance of the estimate's pitch and yaw."""
        return self._believed(correction, seen).variance

    def _believed(self, correction: Mapping[str, Tensor], seen: Seen) -> Gaussian:
        return self.predict({name: value.numpy() for name, value in correction.items()}, seen)

    def _factors(self, prior: State, people: Sequence[PersonCodes]) -> NDArray[np.float64]:
        """Find the factors (3,) of `scaled` with which people, not those of the prior, are the likeliest."""
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
    """Compute covariances (2, n, n) after the gaze of an entry is known."""
    column = spread[:, :, entry]
    return spread - column[:, :, None] * column[:, None, :] / (column[:, entry, None] + noise)[..., None]


def corrected(seen: Seen, residual: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add residuals (n, 2), degrees, to gaze_hat: unit vectors (n, 3)."""
    return vector_from_pitchyaw(pitchyaw_from_vector(seen.gaze_hat) + np.radians(residual))
