"""Pairs loaded per second, compared with the released way of loading, interleaved in one run on a CPU.

    python benchmarks/loader.py [--cache warm cold] [--blocks 10] [--workers 2]

store       each side reads strips of random pairs from its own file and delivers batches of uint8 (B, H, W, 3)
equalised   the same, delivered as network input: equalised, float32 (B, 3, H, W) in [-1, 1]
memory      our side gathers uint8 from strips in memory; the released side cannot do this and reads its file

The other side is benchmarks/baselines/loader.py with worker processes; our side is the feed that training uses, with as
many threads. The feed reuses a batch's memory once the caller releases the batch; a caller that keeps batches gets new
memory. A check ensures that both sides contain the same strips. Cold: before each block, the kernel drops both files
from its page cache.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import cv2
import numpy as np
import torch
from baselines import loader as baseline
from numpy.typing import NDArray

from faze.benchmark.rows import ratio_interval
from faze.config.check import build
from faze.config.parameters import Loss, Model, Train
from faze.config.tiers import resolve_tier
from faze.config.yaml_files import DEFAULTS, read_yaml
from faze.data.pairs import BatchShare, PairIndices, cache, load_people
from faze.data.store.strips import PersonStrips, write_strips
from faze.engine import machine
from faze.engine.parallel import World
from faze.training.feed import Feed, HostBatches, TrainingSetup, build_feed

PEOPLE, ENTRIES, HEIGHT, WIDTH = 10, 500, 64, 256
ROWS = ("store", "equalised", "memory")
# A faster side plays more batches, so that its blocks last long enough to time.
OURS_LONGER = {"store": 5, "equalised": 4, "memory": 40}
HOST = torch.device("cpu")


def strips(seed: int) -> NDArray[np.uint8]:
    """Return strips of soft shadows with camera noise, which hardly compress."""
    random = np.random.default_rng(seed)
    found = np.empty((ENTRIES, HEIGHT, WIDTH, 3), np.uint8)
    for strip in found:
        soft = cv2.resize(random.normal(120, 45, (6, 24, 3)), (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
        strip[:] = (soft + random.normal(0, 6, soft.shape)).clip(0, 255)
    return found


def write(folder: Path) -> tuple[Path, Path]:
    """Write our file and the other side's, with the same people."""
    random = np.random.default_rng(0)
    people = {f"{i:05d}": (strips(i), random.normal(0, 0.2, (ENTRIES, 4)).astype(np.float32)) for i in range(PEOPLE)}
    ours, theirs = folder / "ours.h5", folder / "theirs.h5"
    names = [str(i) for i in range(ENTRIES)]
    write_strips(ours, "made-up", [PersonStrips(p, "train", names, *found) for p, found in people.items()])
    baseline.write(theirs, people)
    for path in (ours, theirs):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return ours, theirs


def forget(paths: tuple[Path, ...]) -> None:
    """Make the kernel drop these files from its page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


class Ours:
    """Our side: its feeds, and the functions that return a feed's next batches."""

    def __init__(self, path: Path, batch: int) -> None:
        values = read_yaml(DEFAULTS)
        size = {"image_height_px": HEIGHT, "image_width_px": WIDTH}
        self._setup = TrainingSetup(
            build(Model, values["model"] | size),
            build(Loss, values["loss"]),
            resolve_tier(values, "baseline"),
            build(Train, values["train"] | {"global_batch": batch}),
            World(0, 1, HOST),
            seed=0,
        )
        self.people, _ = load_people(path, "train", (HEIGHT, WIDTH), min_entries=2)
        self._step = 0

    def feed(self, row: str) -> Feed:
        """Return a feed that loads strips as training does, except for their final form."""
        trained, share = build_feed(self.people, self._setup), self._setup.share
        if row == "equalised":
            return trained
        indices = PairIndices(self.people.counts, share)
        if row == "store":
            return Feed(HostBatches(indices, share, self.people), lambda batch: batch, trained.transfer, ())
        return Feed(indices, cache(self.people, HOST).gather_pairs, trained.transfer, ())

    def batches(self, feed: Feed, count: int) -> Callable[[], Iterator[dict]]:
        """Return a function that returns the next `count` batches of a feed at each call."""

        def play() -> Iterator[dict]:
            self._step += count
            return feed(range(self._step - count, self._step))

        return play


def check_same(samples: baseline.PairSamples, batch: Mapping[str, torch.Tensor], ours: Ours) -> None:
    """Check that the other side returns the strips and labels of one of our batches, in the same form."""
    pairs = PairIndices(ours.people.counts, BatchShare(0, len(batch["person"])))[0]
    first = np.cumsum([0, *ours.people.counts])
    for row in range(0, len(pairs["person"]), 7):
        person, index = int(pairs["person"][row]), int(pairs["index_a"][row])
        theirs = samples.entry(ours.people.names[person], index - int(first[person]))
        image = batch["image_a"][row].numpy()
        assert theirs["image"].dtype == image.dtype and theirs["image"].shape == image.shape
        np.testing.assert_allclose(image, theirs["image"], rtol=0, atol=2e-7)
        np.testing.assert_array_equal(batch["gaze_a"][row], theirs["gaze"])


def seconds_per_pair(play: Callable[[], Iterator[dict]]) -> float:
    """Time one block of batches; return the seconds per pair."""
    began, pairs = time.perf_counter(), 0
    for batch in play():
        pairs += len(batch["image_a"])
        del batch  # before the next is made, as a step does that is through with it
    return (time.perf_counter() - began) / pairs


def measure(row: str, cold: bool, arguments: argparse.Namespace, paths: tuple[Path, Path]) -> None:
    """Time both sides block by block in alternating order, and print the results."""
    ours = Ours(paths[0], arguments.batch)
    samples, feed = baseline.PairSamples(paths[1], row == "equalised"), ours.feed(row)
    check_same(samples, next(feed([0])), ours)
    count = arguments.batches
    cold_count = min(count, PEOPLE * ENTRIES // arguments.batch)  # each strip once: the second time it is warm
    sides = {
        "ours": ours.batches(feed, cold_count if cold else count * OURS_LONGER[row]),
        "theirs": baseline.batches(
            samples, batch=arguments.batch, count=cold_count if cold else count, workers=arguments.workers
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for block in range(arguments.blocks + 1):
        for name in list(sides)[:: 1 if block % 2 else -1]:
            if cold:
                forget(paths)
            seconds = seconds_per_pair(sides[name])
            if block:  # the first brings files, processes and buffers into being
                times[name].append(seconds)
    print(said(row, "cold" if cold else "warm", times), flush=True)


def said(row: str, cache: str, times: Mapping[str, list[float]]) -> str:
    """Format one line of the table."""
    rates = {name: 1 / np.asarray(taken) for name, taken in times.items()}
    words = {name: f"{np.median(rate):7.0f} ({rate.min():.0f} to {rate.max():.0f})" for name, rate in rates.items()}
    ratio = "{ratio:.1f}x ({low:.1f} to {high:.1f})".format(**ratio_interval(times["theirs"], times["ours"]))
    return f"{row:10s} {cache}  ours {words['ours']}  theirs {words['theirs']} pairs/s  {ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--cache", nargs="+", choices=("warm", "cold"), default=("warm", "cold"))
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64, help="pairs")
    parser.add_argument("--batches", type=int, default=39, help="of the other side in a block: half an epoch")
    parser.add_argument("--workers", type=int, default=2, help="processes of the other side")
    parser.add_argument("--threads", type=int, default=2, help="of ours")
    parser.add_argument("--folder", type=Path, help="where the files are written for the while; default: temporary")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(", ".join(f"{name} {fact}" for name, fact in machine.describe().items()))
    print(f"{PEOPLE} x {ENTRIES} strips of {HEIGHT} x {WIDTH}, {arguments.batch} pairs a batch")
    print(
        f"{arguments.blocks} blocks of each side in alternating order; ours {arguments.threads} threads, theirs "
        f"{arguments.workers} processes; medians (range), ratio block by block (95 % t interval)"
    )
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        paths = write(Path(folder))
        for cache in arguments.cache:
            for row in arguments.rows:
                if cache == "warm" or row != "memory":  # strips held in memory know no page cache
                    measure(row, cache == "cold", arguments, paths)


if __name__ == "__main__":
    main()
