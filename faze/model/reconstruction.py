"""Compare redirected strips with real ones: how much they differ, and which person the redirected ones resemble.

Each strip of a person is redirected to the gaze and head pose of another strip of that person, and compared with it. In
validation, the target is the next strip; elsewhere, it is a random one. Each measure has a reference value: the same
measure for real strips or for a constant strip.

Shapes: P people; N strips of a person; S values per strip (channels times pixels).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.geometry import rotation_from_pitchyaw

Rotations = tuple[Tensor, Tensor]  # of gaze and head, (N, 3, 3) each
# (N, 3, H, W) strips, their rotations and the requested ones -> (N, 3, H, W), as DTED.forward.
Redirect = Callable[[Tensor, Rotations, Rotations], Tensor]
# A person's number -> (N, 3, H, W) strips as the network sees them, (N, 4) gaze and head in radians; N at least 2.
Read = Callable[[int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class RedirectedPerson:
    """Measurements of one person's redirected strips, on a scale where black is -1 and white is 1."""

    strips: int
    l1: float  # mean absolute difference to the real strips
    own_mean_l1: float  # the same for the mean of the person's other real strips
    all_mean_l1: float  # the same for the mean of all people's strips
    right: float  # share of strips to which the person's own mean is nearer than others (least squares)
    real_right: float  # the same for the real strips, each left out of its person's mean
    mean: NDArray[np.float32]  # (S,) of the redirected strips

    @property
    def numbers(self) -> dict[str, float]:
        """All values except the mean strip, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "mean"}


def mean_strips(people: int, read: Read) -> NDArray[np.float32]:
    """Compute the mean of each person's real strips, (P, S)."""
    return np.stack([read(person)[0].flatten(1).mean(0).cpu().numpy() for person in range(people)])


@torch.inference_mode()
def redirect_person(redirect: Redirect, read: Read, person: int, means: NDArray[np.float32]) -> RedirectedPerson:
    """Redirect a person's strips and compare them with the real ones.

    Args:
        redirect: the model.
        read: returns a person's strips.
        person: the person's number.
        means: (P, S) means of the real strips of each person.
    """
    image, labels = read(person)
    rotations = [rotation_from_pitchyaw(angles.to(image.dtype), torch) for angles in labels.split(2, dim=1)]
    wanted = tuple(rotation.roll(-1, 0) for rotation in rotations)
    return compare(redirect(image, tuple(rotations), wanted), image.roll(-1, 0), person, means)


def compare(redirected: Tensor, real: Tensor, person: int, means: NDArray[np.float32]) -> RedirectedPerson:
    """Compare a person's redirected strips with the real ones that have the requested gaze and head pose.

    Args:
        redirected: (N, 3, H, W).
        real: (N, 3, H, W), all the strips that are averaged in `means[person]`, in any order.
        person: the person's number.
        means: (P, S) means of the real strips of each person.
    """
    redirected, real = (images.flatten(1).cpu().numpy() for images in (redirected, real))
    count = len(real)
    return RedirectedPerson(
        strips=count,
        l1=_distance(redirected, real),
        own_mean_l1=_distance(means[person], real) * count / (count - 1),  # each strip is left out of the mean
        all_mean_l1=_distance(means.mean(0), real),
        right=_right(redirected, means, person),
        real_right=_right(real, means, person, own_share=1 / count),
        mean=redirected.mean(0),
    )


def deviations(means: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compute the mean squared difference (P,) of each person's mean strip (P, S) from the mean of all people."""
    return np.square(means.astype(np.float64) - means.mean(0, dtype=np.float64)).mean(1)


def spread(deviations: Iterable[float]) -> float:
    """Compute the standard deviation between people from their mean squared differences."""
    return float(np.sqrt(np.mean(list(deviations))))


def summary(people: Sequence[RedirectedPerson], means: NDArray[np.float32]) -> Mapping[str, float]:
    """Average the measures over people and compute the spread between people, each with its reference value."""

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
    """Return the share of strips (N, S) nearest to their own person's mean, to which each contributes own_share."""
    nearer = np.stack([np.square(strips - mean).sum(1, dtype=np.float64) for mean in means])  # (P, N)
    nearer[person] /= (1 - own_share) ** 2
    return float((nearer.argmin(0) == person).mean())
