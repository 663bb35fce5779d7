"""Pairs of one person: each entry occurs once per epoch, and the pairs are the same for any number of processes."""

import numpy as np
import pytest
import torch
from trajectory import made_up_people

from faze.base.errors import UserError
from faze.data import pairs
from faze.data.pairs import BatchShare, PairIndices, PeopleStrips, cache_what_fits, load_people
from faze.data.store.strips import PersonStrips, StripStore, write_strips

COUNTS = [5, 2, 9]


class Uncached:
    """A stand-in for rows that are not cached in a table."""

    def __init__(self, strips: torch.Tensor) -> None:
        self._strips = strips

    def gather(self, indices: torch.Tensor) -> torch.Tensor:
        return self._strips[indices]


def people() -> PeopleStrips:
    """Create people whose pixels encode the person and the entry; so do the labels, to which the column is added."""
    pixels = [np.full((n, 2, 8, 3), 0, np.uint8) for n in COUNTS]
    for p, strips in enumerate(pixels):
        for e, strip in enumerate(strips):
            strip[:] = 16 * p + e
    labels = [strips[:, 0, 0, :1] + np.array([0, 0.25, 0.5, 0.75], np.float32) for strips in pixels]
    return made_up_people(pixels, labels)


def epoch(number: int, counts: list[int] = COUNTS, seed: int = 0) -> list[list[int]]:
    """Return the person, index a and index b of all pairs in an epoch."""
    batch = PairIndices(counts, BatchShare(seed, sum(counts)))[number]
    return [batch[name].tolist() for name in ("person", "index_a", "index_b")]


@pytest.mark.parametrize("seed", [0, 1, 2**32])
@pytest.mark.parametrize("counts", [[2], [12], [5, 2, 9], [2, 2, 3, 12, 7]])
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


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("step", [0, 1, 5])
def test_shares_of_processes_make_up_the_same_global_batch(processes, step):
    whole = PairIndices(COUNTS, BatchShare(3, 8))[step]
    shares = [PairIndices(COUNTS, BatchShare(3, 8, r, processes))[step] for r in range(processes)]
    for name, value in whole.items():
        assert torch.equal(torch.cat([share[name] for share in shares]), value)


def test_batch_has_the_strips_and_labels_of_its_pairs():
    indices = PairIndices(COUNTS, BatchShare(0, 16))[0]
    batch = people().gather_pairs(indices)
    entry = torch.tensor([16 * person + i for person, count in enumerate(COUNTS) for i in range(count)])
    for member in "ab":
        spelled = batch[f"image_{member}"][:, 0, 0, 0]
        assert torch.equal(spelled // 16, batch["person"])
        assert torch.equal(spelled.long(), entry[indices[f"index_{member}"]])
        assert torch.equal(batch[f"gaze_{member}"], spelled[:, None] + torch.tensor([0, 0.25]))
        assert torch.equal(batch[f"head_{member}"], spelled[:, None] + torch.tensor([0.5, 0.75]))
    assert (batch["image_a"] != batch["image_b"]).flatten(1).all()


@pytest.mark.parametrize(
    ("split", "size", "key_words"),
    [
        ("train", (32, 128), r"split 'train' has 2 entries \(data\.min_entries\); 1 "),
        ("val", (32, 128), r"no person in split 'val': .*`splits` of this data set"),
        ("test", (32, 96), r"64 x 256 px .*model\.image_height_px 32 x"),
    ],
)
def test_strips_that_cannot_be_trained_on_are_refused_before_any_is_read(split, size, key_words, tmp_path, monkeypatch):
    """Regression: min_entries was blamed for a missing split; a wrong size ended in a traceback from a loader
    process."""
    pixels, labels = np.zeros((2, 64, 256, 3), np.uint8), np.ones((2, 4), np.float32)
    few, enough = (PersonStrips(s, s, ["f"] * n, pixels[:n], labels[:n]) for s, n in (("train", 1), ("test", 2)))
    write_strips(tmp_path / "x.h5", "x", [few, enough])
    for name in ("pixels", "pieces"):
        monkeypatch.delattr(StripStore, name)
    with pytest.raises(UserError, match=key_words):
        load_people(tmp_path / "x.h5", split, size, min_entries=2)


@pytest.mark.parametrize(
    ("strips", "cached"),
    [(0, []), (4, [1]), (5, [0]), (8, [0]), (9, [0, 1]), (12, [0, 2]), (15, [0, 1]), (16, [0, 1, 2])],
)
def test_memory_gib_is_the_budget_of_all_groups_together(strips, cached, monkeypatch):
    """A group that does not fit is left out, and the next one may fit. Half of the machine's memory can be used.

    Regression: every group used the whole budget.
    """
    counts = (5, 4, 7) if strips != 12 else (5, 8, 7)
    rows = [Uncached(torch.zeros(n, 2, 8, 3, dtype=torch.uint8)) for n in counts]
    labels = [[np.zeros((n, 4), np.float32)] for n in counts]
    groups = [PeopleStrips(["a"], *each, (2, 8)) for each in zip(labels, rows, strict=True)]
    budget = strips * 2 * 8 * 3
    for memory, gib, processes in (
        (10 * budget, budget / 2**30, 1),
        (10 * budget, 3 * budget / 2**30, 3),
        (2 * budget, 9.0, 1),
    ):
        monkeypatch.setattr(pairs, "memory_bytes", lambda memory=memory: memory)
        found = cache_what_fits(groups, gib, processes)
        assert [number for number, people in enumerate(found) if people.cached] == cached
