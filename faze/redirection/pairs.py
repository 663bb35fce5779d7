"""Pairs of a person's strips: strip a is redirected to the gaze and head pose of strip b.

Every strip of a person is strip a of one pair. Redirected strips are compared with controls:

| variant | image |
|---|---|
| redirected | strip a, with gaze and head codes rotated from its own labels to those of b, as in training |
| not_turned | strip a, encoded and decoded without rotation: the error of doing nothing |
| real | strip b itself: the estimator's own error |

Shapes: N pairs of one person.
"""

import numpy as np
from numpy.typing import NDArray

MIN_STRIPS = 2  # of a person: one is redirected to the other
VARIANTS = ("real", "not_turned", "redirected")


def chosen(entries: int, most: int) -> NDArray[np.int64]:
    """Choose up to `most` evenly spaced entries of a person, since adjacent ones were often recorded in succession."""
    return np.linspace(0, entries - 1, min(entries, most)).round().astype(np.int64)


def draw_targets(seed: int, strips: int) -> NDArray[np.int64]:
    """Draw strip b for each of a person's pairs.

    Args:
        seed: random seed. Each draw depends only on the seed and the index of the pair.
        strips: N, the number of the person's strips, at least MIN_STRIPS.

    Returns:
        (N,) index of strip b for each strip a; b is never a itself.
    """
    draws = np.array([np.random.default_rng([seed, index]).random() for index in range(strips)])
    targets = np.floor(draws * (strips - 1)).astype(np.int64)
    return targets + (targets >= np.arange(strips))
