"""Work cut into parts for threads."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def spread(work: Callable[[int, int], None], count: int, threads: int, grain: int = 4) -> None:
    """Call work(first, stop) on parts that make up 0..count, at once on some threads.

    Args:
        work: leaves Python's lock alone most of the time.
        count: of items.
        threads: that share them; one is the caller's own.
        grain: fewest items that are worth a thread.
    """
    parts = min(threads, count // grain)
    if parts < 2:
        work(0, count)
        return
    bounds = [count * part // parts for part in range(parts + 1)]
    pool = _pool(parts - 1)
    others = [pool.submit(work, *bounds[part : part + 2]) for part in range(1, parts)]
    try:
        work(*bounds[:2])
    finally:  # nobody writes into the caller's memory any more once this returns
        for other in others:
            other.exception()
    for other in others:
        other.result()


def _pool(threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), threads)  # threads do not survive a fork
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(threads, "faze-rows")
    return _pools[key]
