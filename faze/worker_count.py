"""How many processes should read ahead: tried at the start of a training. `data.workers: auto`."""

import itertools
import os
import time
from collections.abc import Iterator

import torch
from torch.utils.data import Dataset

from faze.engine.parallel import World
from faze.engine.switches import Switch
from faze.engine.transfer import Transfer, build_transfer

BATCHES = 8  # timed with each count; more with more processes, each of which has read ahead by then
WITHIN = 1.1  # of the fastest's time: as fast, as far as so few batches can tell


def choose_workers(source: Dataset, world: World, *, pin: bool, held: bool) -> tuple[int, Switch]:
    """Try some counts on the first batches of a training, and say what was found.

    All processes try at the same time, as they will read, and add up their times, so that all choose the same. Each
    count reads other batches, so that none finds what another has brought into memory.

    Args:
        source: item `step` is what this process reads for that step.
        world: this process among those that train together.
        pin: batches are put into page-locked memory.
        held: strips lie in memory, where nobody has to wait for them.
    """
    if held:
        return 0, Switch("workers", "auto", "0: the strips are held in memory", "")
    steps, counts = itertools.count(), list(_counts(cores_of(world)))
    seconds = torch.zeros(len(counts), dtype=torch.float64, device=world.device)
    for place, count in enumerate(counts):
        transfer = build_transfer(pin=pin, prefetch=False, workers=count, device=world.device)
        seconds[place] = seconds_per_batch(transfer, source, steps)
    ms = {count: 1e3 * float(total) / world.size for count, total in zip(counts, world.sum(seconds), strict=True)}
    chosen = fewest_of_the_fastest(ms)
    tried = ", ".join(f"{count}: {time_ms:.3g} ms" for count, time_ms in ms.items())
    return chosen, Switch("workers", "auto", f"{chosen}; a batch with {tried}", "")


def fewest_of_the_fastest(times: dict[int, float]) -> int:
    """The smallest count that is as fast as the fastest."""
    return min(count for count, taken in times.items() if taken <= WITHIN * min(times.values()))


def seconds_per_batch(transfer: Transfer, source: Dataset, steps: Iterator[int]) -> float:
    """Mean over some of the next steps' batches, once what was read ahead at the start is used up."""
    ahead = 1 + 2 * transfer.workers  # torch lets each process read two batches ahead
    timed = max(BATCHES, 2 * ahead)
    batches = transfer.read(source, itertools.islice(steps, ahead + timed))
    for _ in range(ahead):
        next(batches)
    began = time.perf_counter()
    for _ in batches:
        pass
    return (time.perf_counter() - began) / timed


def cores_of(world: World) -> int:
    """Of this machine, for each of the processes on it."""
    return max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", world.size)))


def _counts(cores: int) -> Iterator[int]:
    """0, 1, 2, 4 ... up to the cores, and these."""
    yield 0
    count = 1
    while count < cores:
        yield count
        count *= 2
    yield cores
