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
    right: float  # share of strips to which the mean of the person's other strips is nearer than other people's means
    real_right: float  # the same for the real strips
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
    return compare(redirect(image, tuple(rotations), wanted), image, image.roll(-1, 0), person, means)


def compare(
    redirected: Tensor, source: Tensor, real: Tensor, person: int, means: NDArray[np.float32]
) -> RedirectedPerson:
    """Compare a person's redirected strips with the real ones that have the requested gaze and head pose.

    Args:
        redirected: (N, 3, H, W).
        source: (N, 3, H, W), the strips that were redirected.
        real: (N, 3, H, W), all the strips that are averaged in `means[person]`, in any order.
        person: the person's number.
        means: (P, S) means of the real strips of each person.
    """
    redirected, source, real = (images.flatten(1).cpu().numpy() for images in (redirected, source, real))
    count = len(real)
    others = (count * means[person] - real) / (count - 1)
    neither = (count * means[person] - real - source) / (count - 2) if count > 2 else others
    return RedirectedPerson(
        strips=count,
        l1=_distance(redirected, real),
        own_mean_l1=_distance(others, real),
        all_mean_l1=_distance(means.mean(0), real),
        right=_right(redirected, neither, person, means),
        real_right=_right(real, others, person, means),
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


def _right(strips: NDArray, own: NDArray, person: int, means: NDArray) -> float:
    """Return the share of strips (N, S) that are nearest, by squares, to their own person's mean.

    Args:
        strips: real or redirected strips.
        own: (N, S) for each, the person's mean without the strips that it shows or was made from.
        person: the person's number.
        means: (P, S) means of all people.
    """
    squares = [np.square(strips - (own if other == person else mean)) for other, mean in enumerate(means)]
    nearest = np.stack([square.sum(1, dtype=np.float64) for square in squares]).argmin(0)
    return float((nearest == person).mean())
