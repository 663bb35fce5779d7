"""Redirected strips and their controls: a person's strips turned to the gaze and head pose of others of theirs.

Strip a of a person is turned to the labels of strip b. What is made of a pair, by name:

| variant | what it is | wanted |
|---|---|---|
| real | strip b itself: what the judge makes of it is the floor | labels of b |
| oracle | the person rendered anew with the truth of b and all else of a, where people are rendered | labels of b |
| other | another real strip of the person, drawn at random | labels of b |
| still | a decoded without being turned: the ceiling | labels of b |
| both | gaze and head code of a turned from a's labels, as in training | labels of b |
| own | the same, but the gaze code from the network's own estimate, as one must without labels | labels of b |
| gaze, head | one code alone is turned | its label of b, the other's of a |
| gaze_aside, head_aside | one code alone is turned by up to ASIDE_DEG along each axis (ST-ED, section 4.2) | so |

The head pose is known wherever there is a strip, since normalisation needs it. So `own` turns the head code from it.

Shapes: N pairs of one person.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ASIDE_DEG = 18.0
LEAST = 2  # strips of a person: one is turned to the other
MADE = ("still", "both", "own", "gaze", "head", "gaze_aside", "head_aside")
WANTS_B = ("real", "oracle", "other", "still", "both", "own")
VARIANTS = (*WANTS_B, "gaze", "head", "gaze_aside", "head_aside")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which of a person's chosen strips are turned to which."""

    a: NDArray[np.int64]  # (N,) that are turned
    b: NDArray[np.int64]  # (N,) never a
    other: NDArray[np.int64]  # (N,) never b, and a only where the person has two strips
    aside_deg: NDArray[np.float64]  # (N, 4) gaze pitch, yaw, head pitch, yaw


def chosen(entries: int, most: int) -> NDArray[np.int64]:
    """Choose entries of a person, evenly from all, since neighbours were often recorded one after the other."""
    return np.linspace(0, entries - 1, min(entries, most)).round().astype(np.int64)


def draw_pairs(seed: int, strips: int) -> Pairs:
    """Draw the pairs of a person's chosen strips; each depends on the seed and its own number alone.

    Args:
        seed: of the draws.
        strips: of the person, at least LEAST; each is turned once.
    """
    a = np.arange(strips)
    draws = np.stack([np.random.default_rng([seed, index]).random(6) for index in range(strips)])  # (N, 6)
    b = np.floor(draws[:, 0] * (strips - 1)).astype(np.int64)
    b += b >= a
    if strips == LEAST:
        other = a
    else:
        other = np.floor(draws[:, 1] * (strips - 2)).astype(np.int64)
        for taken in np.sort([a, b], axis=0):
            other += other >= taken
    return Pairs(a, b, other, ASIDE_DEG * (2 * draws[:, 2:] - 1))


def wanted_labels(variant: str, pairs: Pairs, labels: NDArray) -> NDArray[np.float64]:
    """Give the (N, 4) gaze and head that a variant shall have, radians.

    Args:
        variant: of VARIANTS.
        pairs: of the person.
        labels: of the chosen strips, (N, 4).
    """
    if variant in WANTS_B:
        return labels[pairs.b].astype(np.float64)
    wanted = labels[pairs.a].astype(np.float64)
    turned = slice(0, 2) if variant.startswith("gaze") else slice(2, 4)
    if variant.endswith("aside"):
        wanted[:, turned] += np.radians(pairs.aside_deg[:, turned])
    else:
        wanted[:, turned] = labels[pairs.b, turned]
    return wanted
