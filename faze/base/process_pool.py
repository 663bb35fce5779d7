"""Pools of worker processes, each of which works on one person at a time on one core."""

import contextlib
import ctypes
import multiprocessing
import multiprocessing.forkserver
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from faze.base.errors import UserError

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's mallopt


def load_ahead(*modules: str) -> None:
    """Start a fork server that imports modules in the background, for the workers of `worker_processes`.

    The first call determines which modules are imported; later calls have no effect.

    Raises:
        UserError: the path of the temporary folder is too long.
    """
    # Snakemake sets the job's threads for every process, and those of several workers would spin against each other.
    # OpenBLAS reads the variable when numpy is imported.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    multiprocessing.set_forkserver_preload(list(modules))
    try:
        multiprocessing.forkserver.ensure_running()
    except OSError as error:
        if error.errno is not None:
            raise
        raise UserError(f"the path {tempfile.gettempdir()} is too long for a socket: set a shorter TMPDIR") from None


@contextlib.contextmanager
def worker_processes(count: int, start: Callable[..., None], *arguments: object) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of processes, each of which first calls `start`.

    Raises:
        UserError: the system cannot create their semaphores.
        ChildProcessError: one of them was killed.
    """
    # A fork of this process would inherit its locks and threads. A fork of the server, which has imported the modules,
    # takes 15 ms. A spawned process imports them itself, which takes 150 to 250 ms.
    load_ahead(start.__module__)
    try:
        pool = ProcessPoolExecutor(count, multiprocessing.get_context("forkserver"), _start, (start, arguments))
    except (OSError, ImportError) as error:  # as Python reports semaphores that it cannot create
        raise UserError(
            f"cannot start worker processes ({error}): they need a writable /dev/shm with free space"
        ) from None
    try:
        yield pool
    except BrokenProcessPool:
        raise ChildProcessError("a worker process was killed, probably for lack of memory: lower --threads") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(start: Callable[..., None], arguments: tuple[object, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # only glibc has it
        # Keep freed memory for the next frame: otherwise every page of an image is faulted in again.
        mallopt(_M_MMAP_MAX, 0)  # M_MMAP_THRESHOLD, the alternative, is limited to 32 MiB in older versions
        mallopt(_M_TRIM_THRESHOLD, -1)
    start(*arguments)


def _end_with_parent() -> None:
    """Exit when the parent has exited: the worker of a killed parent would wait for work forever."""
    multiprocessing.parent_process().join()
    os._exit(1)
