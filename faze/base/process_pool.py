"""Processes that work on people side by side, each on one core."""

import contextlib
import ctypes
import multiprocessing
import multiprocessing.forkserver
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's mallopt


def load_ahead(*modules: str) -> None:
    """Let a process load modules now, while we do something else; those of `worker_processes` then begin with them.

    Without effect once such a process is there.
    """
    # Snakemake allows each process all threads of the job; they would spin against each other. Read as numpy is loaded.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    multiprocessing.set_forkserver_preload(list(modules))
    multiprocessing.forkserver.ensure_running()


@contextlib.contextmanager
def worker_processes(count: int, start: Callable[..., None], *arguments: object) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of processes, each of which first calls `start`.

    Raises:
        ChildProcessError: one of them was killed.
    """
    # Not forked from us: a forked process would inherit the lock on the output and hold it beyond our death. But from
    # a server that has loaded the modules once for all, in 15 ms; spawned ones load them each, in 150 to 250 ms.
    load_ahead(start.__module__)
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("forkserver"), _start, (start, arguments))
    try:
        yield pool
    except BrokenProcessPool:
        raise ChildProcessError("a process was killed, most likely for want of memory: give fewer --threads") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(start: Callable[..., None], arguments: tuple[object, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc's; others have their own ways
        # What is freed is kept for the next frame: given back, each page of an image would be faulted in anew.
        mallopt(_M_MMAP_MAX, 0)  # M_MMAP_THRESHOLD, the other way, takes no more than 32 MiB from older versions
        mallopt(_M_TRIM_THRESHOLD, -1)
    start(*arguments)


def _end_with_parent() -> None:
    """End once the parent has: a process of a pool whose parent was killed would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)
