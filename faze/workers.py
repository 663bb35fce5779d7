"""Processes that work on people side by side, each on one core."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool


@contextlib.contextmanager
def worker_processes(count: int, start: Callable[..., None], *arguments: object) -> Iterator[ProcessPoolExecutor]:
    """A pool of spawned processes, each of which first calls `start`.

    Raises:
        ChildProcessError: one of them was killed.
    """
    # Snakemake allows each process all threads of the job; they would spin against each other. Read as numpy is loaded.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # Spawned, not forked: a forked process would inherit the lock on the output and hold it beyond our death.
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start, (start, arguments))
    try:
        yield pool
    except BrokenProcessPool:
        raise ChildProcessError("a process was killed, most likely for want of memory: give fewer --threads") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(start: Callable[..., None], arguments: tuple[object, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start(*arguments)


def _end_with_parent() -> None:
    """A pool's process whose parent was killed would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)
