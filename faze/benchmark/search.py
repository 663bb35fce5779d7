"""The largest number that fits, from as few trials as doubling and bisection need."""

from collections.abc import Callable


def largest(fits: Callable[[int], bool], *, most: int, multiple: int = 1) -> int:
    """The largest multiple that fits, if every smaller one does too.

    Args:
        fits: tries a number; expensive.
        most: is not exceeded.
        multiple: what is tried are its multiples.

    Returns:
        0 if not even `multiple` fits.
    """
    low, high = 0, most // multiple + 1
    attempt = 1
    while high - low > 1:
        attempt = min(attempt, high - 1)
        if fits(attempt * multiple):
            low = attempt
            attempt = 2 * low if high > most // multiple else (low + high) // 2
        else:
            high = attempt
            attempt = (low + high) // 2
    return low * multiple
