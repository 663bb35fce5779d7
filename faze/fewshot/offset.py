"""Learners with two or three parameters per person: the mean angular offset, or a rotation (angle kappa).

`kappa` is one rotation per person, with a prior. The person's gaze is gaze_hat, rotated in the head's frame: g' = H
exp([w]) H^T gaze_hat, where H contains the head's axes in the normalised camera, and w is a rotation vector whose
components are distributed as N(0, spread) over people. `shrink` is the ratio of the variance of a sample's error to
these spreads. Head pose has no roll in the normalised camera, so pitch and yaw determine H.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.geometry import pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.fewshot.interface import ClosedForm, MetaTraining
from faze.fewshot.learner_file import Learned, plain
from faze.fewshot.likelihood import likely_factors, negative_log_likelihood, some_entries
from faze.fewshot.person_codes import PersonCodes, Seen


class Offset(ClosedForm):
    """A learner that subtracts the mean error of the k samples (estimate - truth, in pitch and yaw) from gaze_hat."""

    name = "offset"

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute offset_rad (2,): pitch and yaw."""
        estimate, truth = (pitchyaw_from_vector(vectors[support]) for vectors in (person.gaze_hat, person.gaze))
        return {"offset_rad": torch.from_numpy(pitchyaw_difference(estimate, truth).mean(axis=0))}

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Subtract the offset."""
        return vector_from_pitchyaw(pitchyaw_from_vector(seen.gaze_hat) - correction["offset_rad"].numpy())


_ROUNDS = 5  # of Gauss-Newton; the angles are small
_LEAST = 1e-12  # square radians: the least spread and noise


class Kappa(ClosedForm):
    """A rotation of the gaze in the head's frame, shrunk towards zero by an amount fitted on val people."""

    name = "kappa"
    learns_from_tasks = True

    def meta_train(self, training: MetaTraining) -> Learned:
        """Estimate the spread and noise from train people, and their factors for unseen people from val people."""
        free = [rotation_of(person, slice(None), np.zeros(3)) for person in training.train]
        spread = np.maximum(np.mean(np.square(free), axis=0), _LEAST)
        left = [
            np.sum((turned(person.seen(slice(None)), w) - person.gaze) ** 2, axis=1)
            for person, w in zip(training.train, free, strict=True)
        ]
        noise = max(0.5 * float(np.mean(np.concatenate(left))), _LEAST)
        if training.val:
            of_spread, of_noise = _factors(spread, noise, training.val)
            spread, noise = of_spread * spread, of_noise * noise
        state = {"shrink": torch.from_numpy(noise / spread)}
        return Learned(self.name, list(training.settings.shots), plain(training.settings), state)

    def fit(self, person: PersonCodes, support: NDArray[np.int64], learned: Learned) -> dict[str, Tensor]:
        """Compute rotation_rad (3,)."""
        return {"rotation_rad": torch.from_numpy(rotation_of(person, support, learned.state["shrink"].numpy()))}

    def estimate(self, correction: Mapping[str, Tensor], seen: Seen) -> NDArray[np.float64]:
        """Turn gaze_hat by the fitted rotation."""
        return turned(seen, correction["rotation_rad"].numpy())


def head_axes(head: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the head's axes (n, 3, 3), as columns x, y, z in the normalised camera, from its pitch and yaw (n, 2)."""
    z = vector_from_pitchyaw(head)
    x = np.cross(np.array([0.0, 1.0, 0.0]), z)
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return np.stack([x, np.cross(z, x), z], axis=-1)


def rotation_of(person: PersonCodes, entries: NDArray[np.int64] | slice, shrink: NDArray) -> NDArray[np.float64]:
    """Find the rotation vector w (3,), in radians, that minimises the squared errors + shrink (3,) w^2."""
    seen, truth = person.seen(entries), person.gaze[entries]
    rotation, penalty, axes = np.zeros(3), np.diag(shrink), head_axes(seen.head)
    in_head = np.einsum("nji,nj->ni", axes, seen.gaze_hat)
    for _ in range(_ROUNDS):
        gaze = np.einsum("nij,nj->ni", axes, _spun(in_head, rotation))
        slope = np.einsum("nij,njk->nik", -_cross(gaze), axes)  # (n, 3, 3): derivative of the gaze by the rotation
        gram = np.einsum("nij,nik->jk", slope, slope) + penalty
        wanted = np.einsum("nij,ni->j", slope, truth - gaze) - shrink * rotation
        rotation = rotation + np.linalg.lstsq(gram, wanted, rcond=1e-9)[0]
    return rotation


def turned(seen: Seen, rotation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn gaze_hat by a rotation vector in the head's frame, giving unit vectors (n, 3)."""
    axes = head_axes(seen.head)
    return np.einsum("nij,nj->ni", axes, _spun(np.einsum("nji,nj->ni", axes, seen.gaze_hat), rotation))


def _spun(vectors: NDArray[np.float64], rotation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn vectors (n, 3) by a rotation vector, using Rodrigues' formula."""
    angle = float(np.linalg.norm(rotation))
    if angle == 0:
        return vectors
    k = rotation / angle
    across = np.cross(k, vectors)
    return vectors + np.sin(angle) * across + (1 - np.cos(angle)) * np.cross(k, across)


def _factors(spread: NDArray[np.float64], noise: float, people: Sequence[PersonCodes]) -> NDArray[np.float64]:
    """Find the maximum-likelihood factors (2,) of spread and noise, for small rotations."""
    residuals, spreads = [], []
    for person, rows in zip(people, some_entries(people), strict=True):
        seen = person.seen(rows)
        across = head_axes(pitchyaw_from_vector(seen.gaze_hat))[:, :, :2]  # (n, 3, 2) basis of errors
        residuals.append(np.einsum("nij,ni->nj", across, person.gaze[rows] - seen.gaze_hat).ravel())
        slope = np.einsum("nil,nij,njk->nlk", across, -_cross(seen.gaze_hat), head_axes(seen.head)).reshape(-1, 3)
        spreads.append(slope * spread @ slope.T)
    residual, told = torch.from_numpy(np.stack(residuals)), torch.from_numpy(np.stack(spreads))
    unit = noise * torch.eye(residual.shape[-1], dtype=torch.float64)
    return likely_factors(lambda factors: negative_log_likelihood(factors[0] * told + factors[1] * unit, residual), 2)


def _cross(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the matrices [v] (n, 3, 3) for which [v] u = v x u."""
    zero = np.zeros(len(vectors))
    x, y, z = vectors.T
    return np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=-1).reshape(-1, 3, 3)
