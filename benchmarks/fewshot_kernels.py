"""Variants of the few-shot kernel, timed in turn: C, batched torch products, and these with torch.compile.

python benchmarks/fewshot_kernels.py
"""

import argparse
import time

import numpy as np
import torch
from fewshot import EVERY, PEOPLE, REPEATS, people, settings
from torch import Tensor
from torch.nn.functional import normalize

from faze.base.compiled import library
from faze.engine import machine
from faze.fewshot.kernel import CompiledKernel, Kernel, TorchKernel, in_chunks, same_rates, single_threaded_operations
from faze.fewshot.meta_training import Tasks, outer_gradient
from faze.fewshot.mlp import SampleSets, random_weights
from faze.fewshot.person_codes import TaskDraws


def compiled_kernel(*sizes: object) -> CompiledKernel:
    return CompiledKernel(library("fewshot/kernel.c", "there is nothing to compare"), *sizes)


class TorchCompiled(TorchKernel):
    """The torch kernel, with the operations of a step fused by torch.compile."""

    def __init__(self, *sizes: object) -> None:
        super().__init__(*sizes)
        self._gradient = torch.compile(self._gradient, dynamic=False)


def measure_kernels(blocks: int, threads: int) -> None:
    """Print milliseconds per step of 1,650 models, measurement included, and per outer step for 18 values of k."""
    for k in (9, 18):
        times: dict[str, list[float]] = {}
        for block in range(blocks + 1):
            for make in (compiled_kernel, TorchKernel, TorchCompiled)[:: 1 if block % 2 else -1]:
                kernel = make(6, 64, "selu")
                kernel.models_per_chunk = 50 if make is not compiled_kernel else kernel.models_per_chunk
                seconds = time_steps(kernel, k, threads)
                if block:  # the first compiles
                    times.setdefault(make.__name__, []).append(1e3 * seconds / EVERY)
        for name, taken in times.items():
            print(f"k = {k}, {name}: {np.median(taken):.2f} ms ({min(taken):.2f} to {max(taken):.2f})", flush=True)
    draw = TaskDraws(people("gc_train"), settings(shots=tuple(range(1, 19))), seed=0)
    for make in (compiled_kernel, TorchKernel):
        print(f"outer step of k = 1...18, {make.__name__}: {1e3 * time_outer(make(6, 64, 'selu'), draw):.2f} ms")


def time_steps(kernel: Kernel, k: int, threads: int) -> float:
    """Return the seconds that 20 steps and one measurement of 1,650 models take."""
    random, sizes = torch.Generator().manual_seed(0), [(PEOPLE * REPEATS, k), (PEOPLE, 500)]
    sets = [(torch.randn(d, n, 6, generator=random), torch.randn(d, n, 3, generator=random)) for d, n in sizes]
    support, query = (SampleSets(code, normalize(gaze, dim=-1)) for code, gaze in sets)
    initial, models = random_weights(1, 6, 64, 0), PEOPLE * REPEATS
    seen, asked = support.one_per_model(), query.for_models(torch.arange(models) // REPEATS, 500)

    def work(chunk: Tensor) -> None:
        weights = initial.take(torch.zeros_like(chunk))
        kernel.sgd_(weights, seen.of_models(chunk), steps=EVERY, rates=same_rates(1e-5, weights))
        kernel.mean_angle_deg(weights, asked.of_models(chunk))

    began = time.perf_counter()
    list(in_chunks(work, models, kernel, threads))
    return time.perf_counter() - began


def time_outer(kernel: Kernel, draw: TaskDraws, steps: int = 20) -> float:
    """Return the seconds that one outer gradient takes on one thread, including the draw of its tasks."""
    shots = torch.arange(1, 19)
    weights, row = random_weights(18, 6, 64, 0), torch.arange(5).repeat(18)
    rates = same_rates(1e-5, weights).take(torch.zeros(18, dtype=torch.int64))
    with single_threaded_operations():
        began = time.perf_counter()
        for _ in range(steps):
            support, query = draw()
            tasks = Tasks(support.for_models(row, shots.repeat_interleave(5)), query.for_models(row, 100))
            outer_gradient(kernel, weights, rates, tasks, steps=1)
        return (time.perf_counter() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(", ".join(f"{name} {fact}" for name, fact in machine.describe().items()))
    print(f"{arguments.threads} threads, {arguments.blocks} blocks; median (range)")
    measure_kernels(arguments.blocks, arguments.threads)


if __name__ == "__main__":
    main()
