"""Processes of the machine, as /proc tells them: who lives, who descends from whom."""

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
    """State and parent of every process that lives."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(entry.name)] = (state, int(parent))
    return found


def living(processes: set[int]) -> dict[int, str]:
    """State of those of the processes that live."""
    return {process: state for process, (state, _) in table().items() if process in processes}


def family(process: int) -> set[int]:
    """A process and all that descend from it, whatever their group."""
    parents = {child: parent for child, (_, parent) in table().items()}
    found: set[int] = set()
    added = {process} & parents.keys()
    while added:
        found |= added
        added = {child for child, parent in parents.items() if parent in added}
    return found


def marked(variable: str, value: str) -> set[int]:
    """Living processes in whose environment a variable has a value: all that was started with it, orphans too."""
    wanted, found = f"{variable}={value}".encode(), set()
    for process in table():
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                found.add(process)
    return found


def words_of(process: int) -> list[str]:
    """The command line of a process; nothing of one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace").split("\0")[:-1]
    return []


def send(processes: Iterable[int], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def kill(processes: set[int]) -> None:
    send(processes, signal.SIGKILL)
    until(lambda: not living(processes), "their end")
