"""joblib's worker processes, which end when the process that started them is killed."""

import _thread
import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool

from joblib import Parallel

from faze.base.errors import UserError


@contextlib.contextmanager
def worker_processes(count: int, **options: object) -> Iterator[Parallel]:
    """Open `joblib.Parallel` with `count` processes; raise a UserError if one of them is killed."""
    watching = {"initializer": _thread.start_new_thread, "initargs": (_end_with, (os.getpid(),))}
    try:
        yield Parallel(count, **watching, **options)
    except BrokenProcessPool:
        remedy = "run the same command again, with fewer cores if memory ran out"
        raise UserError(f"a worker process was killed or could not start: {remedy}") from None


def _end_with(parent: int) -> None:
    """End this process when its parent ends; otherwise, an idle worker would wait minutes for its next job."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
