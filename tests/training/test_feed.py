"""The same pairs, bit for bit: from file or memory, with any number of loader processes and ranks."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from batches import assert_same
from stores import PersonStrips, write_strips
from trajectory import CONFIG, MODEL, setup, tier
from worlds import Apart

from faze.config.parameters import Augment
from faze.data.network_input import shrink, to_network_torch
from faze.data.pairs import Batch, PairIndices, People, cache_what_fits, open_people
from faze.data.strips import read_store
from faze.training.augmentation import build_augmentation
from faze.training.feed import Feed, build_feed

CPU = torch.device("cpu")
COUNTS = [5, 9, 6, 8]
STEPS = 10  # of 8 pairs: more than two epochs of 28
CHANGES = Augment(flip=True, jitter_px=5.0, zoom=0.1, color_scale=0.5)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(7)
    path = tmp_path_factory.mktemp("store") / "strips.h5"
    persons = [
        PersonStrips(
            f"p{i}",
            "train",
            random.integers(0, 256, (n, 64, 256, 3), dtype=np.uint8),
            random.normal(0, 0.2, (n, 4)).astype(np.float32),
        )
        for i, n in enumerate(COUNTS)
    ]
    write_strips(path, "made-up", persons)
    return path


def people(path: Path, memory_gib: float) -> People:
    found = open_people(read_store(path), (MODEL.image_height_px, MODEL.image_width_px), split="train", min_entries=2)
    return cache_what_fits([found], memory_gib)[0]


def feed(whom: People, *, rank: int = 0, processes: int = 1, changes: Augment | None = None, **how) -> Feed:
    switches = {name: how.pop(name) for name in ("resident", "pin") if name in how}
    augmentation = build_augmentation(changes, CONFIG.preprocess.camera(), MODEL, len(COUNTS)) if changes else None
    world = Apart(rank, processes, CPU, *how.pop("least", ()))
    return build_feed(whom, setup(tier("baseline", **switches), world), augmentation=augmentation, **how)


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
    {"memory_gib": 0.0, "workers": "auto"},
    {"memory_gib": 1.0},
    {"memory_gib": 1.0, "resident": True},
]


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_every_way_gives_the_pairs_of_the_order_and_batches_that_never_alias(path, how):
    """All batches are kept at the same time, so that memory that is reused too early would be noticed."""
    found = feed(people(path, how["memory_gib"]), **{k: v for k, v in how.items() if k != "memory_gib"})
    batches = list(found(range(STEPS)))
    assert_same(batches, expected(path))
    images = [batch[f"image_{member}"] for batch in batches for member in "ab"]
    assert len({image.untyped_storage().data_ptr() for image in images}) == 2 * STEPS
    for name in batches[0]:
        assert len({batch[name].untyped_storage().data_ptr() for batch in batches}) == STEPS, name


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("how", WAYS[:2] + WAYS[4:], ids=str)
@pytest.mark.parametrize("changes", [None, CHANGES], ids=["plain", "augmented"])
def test_shares_are_equal_and_make_up_the_global_batch(path, processes, how, changes):
    """No process waits for a rank with more pairs, and no pair depends on the number of ranks or loader processes."""
    whom, how = people(path, how["memory_gib"]), {k: v for k, v in how.items() if k != "memory_gib"}
    whole = list(feed(people(path, 1.0), changes=changes)(range(4)))
    shares = [
        list(feed(whom, rank=rank, processes=processes, changes=changes, **how)(range(4))) for rank in range(processes)
    ]
    assert {len(batch["person"]) for share in shares for batch in share} == {8 // processes}
    for step, wanted in enumerate(whole):
        found = {name: torch.cat([share[step][name] for share in shares]) for name in wanted}
        for name, value in wanted.items():
            if changes and name.startswith("image"):  # the warp's interpolation differs in the last bit by batch size
                assert (found[name] - value).abs().mean() < 1e-3
            else:
                torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6 if changes else 0)


def test_strips_are_on_all_devices_or_on_none(path: Path) -> None:
    """Regression: each process decided by itself whether its strips are resident."""
    whom = people(path, 1.0)
    assert {s.switch: s.active for s in feed(whom, resident=True, least=[1]).switches}["resident"]
    lonely = feed(whom, resident=True, least=[0], processes=2)
    reasons = {switch.switch: switch.reason for switch in lonely.switches}
    assert "another process" in reasons["resident"]
    assert "image_a" in lonely.source[0]
