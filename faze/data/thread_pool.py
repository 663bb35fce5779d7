"""The threads of a process, among which work is shared."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

GRAIN = 4  # fewest items that are worth a thread


def spread(work: Callable[[int, int], None], count: int, threads: int) -> None:
    """Call work(first, stop) on parts of 0..count, several at once.

    Args:
        work: leaves Python's lock alone most of the time.
        count: of items.
        threads: that share them; one is the caller's own.
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
    finally:  # nobody writes into the caller's memory any more once this returns
        wait(others)
    for other in others:
        other.result()


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of a process; they do not survive a fork."""
    return ThreadPoolExecutor(threads, "faze-rows")
