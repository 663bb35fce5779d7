"""The lock that keeps two writers of the same output apart. Standard library only (POSIX)."""

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from faze.base.files import torn


@contextlib.contextmanager
def output_lock(path: Path | str, *beside: Path | None) -> Iterator[None]:
    """Hold the lock on an output while writing it; wait, and say for whom, while another process holds it.

    The kernel drops the lock when its holder dies, however it dies. So an orphan of a killed workflow and the re-run
    never write together.

    Args:
        path: of the output.
        beside: other outputs that are written under the same lock.
    """
    place = Path(path).resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f".{place.name}.lock").open("a+") as lock:

        def say() -> None:
            lock.seek(0)
            holder = lock.read().strip()  # it writes its number once it has the lock
            writer = f"process {holder}" if holder else "another process"
            print(f"{path} is being written by {writer}: waiting for it to end", file=sys.stderr)

        take(lock, fcntl.LOCK_EX, say)
        write_anew(lock, str(os.getpid()))
        for output in filter(None, [place, *beside]):
            _remove_torn(output.resolve())
        yield


def _remove_torn(path: Path) -> None:
    """Remove what killed writers of an output left."""
    for left in torn(path):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def take(lock: IO[str], kind: int, if_held: Callable[[], None]) -> None:
    """Take the kernel's lock on an open file; call `if_held` first, which may raise, and wait while another has it."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        if_held()
        fcntl.flock(lock, kind)


def write_anew(file: IO[str], text: str) -> None:
    """Replace what an open file holds, for others to read at once."""
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()
