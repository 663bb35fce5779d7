"""Share work among the threads of a process."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

GRAIN = 4  # fewest items for which a thread pays off


def spread(work: Callable[[int, int], None], count: int, threads: int) -> None:
    """Call work(first, stop) on parts of 0..count in parallel.

    Args:
        work: Function that rarely needs Python's lock.
        count: Number of items.
        threads: Number of threads, of which one is the caller's own.
    """
    parts = min(threads, count // GRAIN)
    if parts < 2:
        work(0, count)
        return
    bounds = [count * part // parts for part in range(parts + 1)]
    pool = _pool(os.getpid(), parts - 1)
    others = [pool.submit(work, *bounds[part : part + 2]) for part in range(1, parts)]
    try:
        work(*bounds[:2])
    finally:  # no thread may write into the caller's memory after this function returns
        wait(others)
    for other in others:
        other.result()


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of a process; threads do not survive a fork, so each process has its own."""
    return ThreadPoolExecutor(threads, "faze-rows")
