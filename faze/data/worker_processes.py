"""joblib's worker processes, which end when the process that started them is killed."""

import contextlib
import ctypes
import signal
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool

from joblib import Parallel

from faze.base.errors import UserError


@contextlib.contextmanager
def worker_processes(count: int, **options: object) -> Iterator[Parallel]:
    """Open `joblib.Parallel` with as many processes; raise UserError if one of them is killed."""
    try:
        yield Parallel(count, initializer=_end_with_parent, **options)
    except BrokenProcessPool:
        remedy = "run the same command again, with fewer cores if memory was short"
        raise UserError(f"a worker process was killed or could not start: {remedy}") from None


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: an idle worker would otherwise wait for minutes
