"""Learners that correct gaze_hat with a model of the person's residual, label - gaze_hat.

Pitch and yaw are modelled independently, in degrees: residual = f(entry) + noise, where f is normally distributed over
people: faze.fewshot.linear_residual and faze.fewshot.gaussian_process define it. The prior of f is estimated from train
people, and conditioned on the k samples of a person. The network was trained on the train people, so they differ less
from one another than other people do. Therefore three factors (for the variances of f's constant, of the rest of f, and
of the noise) are fitted by maximum likelihood on val people, which makes the predicted uncertainty valid for unseen
people.

The noise has Student's t distribution, whose degrees of freedom `dof` are estimated as well. Its tails are heavier than
those of a normal distribution, so a sample that differs from the others has less weight.

Shapes: P people, n entries, of which k are calibration samples, 2 axes.
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
from faze.fewshot.likelihood import likely_dof, likely_factors, negative_log_likelihood, some_entries
from faze.fewshot.person_codes import PersonCodes, Seen

_PLAIN = 0.9  # share of the entries from which samples are chosen; best of 0.5, 0.75, 0.9 and 1 on val people
_LEAST = 1e-8  # root mean square that is divided by
_REWEIGHTINGS, _SETTLED = 30, 1e-3  # of samples at most; a relative change of every variance that ends them
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
    def condition(
        self, prior: State, seen: Seen, residual: NDArray[np.float64], noise: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Compute a person's posterior from k >= 0 samples, their residuals (k, 2) and the noise's variances (2, k)."""

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

        For normal noise, the variance does not depend on labels, so all entries can be chosen in advance (Cohn,
        Ghahramani and Jordan, Active Learning with Statistical Models, J. Artif. Intell. Res. 4, 1996). The 10 % of
        entries with the largest prior variance are excluded: an entry can be unusual because of a closed eye or glare,
        which is not informative about other entries.

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
        surprise = [self._left_out(prior, training.train)]
        if training.val:
            prior = self.scaled(prior, self._factors(prior, training.val))
            surprise.append(self._left_out(prior, training.val))
        prior["dof"] = np.array([likely_dof(np.concatenate(surprise))])
        state = {name: torch.from_numpy(np.asarray(value)) for name, value in prior.items()}
        return Learned(self.name, list(training.settings.shots), plain(training.settings), state)

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute the person's posterior; raise UserError if the trained state is not a prior."""
        prior = {name: value.numpy() for name, value in learned.state.items()}
        try:
            own = self._posterior(prior, person.seen(support), residual_deg(person, support))
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
        found, (nobody, unlabelled) = [], (people[0].seen(slice(0)), np.zeros((0, 2)))
        nobodys = self.condition(prior, nobody, unlabelled, unlabelled.T)
        for person, entries in zip(people, some_entries(people), strict=True):
            seen = person.seen(entries)
            spread = self.covariance(prior, seen) + prior["noise"][:, None, None] * np.eye(len(entries))
            precision = np.linalg.inv(spread)  # (2, n, n)
            surprise = (residual_deg(person, entries) - self.predict(nobodys, seen).mean).T[..., None]
            found.append((precision @ surprise)[..., 0] / np.sqrt(np.diagonal(precision, axis1=1, axis2=2)))
        standard = np.concatenate(found, axis=1).T
        return standard / np.maximum(np.sqrt(np.mean(standard**2, axis=0)), _LEAST)

    def _believed(self, correction: Mapping[str, Tensor], seen: Seen) -> Gaussian:
        return self.predict({name: value.numpy() for name, value in correction.items()}, seen)

    def _factors(self, prior: State, people: Sequence[PersonCodes]) -> NDArray[np.float64]:
        """Find the maximum-likelihood factors (3,) for `scaled`, on people who did not contribute to the prior."""
        rows = some_entries(people)
        residual = np.stack([residual_deg(person, r) for person, r in zip(people, rows, strict=True)])  # (P, n, 2)
        sight = [person.seen(r) for person, r in zip(people, rows, strict=True)]
        nobodys = self.condition(prior, people[0].seen(slice(0)), np.zeros((0, 2)), np.zeros((2, 0)))
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
