"""Whom a redirected strip shows: how far it is from the real one, and which person's strips it looks like.

Each of a person's strips is turned to the gaze and head pose of another one (in validation the next, else a drawn
one), and compared with that one.
Beside each number stands what says how good it is: the same of the real strips, or of a strip that is the same always.

Shapes: P people; N strips of a person; S numbers of a strip (channels times pixels).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.geometry import rotation_from_pitchyaw

Rotations = tuple[Tensor, Tensor]  # of gaze and head, (N, 3, 3) each
# (N, 3, H, W) strips, the rotations that they have and those that they shall have -> (N, 3, H, W), as DTED does it.
Redirect = Callable[[Tensor, Rotations, Rotations], Tensor]
# A person's number -> (N, 3, H, W) strips as the network sees them, (N, 4) gaze and head in radians; N at least 2.
Read = Callable[[int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class RedirectedPerson:
    """One person's redirected strips; on a scale where black is -1 and white 1."""

    strips: int
    l1: float  # mean absolute difference to the real strips
    own_mean_l1: float  # of the mean of the person's other real strips
    all_mean_l1: float  # of the mean of all people's
    right: float  # share of strips that the person's own mean is nearest to, of all people's (least squares)
    real_right: float  # of the real strips, each left out of its own mean
    mean: NDArray[np.float32]  # (S,) of the redirected strips

    @property
    def numbers(self) -> dict[str, float]:
        """All but the mean strip, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "mean"}


def mean_strips(people: int, read: Read) -> NDArray[np.float32]:
    """Average each person's real strips, (P, S)."""
    return np.stack([read(person)[0].flatten(1).mean(0).cpu().numpy() for person in range(people)])


@torch.inference_mode()
def redirect_person(redirect: Redirect, read: Read, person: int, means: NDArray[np.float32]) -> RedirectedPerson:
    """Redirect a person's strips and compare them.

    Args:
        redirect: the model.
        read: gives people's strips.
        person: number.
        means: of everyone's real strips, (P, S).
    """
    image, labels = read(person)
    rotations = [rotation_from_pitchyaw(angles.to(image.dtype), torch) for angles in labels.split(2, dim=1)]
    wanted = tuple(rotation.roll(-1, 0) for rotation in rotations)
    return compare(redirect(image, tuple(rotations), wanted), image.roll(-1, 0), person, means)


def compare(redirected: Tensor, real: Tensor, person: int, means: NDArray[np.float32]) -> RedirectedPerson:
    """Compare a person's redirected strips with the real ones that they were to become.

    Args:
        redirected: (N, 3, H, W).
        real: the same; each is one of the N strips that `means[person]` is the mean of.
        person: number.
        means: of everyone's real strips, (P, S).
    """
    redirected, real = (images.flatten(1).cpu().numpy() for images in (redirected, real))
    count = len(real)
    return RedirectedPerson(
        strips=count,
        l1=_distance(redirected, real),
        own_mean_l1=_distance(means[person], real) * count / (count - 1),  # each left out of the mean
        all_mean_l1=_distance(means.mean(0), real),
        right=_right(redirected, means, person),
        real_right=_right(real, means, person, own_share=1 / count),
        mean=redirected.mean(0),
    )


def deviations(means: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compute how far each person's mean strip (P, S) is from the mean of all, (P,) mean squares over S."""
    return np.square(means.astype(np.float64) - means.mean(0, dtype=np.float64)).mean(1)


def spread(deviations: Iterable[float]) -> float:
    """Compute the standard deviation between people from how far each is from the mean of all."""
    return float(np.sqrt(np.mean(list(deviations))))


def summary(people: Sequence[RedirectedPerson], means: NDArray[np.float32]) -> Mapping[str, float]:
    """Average over people, with the spread between them, each beside its reference."""

    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    return {
        "l1": mean(person.l1 for person in people),
        "own_mean_l1": mean(person.own_mean_l1 for person in people),
        "all_mean_l1": mean(person.all_mean_l1 for person in people),
        "spread": spread(deviations(np.stack([person.mean for person in people]))),
        "real_spread": spread(deviations(means)),
        "right_person": mean(person.right for person in people),
        "real_right_person": mean(person.real_right for person in people),
    }


def _distance(strips: NDArray, real: NDArray) -> float:
    return float(np.abs(strips - real).mean(dtype=np.float64))


def _right(strips: NDArray, means: NDArray, person: int, own_share: float = 0.0) -> float:
    """Give the share of strips (N, S) whose nearest mean is their own person's; own_share: theirs in that mean."""
    nearer = np.stack([np.square(strips - mean).sum(1, dtype=np.float64) for mean in means])  # (P, N)
    nearer[person] /= (1 - own_share) ** 2
    return float((nearer.argmin(0) == person).mean())
