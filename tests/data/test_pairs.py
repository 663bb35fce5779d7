"""Pairs: of one person, each entry once an epoch, the same for any number of processes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trajectory import made_up_people

from faze.base.errors import UserError
from faze.data.pairs import BatchShare, PairBatches, PairOrder, PeopleStrips, hold, hold_what_fits, load_people
from faze.data.store.strip_writing import PersonStrips, write_strips

COUNTS = [5, 2, 9]


class Untouched:
    """Rows that are not in a table yet."""

    def __init__(self, strips: torch.Tensor) -> None:
        self._strips = strips

    def read(self, places: torch.Tensor) -> torch.Tensor:
        return self._strips[places]


def people() -> PeopleStrips:
    """Whose pixels spell person and entry."""
    pixels = [np.full((n, 2, 8, 3), 0, np.uint8) for n in COUNTS]
    for p, strips in enumerate(pixels):
        for e, strip in enumerate(strips):
            strip[:] = 16 * p + e
    labels = [np.repeat(strips[:, 0, 0, :1], 4, axis=1).astype(np.float32) for strips in pixels]
    return made_up_people(pixels, labels)


@given(seed=st.integers(0, 2**32), counts=st.lists(st.integers(2, 12), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_each_entry_is_a_once_an_epoch_and_b_is_another_of_the_same_person(seed, counts):
    entries = sum(counts)
    person, a, b = PairOrder(counts, seed)[entries : 2 * entries]
    assert sorted(zip(person, a, strict=True)) == [(p, e) for p, n in enumerate(counts) for e in range(n)]
    assert (a != b).all()
    assert (b >= 0).all() and (b < np.asarray(counts)[person]).all()


def test_partners_are_uniform():
    order = PairOrder([4], seed=1)
    _, a, b = order[0:4000]
    shares = np.bincount(4 * a + b, minlength=16).reshape(4, 4) / 1000
    np.testing.assert_allclose(shares + np.eye(4) / 3, 1 / 3, atol=0.06)


def test_order_depends_on_seed_and_epoch():
    entries = sum(COUNTS)
    first, second = PairOrder(COUNTS, 0)[0:entries], PairOrder(COUNTS, 0)[entries : 2 * entries]
    other = PairOrder(COUNTS, 1)[0:entries]
    assert not np.array_equal(first[0], second[0])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("step", [0, 1, 5])
def test_shares_of_processes_make_up_the_same_global_batch(processes, step):
    whole = PairBatches(people(), BatchShare(3, 8))[step]
    shares = [PairBatches(people(), BatchShare(3, 8, r, processes))[step] for r in range(processes)]
    for name, value in whole.items():
        assert torch.equal(torch.cat([share[name] for share in shares]), value)


def test_batch_holds_the_strips_and_labels_of_its_pairs():
    batch = PairBatches(people(), BatchShare(0, 16))[0]
    for member in "ab":
        spelled = batch[f"image_{member}"][:, 0, 0, 0]
        assert torch.equal(spelled // 16, batch["person"])
        assert torch.equal(batch[f"gaze_{member}"][:, 0], spelled.float())
    assert (batch["image_a"] != batch["image_b"]).flatten(1).all()


def test_people_who_do_not_fit_in_memory_are_read_when_needed(tmp_path):
    rng = np.random.default_rng(0)
    strips = [
        PersonStrips(name, "train", ["f"] * n, rng.integers(0, 256, (n, 64, 256, 3), dtype=np.uint8), np.ones((n, 4)))
        for name, n in (("a", 3), ("b", 1), ("c", 4))
    ]
    path = tmp_path / "gazecapture.h5"
    write_strips(path, "gazecapture", strips)
    stored, left_out = load_people(path, "train", (32, 128), min_entries=2)
    held = hold(stored)
    assert (held.names, left_out) == (["a", "c"], ["b"])
    assert held.held and not stored.held
    for step in range(3):
        batches = [PairBatches(people, BatchShare(1, 4))[step] for people in (held, stored)]
        assert all(torch.equal(batches[0][name], batches[1][name]) for name in batches[0])


def test_nobody_left_is_one_sentence(tmp_path):
    pixels = np.zeros((1, 64, 256, 3), np.uint8)
    write_strips(tmp_path / "x.h5", "x", [PersonStrips("a", "train", ["f"], pixels, np.ones((1, 4), np.float32))])
    with pytest.raises(ValueError, match=r"no person of split 'train' has 2 entries \(data\.min_entries\); 1 have"):
        load_people(tmp_path / "x.h5", "train", (32, 128), min_entries=2)


def test_a_missing_split_is_said_to_be_missing(tmp_path):
    """Seen red: the sentence blamed data.min_entries, of which the split val knows nothing."""
    pixels = np.zeros((1, 64, 256, 3), np.uint8)
    write_strips(tmp_path / "x.h5", "x", [PersonStrips("a", "train", ["f"], pixels, np.ones((1, 4), np.float32))])
    with pytest.raises(ValueError, match=r"holds no person of split 'val'; .*preprocess\.gazecapture_split") as error:
        load_people(tmp_path / "x.h5", "val", (32, 128), min_entries=1)
    assert "min_entries" not in str(error.value)


def test_strips_that_cannot_be_shrunk_are_refused_before_any_is_read(tmp_path):
    """Seen red: found in a process that reads ahead, the sentence came with that process's traceback in it."""
    pixels = np.zeros((2, 64, 256, 3), np.uint8)
    write_strips(tmp_path / "x.h5", "x", [PersonStrips("a", "train", ["f"] * 2, pixels, np.ones((2, 4), np.float32))])
    with pytest.raises(UserError, match=r"strips of 64 x 256 px cannot be shrunk to model\.image_height_px 32 x"):
        load_people(tmp_path / "x.h5", "train", (32, 96), min_entries=2)


@pytest.mark.parametrize(("strips", "held"), [(0, []), (5, [0]), (9, [0, 1]), (16, [0, 1, 2])])
def test_memory_gib_is_the_budget_of_all_groups_together(strips, held):
    """Seen red: every group was given the whole budget."""
    counts = (5, 4, 7)
    rows = [Untouched(torch.zeros(n, 2, 8, 3, dtype=torch.uint8)) for n in counts]
    labels = [[np.zeros((n, 4), np.float32)] for n in counts]
    groups = [PeopleStrips(["a"], *each, (2, 8)) for each in zip(labels, rows, strict=True)]
    found = hold_what_fits(groups, strips * 2 * 8 * 3 / 2**30)
    assert [number for number, people in enumerate(found) if people.held] == held
