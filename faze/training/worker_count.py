"""How many processes should read ahead: tried at the start of a training. `data.workers: auto`."""

import itertools
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import Dataset

from faze.engine.parallel import World
from faze.engine.transfer import Transfer, build_transfer

BATCHES = 8  # timed with each count; more with more processes, each of which has read ahead by then
WITHIN = 1.1  # of the fastest's time: as fast, as far as so few batches can tell
SHARED_MEMORY = Path("/dev/shm")  # through which torch's loader processes hand over their batches
SHARED_SHARE = 0.5  # of what is free there


def choose_workers(source: Dataset, world: World, *, pin: bool, held: bool) -> tuple[int, str]:
    """Try more and more processes on a training's first batches, until more are slower; say the count, and why.

    All processes try at the same time, as they will read, and add up their times, so that all choose the same. Each
    count reads other batches, so that none finds what another has brought into memory.

    Args:
        source: item `step` is what this process reads for that step.
        world: this process among those that train together.
        pin: batches are put into page-locked memory.
        held: strips lie in memory, where nobody has to wait for them.
    """
    if world.least(held):  # for all processes: those that read from the file choose together
        return 0, "data.workers auto: 0, since the strips are held in memory"
    steps, ms = itertools.count(), {}
    for count in _counts(world.least(min(cores_of(world), _most_in_shared_memory(source, world)))):
        transfer = build_transfer(pin=pin, workers=count, device=world.device)
        seconds = torch.tensor([seconds_per_batch(transfer, source, steps)], dtype=torch.float64, device=world.device)
        ms[count] = 1e3 * float(world.sum(seconds)) / world.size
        if ms[count] > WITHIN * min(ms.values()) and count > 1:  # one alone may be slower than none
            break
    chosen = fewest_of_the_fastest(ms)
    tried = ", ".join(f"{count}: {time_ms:.3g} ms" for count, time_ms in ms.items())
    return chosen, f"data.workers auto: {chosen}; a batch with {tried}"


def fewest_of_the_fastest(times: dict[int, float]) -> int:
    """Choose the smallest count that is as fast as the fastest."""
    return min(count for count, taken in times.items() if taken <= WITHIN * min(times.values()))


def seconds_per_batch(transfer: Transfer, source: Dataset, steps: Iterator[int]) -> float:
    """Time some of the next steps' batches, after those that were read ahead at the start."""
    ahead = 1 + transfer.ahead
    timed = max(BATCHES, 2 * ahead)
    batches = transfer.read(source, itertools.islice(steps, ahead + timed))
    for _ in range(ahead):
        next(batches)
    began = time.perf_counter()
    for _ in batches:
        pass
    return (time.perf_counter() - began) / timed


def cores_of(world: World) -> int:
    """Count the cores that each process of the training may use on this machine."""
    return max(1, len(os.sched_getaffinity(0)) // world.processes_here)


def _most_in_shared_memory(source: Dataset, world: World) -> int:
    """Count the processes that may read two batches ahead each before shared memory is full."""
    if not SHARED_MEMORY.is_dir():
        return sys.maxsize
    size = sum(tensor.nbytes for tensor in source[0].values())
    free = SHARED_SHARE * shutil.disk_usage(SHARED_MEMORY).free / world.processes_here
    return int(free // (2 * size))


def _counts(most: int) -> list[int]:
    """List 0, 1, 2, 4 ... up to the most, and that; 0 alone where no process can be had."""
    return sorted({0, *(2**power for power in range(most.bit_length())), most})
