"""data.workers: auto chooses the smallest number that is as fast as any, the same one for all processes."""

import dataclasses
import itertools
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from faze.engine.parallel import World
from faze.engine.transfer import build_transfer
from faze.training import worker_count
from faze.training.worker_count import choose_workers, fewest_of_the_fastest, seconds_per_batch

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("times", "chosen"),
    [
        ({0: 1.0, 1: 1.0, 2: 1.0}, 0),
        ({0: 1.05, 1: 1.0, 2: 1.02}, 0),
        ({0: 1.12, 1: 1.09, 2: 1.0}, 1),
        ({0: 1.1, 1: 1.0}, 0),
        ({0: 3.0, 1: 1.0, 2: 1.0}, 1),
        ({0: 3.0, 1: 2.0, 2: 1.0, 4: 0.95}, 2),
        ({0: 3.0, 1: 2.0, 2: 1.0, 4: 0.5}, 4),
    ],
)
def test_the_fewest_of_the_fastest(times, chosen):
    assert fewest_of_the_fastest(times) == chosen


class Steps(Dataset):
    """A data set that records the items that were read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __getitem__(self, step: int) -> dict[str, torch.Tensor]:
        self.read.append(step)
        return {"step": torch.tensor(step)}


def test_each_count_reads_other_batches(monkeypatch):
    monkeypatch.setattr(worker_count, "_counts", lambda cores: [0, 0, 0])
    source = Steps()
    choose_workers(source, World(0, 1, CPU), pin=False, cached=False)
    first, *read = source.read  # to see how large a batch is
    assert first == 0 and read == list(range(3 * 9))  # eight of nine are timed


def test_workers_are_tried_for_real():
    transfer = build_transfer(pin=False, workers=2, device=CPU)
    source = Steps()
    assert 0 < seconds_per_batch(transfer, source, itertools.count()) < 1
    assert source.read == []  # others did


@dataclasses.dataclass(frozen=True)
class OtherSeesOpposite(World):
    """A world in which two workers are far faster for the other process."""

    others: list[float] = dataclasses.field(default_factory=lambda: [10.0, 8.0, 1.0])

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.others.pop(0)

    def least(self, value: int) -> int:
        return min(value, 2)


def test_all_processes_choose_by_all_times(monkeypatch):
    monkeypatch.setattr(worker_count, "_counts", lambda cores: [0, 1, 2])
    monkeypatch.setattr(worker_count, "seconds_per_batch", lambda transfer, *_: 0.1 * (1 + transfer.workers))
    alone = choose_workers(Steps(), World(0, 1, CPU), pin=False, cached=False)
    both = choose_workers(Steps(), OtherSeesOpposite(1, 2, CPU), pin=False, cached=False)
    assert (alone[0], both[0]) == (0, 2)
    assert all(words in alone[1] for words in ("data.workers auto: 0", "0: 100 ms", "1: 200 ms", "2: 300 ms"))
    means = ("0: 5.05e+03 ms", "1: 4.1e+03 ms", "2: 650 ms")  # of both processes
    assert all(words in both[1] for words in means)


def test_strips_in_memory_need_no_trial():
    source = Steps()
    chosen, note = choose_workers(source, World(0, 1, CPU), pin=False, cached=True)
    assert (chosen, source.read) == (0, []) and "cached" in note


@dataclasses.dataclass(frozen=True)
class OtherReadsFromTheFile(World):
    """A world in which the other process is equally fast, but its strips do not fit into memory."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return 2 * values

    def least(self, value: int) -> int:
        return min(value, 0)


def test_where_one_process_reads_from_the_file_all_try(monkeypatch):
    """Regression: each process checked only its own strips, so one waited forever for the other's times."""
    monkeypatch.setattr(worker_count, "_counts", lambda most: [0, 1])
    monkeypatch.setattr(worker_count, "seconds_per_batch", lambda transfer, *_: 0.2 - 0.1 * transfer.workers)
    assert choose_workers(Steps(), OtherReadsFromTheFile(0, 2, CPU), pin=False, cached=True)[0] == 1


@pytest.mark.parametrize(
    ("cores", "counts"), [(0, [0]), (1, [0, 1]), (2, [0, 1, 2]), (6, [0, 1, 2, 4, 6]), (8, [0, 1, 2, 4, 8])]
)
def test_counts_up_to_the_cores(cores, counts):
    assert list(worker_count._counts(cores)) == counts


def test_cores_are_shared_by_the_processes_of_a_machine(monkeypatch):
    monkeypatch.setattr(worker_count, "usable_cores", lambda: 15)
    assert worker_count.cores_of(World(0, 2, CPU)) == 7
    assert worker_count.cores_of(World(0, 16, CPU)) == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")  # of eight on two machines
    assert worker_count.cores_of(World(0, 8, CPU)) == 3


def test_more_are_not_tried_once_more_are_slower(monkeypatch):
    monkeypatch.setattr(worker_count, "cores_of", lambda world: 64)
    monkeypatch.setattr(worker_count, "_most_in_shared_memory", lambda *_: 64)
    times = {0: 3.0, 1: 4.0, 2: 2.0, 4: 1.0, 8: 1.5}  # more than eight: a KeyError
    monkeypatch.setattr(worker_count, "seconds_per_batch", lambda transfer, *_: times[transfer.workers])
    assert choose_workers(Steps(), World(0, 1, CPU), pin=False, cached=False)[0] == 4
    times[3] = 1.9
    for cores, in_memory, chosen in ((64, 3, 2), (1, 64, 0)):  # the smaller one is the limit
        monkeypatch.setattr(worker_count, "cores_of", lambda world, cores=cores: cores)
        monkeypatch.setattr(worker_count, "_most_in_shared_memory", lambda *_, most=in_memory: most)
        found, note = choose_workers(Steps(), World(0, 1, CPU), pin=False, cached=False)
        assert found == chosen and f"{min(cores, in_memory)}: " in note and "4: " not in note


def test_batches_that_are_read_ahead_fit_into_shared_memory(monkeypatch, tmp_path):
    """Regression: the limit considered only the cores, not the shared memory."""
    monkeypatch.setattr(worker_count, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(worker_count.shutil, "disk_usage", lambda _: SimpleNamespace(free=6 * 2 * 8))
    assert worker_count._most_in_shared_memory(Steps(), World(0, 1, CPU)) == 3
    assert worker_count._most_in_shared_memory(Steps(), World(0, 2, CPU)) == 1


def test_what_is_timed_is_a_batch_after_those_that_were_read_ahead(monkeypatch):
    """The clock counts batches read. Regression: all batches were timed, including those prefetched at the start."""
    source, transfer = Steps(), build_transfer(pin=False, workers=0, device=CPU)
    monkeypatch.setattr(worker_count.time, "perf_counter", lambda: 3.0 * len(source.read))
    assert seconds_per_batch(transfer, source, itertools.count()) == 3.0
    assert len(source.read) == 1 + transfer.ahead + max(worker_count.BATCHES, 2 * (1 + transfer.ahead))
