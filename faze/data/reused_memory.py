"""Memory that is used again as soon as nobody holds it, and work cut into parts for threads.

A fresh block of some MiB is mapped, and filled with zeros page by page, anew for each batch: that takes longer than to
copy the batch into it. Here a block goes back to its owner when the last tensor over it, view or not, is gone.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _references(arrays: list[NDArray]) -> list[tuple[NDArray, int]]:
    return [(array, sys.getrefcount(array)) for array in arrays]


_UNUSED = _references([np.empty(0)])[0][1]  # of an array that only its list holds; versions of Python count differently


class Buffers:
    """Arrays handed out and taken back; two that are held at one time never share memory."""

    def __init__(self) -> None:
        self._arrays: list[NDArray] = []

    def take(self, shape: tuple[int, ...], dtype: DTypeLike) -> Tensor:
        """An uninitialised tensor on the host."""
        for array, references in _references(self._arrays):
            if references == _UNUSED and array.shape == shape and array.dtype == dtype:
                return torch.from_numpy(array)
        # Of other shapes only what is in use is kept, and that by its user.
        self._arrays = [array for array in self._arrays if array.shape == shape and array.dtype == dtype]
        self._arrays.append(np.empty(shape, dtype))
        return torch.from_numpy(self._arrays[-1])

    def __reduce__(self) -> tuple[type["Buffers"], tuple[()]]:
        return Buffers, ()


class Fresh(Buffers):
    """New memory each time; for tensors that are kept."""

    def take(self, shape: tuple[int, ...], dtype: DTypeLike) -> Tensor:
        """An uninitialised tensor on the host."""
        return torch.from_numpy(np.empty(shape, dtype))


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
