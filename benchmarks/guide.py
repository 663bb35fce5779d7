"""Time the three examples for which the PyTorch tuning guide reports times, and bucketing by length.

    python benchmarks/guide.py [--rounds 7] [--tiny]

GELU         written out as point-wise operations, or fused by torch.compile; 1 million elements
convolution  64 filters of 3 x 3 on (32, 64, 64, 64), with or without cuDNN's autotuning; needs CUDA
bucketing    40 steps of examples/transformer.py on the same sequences, padded to the longest or batched by length
loader       an epoch over 60,000 PNG images of 28 x 28 pixels, as in MNIST, each decoded and normalised

Each round measures every setting once, in alternating order. A ratio is the first setting's time divided by another
setting's time in the same round. On a CPU, `loader` trains a small MLP, since the guide's network takes much longer.
"""

import argparse
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from faze.config.stage_config import resolve_tier
from faze.config.validation import read_config
from faze.engine import machine
from faze.engine.parallel import World
from faze.training.check import load_class
from faze.training.train import build

CUDA = torch.cuda.is_available()
DEVICE, synchronize = ("cuda", torch.cuda.synchronize) if CUDA else ("cpu", lambda: None)
# The guide's times, from the talk's transcript, except 8.2 s, which is from the slides.
GUIDE = {
    "fused": "about 4x",
    "forward, autotuned": "1,430 to 840 us: 1.7x",
    "0 workers": "8.2 s",
    "1 workers": "6.7 s: 1.2x",
    "4 workers": "4.1 s: 2.0x",
    "8 workers": "4.5 s: 1.8x",
}


def seconds(work: Callable[[], object], repeats: int = 50) -> float:
    """Return the mean duration of a call in seconds, after one untimed call."""
    for count in (1, repeats):
        began = time.perf_counter()
        for _ in range(count):
            work()
        synchronize()
    return (time.perf_counter() - began) / repeats


def compare(example: str, ways: Mapping[str, Callable[[], float]], rounds: int) -> None:
    """Measure all settings in turn and print a row for each. The first round is a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            times[name].append(ways[name]())
    base, *_ = measured = [each[1:] for each in times.values()]
    for name, each in zip(times, measured, strict=True):
        ratios = sorted(a / b for a, b in zip(base, each, strict=True))
        ratio = "" if each is base else f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        median = statistics.median(each)
        shown = f"{median:.2f} s" if median > 0.1 else f"{1e6 * median:,.0f} us"
        print(f"| {example} | {name} | {shown} | {ratio} | {GUIDE.get(name, '')} |", flush=True)


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def fusion(rounds: int, tiny: bool) -> None:
    x = torch.randn(10_000 if tiny else 1_000_000, device=DEVICE)
    ways = {"written out": gelu, "fused": torch.compile(gelu)}
    torch.testing.assert_close(ways["fused"](x), gelu(x))
    compare("GELU", {name: lambda way=way: seconds(lambda: way(x)) for name, way in ways.items()}, rounds)


def convolve(autotuned: bool, backward: bool, tiny: bool) -> float:
    torch.backends.cudnn.benchmark = autotuned
    layer, size = nn.Conv2d(64, 64, 3).to(DEVICE), (2, 64, 16, 16) if tiny else (32, 64, 64, 64)
    x = torch.randn(size, device=DEVICE, requires_grad=True)
    inputs, slope = [x, *layer.parameters()], torch.ones_like(layer(x))
    return seconds(lambda: torch.autograd.grad(layer(x), inputs, slope) if backward else layer(x))


def autotuning(rounds: int, tiny: bool) -> None:
    """Run each setting in its own process, since torch caches one algorithm per shape for all settings."""
    pools = {on: ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) for on in (False, True)}

    def way(autotuned: bool, backward: bool) -> Callable[[], float]:
        return lambda: pools[autotuned].submit(convolve, autotuned, backward, tiny).result()

    for part, backward in {"forward": False, "forward and backward": True}.items():
        compare("convolution", {part: way(False, backward), f"{part}, autotuned": way(True, backward)}, rounds)


def bucketing(rounds: int, tiny: bool) -> None:
    engine, world = resolve_tier(read_config([]), "baseline"), World(0, 1, torch.device(DEVICE))

    def way(name: str) -> Callable[[], float]:
        training = build(load_class(name), engine, world, seed=0)
        batches = list(training.feed(range(4 if tiny else 40)))
        return lambda: seconds(lambda: [training.take(batch, 0) for batch in batches], repeats=1)

    names = {"padded": "examples.transformer:Transformer", "bucketed": "examples.transformer:BucketedTransformer"}
    compare("bucketing", {setting: way(name) for setting, name in names.items()}, rounds)


class Images(Dataset):
    """PNG images in memory, with their classes."""

    def __init__(self, count: int) -> None:
        coarse = np.random.default_rng(0).integers(0, 256, (count, 7, 7), np.uint8)
        self.images = [cv2.imencode(".png", cv2.resize(image, (28, 28)))[1] for image in coarse]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = cv2.imdecode(self.images[index], cv2.IMREAD_GRAYSCALE)
        return torch.from_numpy(image)[None].float().div_(255).sub_(0.1307).div_(0.3081), index % 10


def epoch(images: Images, workers: int) -> float:
    """Return an epoch's duration in seconds, including worker start-up. On CUDA, workers imply pinned memory."""
    layers = [nn.Flatten(), nn.Linear(9216 if CUDA else 784, 128), nn.ReLU(), nn.Linear(128, 10)]
    if CUDA:
        layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), *layers]
    model, pin = nn.Sequential(*layers).to(DEVICE), CUDA and workers > 0
    optimizer = torch.optim.Adadelta(model.parameters())
    began = time.perf_counter()
    for batch in DataLoader(images, 64, shuffle=True, num_workers=workers, pin_memory=pin):
        image, label = (part.to(DEVICE, non_blocking=pin) for part in batch)
        nn.functional.cross_entropy(model(image), label).backward()
        optimizer.step()
        optimizer.zero_grad()
    synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tiny", action="store_true", help="small sizes, to check the script")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(", ".join(f"{name} {fact}" for name, fact in machine.describe().items()))
    print(f"{arguments.rounds} rounds, one thread, load average {os.getloadavg()[0]:.1f}\n")
    print("| example | setting | median | ratio (range) | guide |\n|---|---|---|---|---|")
    fusion(arguments.rounds, arguments.tiny)
    if CUDA:
        autotuning(arguments.rounds, arguments.tiny)
    else:
        print(f"| convolution | autotuned | not timed: needs CUDA | | {GUIDE['forward, autotuned']} |")
    bucketing(arguments.rounds, arguments.tiny)
    images = Images(1_280 if arguments.tiny else 60_000)
    workers = [count for count in (0, 1, 2, 4, 8) if count <= multiprocessing.cpu_count()]
    compare("loader", {f"{n} workers": lambda n=n: epoch(images, n) for n in workers}, arguments.rounds)


if __name__ == "__main__":
    main()
