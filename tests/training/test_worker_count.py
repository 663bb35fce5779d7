"""data.workers: auto chooses the smallest number that is as fast as any, the same one for all processes."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from faze.engine.parallel import World
from faze.engine.transfer import build_transfer
from faze.training import worker_count
from faze.training.worker_count import choose_workers, seconds_per_batch

CPU = torch.device("cpu")
ALONE = World(0, 1, CPU)


class Steps(Dataset):
    """A data set that records the items that were read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __getitem__(self, step: int) -> dict[str, torch.Tensor]:
        self.read.append(step)
        return {"step": torch.tensor(step)}


@pytest.mark.parametrize(
    ("times", "cores", "batches", "chosen"),
    [
        ({0: 1.05, 1: 1.0, 2: 1.12}, 64, 64, 0),
        ({0: 3.0, 1: 4.0, 2: 2.0, 4: 1.0, 8: 1.5}, 64, 64, 4),  # more than eight are not tried
        ({0: 3.0, 1: 1.12, 2: 1.0}, 2, 64, 2),
        ({0: 3.0, 1: 1.09, 2: 1.0}, 64, 2, 1),
    ],
)
def test_the_fewest_of_the_fastest_within_cores_and_shared_memory(times, cores, batches, chosen, monkeypatch):
    monkeypatch.setattr(worker_count, "usable_cores", lambda: cores)
    free = batches * 2 * 2 * 8  # of batches of one int64, each process reads two ahead
    monkeypatch.setattr(worker_count.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr(worker_count, "seconds_per_batch", lambda transfer, *_: times[transfer.workers])
    found, note = choose_workers(Steps(), ALONE, pin=False, cached=False)
    assert found == chosen and all(f"{count}: " in note for count in times)


def test_cached_strips_need_no_processes():
    source = Steps()
    assert choose_workers(source, ALONE, pin=False, cached=True)[0] == 0 and source.read == []


def test_workers_are_tried_for_real():
    source = Steps()
    assert 0 < seconds_per_batch(build_transfer(pin=False, workers=2, device=CPU), source, itertools.count()) < 1
    assert source.read == []  # others did
