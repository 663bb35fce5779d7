"""Encoding and decoding with DT-ED's training network and its inference network, timed in turn on a CPU.

    python benchmarks/inference.py # both sizes, one thread and two
    python benchmarks/inference.py --rounds 9 --threads 2 --walk 20

Weights are untrained, since the time does not depend on them. Times are wall-clock medians, in ms per image; the ratio
is the median, over rounds, of the old time divided by the new one, measured one after the other. Walks are timed at
paper width: 60 pictures and a reconstruction per person, no video. The process retains freed memory, as the stages'
processes do.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from faze.base.allocator_retention import keep_memory
from faze.config.check import build
from faze.config.parameters import Model
from faze.config.yaml_files import DEFAULTS, read_yaml
from faze.data.store.strips import PersonStrips, StripStore, write_strips
from faze.model.dted import DTED
from faze.model.inference import for_inference
from faze.redirection.walk import walk_person

DEFAULT = build(Model, read_yaml(DEFAULTS)["model"])
SIZES = {
    "default": (DEFAULT, 64),
    "paper": (dataclasses.replace(DEFAULT, growth=32, image_height_px=64, image_width_px=256), 16),
}
RANGE_DEG, STEPS = 45.0, 15


def compare(name: str, old: Callable[[], object], new: Callable[[], object], *, rounds: int, count: int) -> None:
    """Time two ways of doing the same work on `count` images, and print a line of results."""
    times_ms: dict[Callable[[], object], list[float]] = {old: [], new: []}
    for number in range(rounds + 1):  # the first warms up
        for way in (old, new) if number % 2 else (new, old):
            began = time.perf_counter()
            way()
            if number:
                times_ms[way].append(1e3 * (time.perf_counter() - began) / count)
    ratios = sorted(a / b for a, b in zip(times_ms[old], times_ms[new], strict=True))
    medians = (statistics.median(times_ms[way]) for way in (old, new))
    print(
        f"{name:36} old {next(medians):8.2f}  new {next(medians):8.2f} ms  "
        f"ratio {statistics.median(ratios):5.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        flush=True,
    )


@torch.inference_mode()
def codes_and_pictures(model: Model, count: int, name: str, rounds: int) -> None:
    torch.manual_seed(0)
    dted = DTED(model)
    fast = for_inference(dted)
    image = torch.rand(count, 3, model.image_height_px, model.image_width_px) * 2 - 1
    codes = dted.encode(image)
    compare(f"encode {name}", lambda: dted.encode(image), lambda: fast.encode(image), rounds=rounds, count=count)
    compare(f"decode {name}", lambda: dted.decode(codes), lambda: fast.decode(codes), rounds=rounds, count=count)


def walks(people: int, rounds: int, threads: int) -> None:
    torch.manual_seed(0)
    dted, random = DTED(SIZES["paper"][0]), np.random.default_rng(0)
    fast = for_inference(dted)
    persons = [
        PersonStrips(
            f"{number:05}",
            "test",
            ["0.jpg"],
            random.integers(0, 256, (1, 64, 256, 3), dtype=np.uint8),
            random.normal(0, 0.2, (1, 4)).astype(np.float32),
        )
        for number in range(people)
    ]
    with tempfile.TemporaryDirectory() as folder:
        write_strips(Path(folder) / "data.h5", "gazecapture", persons)
        with StripStore(Path(folder) / "data.h5") as strips:

            def walk(network: DTED) -> None:
                for person in strips.persons():
                    walk_person(network, strips, person, range_deg=RANGE_DEG, steps=STEPS)

            name = f"walk of {people} people, {threads} threads"
            compare(name, lambda: walk(dted), lambda: walk(fast), rounds=rounds, count=1)


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--walk", type=int, default=0, metavar="PEOPLE", help="walk them at paper width too")
    arguments = parser.parse_args()
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        for size, (model, count) in SIZES.items():
            codes_and_pictures(model, count, f"{size}, {threads} threads, {count} images", arguments.rounds)
        if arguments.walk:
            walks(arguments.walk, arguments.rounds, threads)


if __name__ == "__main__":
    main()
