"""Embedding consistency timed against its released (2B)^2 form, interleaved in one run on a CPU.

    python benchmarks/embedding_loss.py

The forward and backward passes of the gaze codes' term are timed; the released procedure also computes the head codes'
term, which its training never uses. Each call processes one chunk of B pairs. Values and gradients are compared before
anything is timed.
"""

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from baselines import embedding_loss as baseline
from torch import Tensor

from faze.benchmark.rows import ratio_interval
from faze.engine import machine
from faze.model import losses

PAIRS = (64, 128, 256, 512)
PEOPLE = 100
RELEASED, WITHOUT_HEAD, OURS = "released", "released, no head term", "ours, released clip"


class Codes(NamedTuple):
    """Frontalised codes of B pairs: gaze (2B, 2, 3), head (2B, 16, 3), person (2B,)."""

    gaze: Tensor
    head: Tensor
    person: Tensor


def made_up(pairs: int, dtype: torch.dtype = torch.float32) -> Codes:
    """Return random codes scattered around a mean code for each person."""
    random = torch.Generator().manual_seed(pairs)
    person = torch.randint(PEOPLE, (pairs,), generator=random).repeat(2)
    gaze, head = (
        torch.randn(PEOPLE, rows, 3, generator=random)[person] + 0.3 * torch.randn(2 * pairs, rows, 3, generator=random)
        for rows in (2, 16)
    )
    return Codes(gaze.to(dtype).requires_grad_(), head.to(dtype).requires_grad_(), person)


def released(codes: Codes) -> Tensor:
    value = baseline.embedding_consistency(codes.gaze, codes.person)
    _logged = baseline.embedding_consistency(codes.head, codes.person)  # hence held until the step is over
    value.backward()
    return value.detach()


def of_gaze(term: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Codes], Tensor]:
    """Return a step that computes the forward and backward passes for the gaze codes alone."""

    def step(codes: Codes) -> Tensor:
        value = term(codes.gaze, codes.person)
        value.backward()
        return value.detach()

    return step


def ours(clip: float | None) -> Callable[[Codes], Tensor]:
    distance = losses.CodeAngle(clip)
    return of_gaze(lambda codes, person: losses.embedding_consistency(codes, person, distance))


CONTENDERS = {
    RELEASED: released,
    WITHOUT_HEAD: of_gaze(baseline.embedding_consistency),
    OURS: ours(baseline.CLIP),
    "ours, exact angle": ours(None),
}


def print_differences(pairs: int) -> None:
    """Print how much our value and gradient differ from the released ones, in both precisions."""
    for dtype in (torch.float32, torch.float64):
        found = []
        for name in (WITHOUT_HEAD, OURS):
            codes = made_up(pairs, dtype)
            found.append((CONTENDERS[name](codes), codes.gaze.grad))
        (wanted, wanted_gradient), (value, gradient) = found
        of_value = float((value - wanted).abs() / wanted)
        of_gradient = float((gradient - wanted_gradient).abs().max() / wanted_gradient.abs().max())
        print(
            f"  {str(dtype).removeprefix('torch.')}: released {float(wanted):.9g}, ours {float(value):.9g} degrees, "
            f"relative difference {of_value:.1e}; of the gradient {of_gradient:.1e} (largest over largest element)"
        )


def time_blocks(pairs: int, blocks: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Time every contender in alternating order; return its milliseconds per call in each block but the first."""
    codes, calls = made_up(pairs), max(1, 512 // pairs)
    times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for block in range(blocks + 1):
        for name in list(CONTENDERS)[:: 1 if block % 2 else -1]:
            began = clock()
            for _ in range(calls):
                codes.gaze.grad = None
                CONTENDERS[name](codes)
            times[name].append(1e3 * (clock() - began) / calls)
    return {name: taken[1:] for name, taken in times.items()}


def print_times(times: dict[str, list[float]]) -> None:
    for place, (name, taken) in enumerate(times.items()):
        first, median, third = np.percentile(taken, [25, 50, 75])
        ratios = [
            "{ratio:.1f}x ({low:.1f} to {high:.1f}) faster than ".format(**ratio_interval(times[other], taken)) + other
            for other in (RELEASED, WITHOUT_HEAD)[:place]
        ]
        print(f"  {name}: {median:.2f} ms ({first:.2f} to {third:.2f})" + "".join(f"; {ratio}" for ratio in ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--pairs", type=int, nargs="+", default=PAIRS)
    parser.add_argument("--cpu-time", action="store_true", help="processor time, for one thread beside other work")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(", ".join(f"{name} {fact}" for name, fact in machine.describe().items()))
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    print(f"{arguments.threads} threads, {arguments.blocks} blocks, {clock.__name__}; median (quartiles), t interval")
    for pairs in arguments.pairs:
        print(f"B = {pairs}, {2 * pairs} codes, float32")
        print_differences(pairs)
        print_times(time_blocks(pairs, arguments.blocks, clock))


if __name__ == "__main__":
    main()
