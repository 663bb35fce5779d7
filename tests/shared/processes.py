"""Processes on the machine, read from /proc: which are alive, and their parents."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def until(condition: Callable[[], bool], what: str, *, seconds: float = 600, pause: float = 0.02) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"{what} did not happen in {seconds} s"
        time.sleep(pause)


def table() -> dict[int, tuple[str, int]]:
    """Return the state and the parent of every living process."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(entry.name)] = (state, int(parent))
    return found


def living(processes: set[int]) -> dict[int, str]:
    """Return the states of those processes that are alive."""
    return {process: state for process, (state, _) in table().items() if process in processes}


def family(process: int) -> set[int]:
    """List a process and all its descendants, whatever their group."""
    parents = {child: parent for child, (_, parent) in table().items()}
    found: set[int] = set()
    added = {process} & parents.keys()
    while added:
        found |= added
        added = {child for child, parent in parents.items() if parent in added}
    return found


def command_line(process: int) -> list[str]:
    """Return the words of a process's command line; it has none if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")
    return []


def send(processes: Iterable[int], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def kill(processes: set[int]) -> None:
    send(processes, signal.SIGKILL)
    until(lambda: not living(processes), "their end")
