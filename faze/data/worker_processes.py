"""joblib's worker processes, which end when the process that started them is killed."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool

from joblib import Parallel

from faze.base.errors import UserError


@contextlib.contextmanager
def worker_processes(count: int, **options: object) -> Iterator[Parallel]:
    """Open `joblib.Parallel` with as many processes; raise UserError if one of them is killed."""
    try:
        yield Parallel(count, initializer=_end_with, initargs=(os.getpid(),), **options)
    except BrokenProcessPool:
        remedy = "run the same command again, with fewer cores if memory was short"
        raise UserError(f"a worker process was killed or could not start: {remedy}") from None


def _end_with(parent: int) -> None:
    """Watch the parent process; an idle worker would otherwise wait minutes for its next job."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
