"""Number of loader processes, measured at the start of training: `data.workers: auto`."""

import itertools
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import Dataset

from faze.base.machine import usable_cores
from faze.engine.parallel import World
from faze.engine.transfer import Transfer, build_transfer

BATCHES = 8  # minimum number of timed batches; more with more processes, each of which prefetches
WITHIN = 1.1  # times within this factor of the fastest are considered equal, since few batches are timed
SHARED_MEMORY = Path("/dev/shm")  # memory in which torch's loader processes store batches
SHARED_SHARE = 0.5  # of the free shared memory that they may use


def choose_workers(source: Dataset, world: World, *, pin: bool, cached: bool) -> tuple[int, str]:
    """Time the first batches with an increasing number of loader processes, until more processes are slower.

    All training processes measure at the same time, because they will read at the same time. They sum their times, so
    that all choose the same number. Each number of loader processes is timed with different batches, so that none
    benefits from pages that were cached for another.

    Args:
        source: item `step` is the batch that this process reads for that step.
        world: this process's position among those that train together.
        pin: whether batches are put into page-locked memory.
        cached: whether this process's strips are in memory, so that reading them needs no processes.

    Returns:
        The number of loader processes, and a sentence with the measured times.
    """
    if world.least(cached):  # of all processes: those that read from the file measure together
        return 0, "data.workers auto: 0, since the strips are cached in memory"
    steps, ms = itertools.count(), {}
    for count in _counts(world.least(min(cores_of(world), _most_in_shared_memory(source, world)))):
        transfer = build_transfer(pin=pin, workers=count, device=world.device)
        seconds = torch.tensor([seconds_per_batch(transfer, source, steps)], dtype=torch.float64, device=world.device)
        ms[count] = 1e3 * float(world.sum(seconds)) / world.size
        if ms[count] > WITHIN * min(ms.values()) and count > 1:  # one process may be slower than none
            break
    chosen = fewest_of_the_fastest(ms)
    times = ", ".join(f"{count}: {time_ms:.3g} ms" for count, time_ms in ms.items())
    return chosen, f"data.workers auto: {chosen}; time per batch with {times}"


def fewest_of_the_fastest(times: dict[int, float]) -> int:
    """Return the smallest number of processes whose time is at most WITHIN times the fastest."""
    return min(count for count, taken in times.items() if taken <= WITHIN * min(times.values()))


def seconds_per_batch(transfer: Transfer, source: Dataset, steps: Iterator[int]) -> float:
    """Return the mean loading time of some batches, after those that were prefetched at the start."""
    ahead = 1 + transfer.ahead
    timed = max(BATCHES, 2 * ahead)
    batches = transfer.load(source, itertools.islice(steps, ahead + timed))
    for _ in range(ahead):
        next(batches)
    began = time.perf_counter()
    for _ in batches:
        pass
    return (time.perf_counter() - began) / timed


def cores_of(world: World) -> int:
    """Return the number of cores that each training process may use on this machine."""
    return max(1, usable_cores() // world.processes_here)


def _most_in_shared_memory(source: Dataset, world: World) -> int:
    """Return how many processes can prefetch two batches each before shared memory is full."""
    if not SHARED_MEMORY.is_dir():
        return sys.maxsize
    size = sum(tensor.nbytes for tensor in source[0].values())
    free = SHARED_SHARE * shutil.disk_usage(SHARED_MEMORY).free / world.processes_here
    return int(free // (2 * size))


def _counts(most: int) -> list[int]:
    """Return the worker counts to try: 0, 1, 2, 4 ... up to and including `most`; [0] if no process can be started."""
    return sorted({0, *(2**power for power in range(most.bit_length())), most})
