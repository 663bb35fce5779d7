"""Phrases that verdicts, pages and tables share, each made in this one place. Standard library only."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NAMES = {"mpiigaze": "MPIIGaze", "gazecapture": "GazeCapture"}


def join(items: Sequence[str]) -> str:
    """List things: A, b and c."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def counted(number: int, one: str, more: str = "") -> str:
    """Count things: 1 person, 2 people; without a word for more than one, an s makes it."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def signed(number: float, digits: int = 2) -> str:
    """Write +0.08, −0.03, and 0.00 without a sign."""
    text = f"{abs(number):.{digits}f}"
    return text if float(text) == 0 else f"{'+' if number > 0 else '−'}{text}"


def saving(ratio: float) -> str:
    """Write 1.60× less, 1.72× as much; the ratio is the baseline's memory over the tier's."""
    text = f"{max(ratio, 1 / ratio):.2f}×"
    return text if text == "1.00×" else f"{text} {'less' if ratio > 1 else 'as much'}"


def memory_change(ratio: float, differs: bool) -> str:
    """Write 1.60× less, 1.72× as much, or that neither is shown."""
    return saving(ratio) if differs else "not shown"


def peak(row: Mapping[str, Any]) -> str:
    """Write a peak of memory as 0.107 GiB (0.100 to 0.112), or without the least and most of rounds that were not."""
    low, high = (row.get(f"peak_gib_{end}") for end in ("low", "high"))
    known = low is not None and math.isfinite(low) and low < high  # those of a single round say nothing
    return f"{row['peak_gib']:.3f} GiB" + (f" ({low:.3f} to {high:.3f})" if known else "")


def p_value(p: float) -> str:
    """Write a p-value in as many digits as mean something."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def plain(value: object) -> str:
    """Write a value so that Markdown shows it as it is, be it a table, a link or a script: `|`, backticks and < go."""
    return "".join(letter if letter.isprintable() and letter not in "`|<>[]" else "?" for letter in str(value))


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table in Markdown."""
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (header, ["---"] * len(header), *rows))
