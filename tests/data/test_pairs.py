"""Pairs of one person's strips, and the strips of some people from a file or from memory."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from stores import PersonStrips, write_strips
from trajectory import made_up_people

from faze.data import pairs
from faze.data.pairs import PairIndices, People, cache, cache_what_fits, open_people
from faze.data.strips import read_store

COUNTS = [5, 2, 9]


def people() -> People:
    """Create people whose pixels encode the person and the entry; so do the labels, to which the column is added."""
    pixels = [np.zeros((n, 2, 8, 3), np.uint8) for n in COUNTS]
    for p, strips in enumerate(pixels):
        strips += (16 * p + np.arange(len(strips), dtype=np.uint8))[:, None, None, None]
    labels = [strips[:, 0, 0, :1] + np.array([0, 0.25, 0.5, 0.75], np.float32) for strips in pixels]
    return made_up_people(pixels, labels)


def epoch(number: int, counts: list[int] = COUNTS, seed: int = 0) -> list[list[int]]:
    """Return the person, index a and index b of all pairs in an epoch."""
    batch = PairIndices(counts, seed, sum(counts))[number]
    return [batch[name].tolist() for name in ("person", "index_a", "index_b")]


@pytest.mark.parametrize("seed", [0, 2**32])
@pytest.mark.parametrize("counts", [[2], [12], [2, 2, 3, 12, 7]])
def test_each_entry_is_a_once_an_epoch_and_b_is_another_of_the_same_person(seed, counts):
    person, a, b = epoch(1, counts, seed)
    assert sorted(a) == list(range(sum(counts)))
    owner = np.repeat(np.arange(len(counts)), counts)
    assert person == owner[a].tolist() == owner[b].tolist()
    assert all(one != other for one, other in zip(a, b, strict=True))


def test_order_depends_on_seed_and_epoch():
    orders = [epoch(0), epoch(1), epoch(0, seed=1), epoch(1, seed=1)]  # neither only one of both, nor their sum
    for number in range(3):
        assert len({tuple(order[number]) for order in orders}) == 4
    assert orders[0] == epoch(0)


@pytest.mark.parametrize("batch", [8, 40])  # 40: more than two epochs
def test_pairs_do_not_depend_on_batch(batch):
    indices = PairIndices(COUNTS, 3, batch)
    found = [indices[step] for step in range(240 // batch)]
    for name, value in PairIndices(COUNTS, 3, 240)[0].items():
        assert torch.equal(torch.cat([each[name] for each in found]), value)


def test_batch_has_the_strips_and_labels_of_its_pairs():
    indices = PairIndices(COUNTS, 0, 16)[0]
    batch = people().gather_pairs(indices)
    entry = torch.tensor([16 * person + i for person, count in enumerate(COUNTS) for i in range(count)])
    for member in "ab":
        spelled = batch[f"image_{member}"][:, 0, 0, 0]
        assert torch.equal(spelled // 16, batch["person"])
        assert torch.equal(spelled.long(), entry[indices[f"index_{member}"]])
        assert torch.equal(batch[f"gaze_{member}"], spelled[:, None] + torch.tensor([0, 0.25]))
        assert torch.equal(batch[f"head_{member}"], spelled[:, None] + torch.tensor([0.5, 0.75]))


@pytest.mark.parametrize("size", [(64, 256), (32, 128)])
def test_strips_from_a_file_and_from_memory_are_the_same_in_any_order(size, tmp_path: Path):
    random = np.random.default_rng(0)
    shapes = zip("cab", COUNTS, strict=True)
    whom = [
        PersonStrips(name, "val", random.integers(0, 256, (n, 64, 256, 3), np.uint8), random.normal(size=(n, 4)))
        for name, n in shapes
    ]
    write_strips(tmp_path / "strips.h5", "made-up", whom)
    stored = open_people(read_store(tmp_path / "strips.h5"), size)
    cached, indices = cache(stored), torch.tensor([13, 0, 13, 7])
    if size == (64, 256):
        people = sorted(whom, key=lambda person: person.person_id)
        np.testing.assert_array_equal(cached.strips, np.concatenate([person.pixels for person in people]))
        np.testing.assert_allclose(cached.labels, np.concatenate([person.labels for person in people]))
    assert cached.cached and not stored.cached and torch.equal(cached.strips, stored.gather(torch.arange(16)))
    for found in (stored, cached, pickle.loads(pickle.dumps(stored))):
        assert torch.equal(found.gather(indices), cached.strips[indices])


@pytest.mark.parametrize("strips, fit", [(0, []), (4, [1]), (5, [0]), (9, [0, 1]), (15, [0, 1]), (16, [0, 1, 2])])
def test_memory_gib_is_the_budget_of_all_groups_together(strips, fit, monkeypatch):
    """A group that does not fit is left out, and the next one may fit. Half of the machine's memory can be used."""
    groups = [made_up_people([np.zeros((n, 2, 8, 3), np.uint8)], [np.zeros((n, 4))]) for n in (5, 4, 7)]
    budget = strips * 2 * 8 * 3
    monkeypatch.setattr(pairs, "cache", lambda group: None)
    for memory, gib, processes in (
        (10 * budget, budget / 2**30, 1),
        (10 * budget, 3 * budget / 2**30, 3),
        (2 * budget, 9.0, 1),
    ):
        monkeypatch.setattr(pairs, "memory_bytes", lambda memory=memory: memory)
        found = cache_what_fits(groups, gib, processes)
        assert [number for number, group in enumerate(found) if group is None] == fit
