"""Choices by chance, and by hypothesis, which makes a failing case small."""

import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Chance:
    """Choices from a seed: fast, so for many cases."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random(repr(seed))

    def number(self, low: int, high: int) -> int:
        """See Draw."""
        return self._random.randint(low, high)

    def pick(self, values: Sequence[T]) -> T:
        """See Draw."""
        return values[int(self._random.random() * len(values))]

    def flip(self) -> bool:
        """See Draw."""
        return self._random.random() < 0.5

    def some(self, most: int) -> bytes:
        """See Draw."""
        return self._random.randbytes(self._random.randint(0, most))


class Shrinking:
    """Choices of hypothesis."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw

    def number(self, low: int, high: int) -> int:
        """See Draw."""
        return self._draw(st.integers(low, high))

    def pick(self, values: Sequence[T]) -> T:
        """See Draw."""
        return self._draw(st.sampled_from(values))

    def flip(self) -> bool:
        """See Draw."""
        return self._draw(st.booleans())

    def some(self, most: int) -> bytes:
        """See Draw."""
        return self._draw(st.binary(max_size=most))
