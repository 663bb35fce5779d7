"""Pools of worker processes, each of which works on one person at a time on one core."""

import contextlib
import ctypes
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from faze.base.errors import UserError

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's mallopt


@contextlib.contextmanager
def worker_processes(count: int, start: Callable[..., None], *arguments: object) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of processes, each of which first calls `start`."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when a worker imports numpy
    multiprocessing.set_forkserver_preload([start.__module__])  # a fork takes 15 ms, a spawned process 200 ms
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("forkserver"), _start, (start, arguments))
    try:
        yield pool
    except BrokenProcessPool:
        remedy = "run the same command again, with fewer cores if memory was short"
        raise UserError(f"a worker process was killed or could not start: {remedy}") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(start: Callable[..., None], arguments: tuple[object, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # keep freed memory for the next frame, whose pages would be faulted in again
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)
    start(*arguments)


def _end_with_parent() -> None:
    """Exit when the stage has ended; PR_SET_PDEATHSIG would only watch the fork server, which a worker keeps alive."""
    multiprocessing.parent_process().join()
    os._exit(1)
