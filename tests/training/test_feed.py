"""The same pairs, bit for bit: from file or memory, with any number of loader processes and ranks."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from batches import assert_same
from stores import PersonStrips, write_strips
from trajectory import setup, tier

from faze.config.parameters import Augment
from faze.data.network_input import shrink, to_network_torch
from faze.data.pairs import Batch, PairIndices, cache_what_fits, open_people
from faze.data.strips import read_store
from faze.engine.parallel import World
from faze.engine.transfer import Feed

COUNTS = [5, 9, 6, 8]
STEPS = 10  # of 8 pairs: more than two epochs of 28
OFF, ON = Augment(flip=False, color_scale=0.0), Augment(flip=True, color_scale=0.5)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(7)
    path = tmp_path_factory.mktemp("store") / "strips.h5"
    persons = []
    for number, count in enumerate(COUNTS):
        pixels = random.integers(0, 256, (count, 64, 256, 3), dtype=np.uint8)
        labels = random.normal(0, 0.2, (count, 4)).astype(np.float32)
        persons.append(PersonStrips(f"p{number}", "train", pixels, labels))
    write_strips(path, "made-up", persons)
    return path


def feed(
    path: Path, memory_gib: float, rank: int = 0, processes: int = 1, *, workers: int = 0, augment=OFF, **switches
) -> Feed:
    training = setup(tier("baseline", **switches), World(rank, processes, torch.device("cpu")), augment=augment)
    workload = training.workload
    people = open_people(read_store(path), (32, 128), split="train", min_entries=2)
    [workload.people] = cache_what_fits([people], memory_gib)
    if switches.get("resident"):
        assert workload.keep_resident(True, torch.device("cpu")).active
    return Feed(training.feed.source, training.feed.to_device, workers, pin=False)


def expected(path: Path) -> list[Batch]:
    """Read pair by pair from the file, without any optimisation."""
    indices, batches = PairIndices(COUNTS, 3, 8), []
    with h5py.File(path) as file:
        pixels, labels = (np.concatenate([file[name][key] for name in file]) for key in ("pixels", "labels"))
    for step in range(STEPS):
        batch = {"person": indices[step]["person"]}
        for member in "ab":
            entries = indices[step][f"index_{member}"].numpy()
            batch[f"image_{member}"] = to_network_torch(shrink(torch.from_numpy(pixels[entries]), 32, 128))
            batch[f"gaze_{member}"], batch[f"head_{member}"] = torch.from_numpy(labels[entries]).chunk(2, dim=1)
        batches.append(batch)
    return batches


WAYS = [
    {"memory_gib": 0.0},
    {"memory_gib": 0.0, "workers": 2},
    {"memory_gib": 1.0},
    {"memory_gib": 1.0, "resident": True},
]


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_every_way_gives_the_pairs_of_the_order_and_batches_that_never_alias(path, how):
    """All batches are kept at the same time, so that memory that is reused too early would be noticed."""
    found, wanted = feed(path, **how), expected(path)
    batches = list(found(range(STEPS)))
    assert_same(batches, wanted)
    for name in batches[0]:
        assert len({batch[name].untyped_storage().data_ptr() for batch in batches}) == STEPS, name
    assert_same(list(found(range(4, STEPS))), wanted[4:])  # a resumed training goes on at any step


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("how", WAYS[1::2], ids=str)
@pytest.mark.parametrize("augment", [OFF, ON], ids=["plain", "augmented"])
def test_shares_are_equal_and_make_up_the_global_batch(path, processes, how, augment):
    """No process waits for a rank with more pairs, and no pair depends on the number of ranks or loader processes."""
    shares = [list(feed(path, rank=r, processes=processes, augment=augment, **how)(range(3))) for r in range(processes)]
    for step, wanted in enumerate(feed(path, 1.0, augment=augment)(range(3))):
        assert all(len(share[step]["person"]) == 8 // processes for share in shares)
        for name, value in wanted.items():
            assert torch.equal(torch.cat([share[step][name] for share in shares]), value), name
