"""Number formats and phrases shared by verdicts, pages and tables; imports only the standard library."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def title_of(dataset: str) -> str:
    """Return the name of a data set as its authors write it or, if unknown, as in the configuration."""
    return {"mpiigaze": "MPIIGaze", "gazecapture": "GazeCapture"}.get(dataset, dataset)


def join(items: Sequence[str]) -> str:
    """Format a list: A, B and C."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def counted(number: int, one: str, more: str = "") -> str:
    """Format a count with its noun: 1 person, 2 people. The default plural appends an s."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def parallelism(row: Mapping[str, Any]) -> str:
    """Describe the processes of a measured tier and the threads of each, for example as 2 × 1 thread."""
    return f"{row['processes']} × {counted(row['threads'], 'thread')}"


def signed(number: float, digits: int = 2) -> str:
    """Format a number with its sign, such as +0.08 or −0.03; 0.00 has no sign."""
    text = f"{abs(number):.{digits}f}"
    return text if float(text) == 0 else f"{'+' if number > 0 else '−'}{text}"


def memory_change(ratio: float, differs: bool) -> str:
    """Format the ratio of the baseline's memory to the tier's: 1.60× less, 1.72× as much, 1.00×, or not shown."""
    text = f"{max(ratio, 1 / ratio):.2f}×"
    words = text if text == "1.00×" else f"{text} {'less' if ratio > 1 else 'as much'}"
    return words if differs else "not shown"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a Markdown table."""
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (header, ["---"] * len(header), *rows))
