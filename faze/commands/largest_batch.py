"""`faze largest-batch`: the largest micro-batch of a tier that fits into the memory of one device.

    faze largest-batch --tier recompute --memory-gib 4
    faze largest-batch --tier recompute --configfile config/sizes/width.yaml    (a GPU: until it is full)

Every size is tried in a fresh process, with two steps after the warm-up steps (a graph is captured in the last warm-up
step); the second step includes the optimiser's state. Sizes are doubled until one does not fit, then bisected. The
reported memory is the maximum over all steps, which corresponds to the larger of the benchmark's peak_gib and
warmup_peak_gib. A sample of DT-ED is a pair, and all pairs form one chunk; accumulation is off.
"""

import bisect
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from faze.base.errors import UserError
from faze.base.machine import machine_lock
from faze.benchmark.meters import MemoryPeak, status_bytes
from faze.commands.profile import tier_config
from faze.engine.machine import lacks_memory
from faze.engine.parallel import join, pick_device
from faze.training.train import build, load_workload

STEPS = 2  # after the settling steps
MARGIN_GIB = 1.0  # by which a process may exceed the limit before allocations fail, since modules are loaded late


def main(
    *,
    tier: str,
    configfile: list[Path] = (),
    memory_gib: float | None = None,
    multiple: int = 1,
    most: int = 65536,
    threads: int,
    samples: int | None = None,
) -> None:
    """Search for the largest micro-batch of a tier.

    Args:
        tier: name of a tier
        configfile: files that override the defaults
        memory_gib: memory into which the batch must fit; required on a CPU
        multiple: try only multiples of this number of samples
        most: largest number of samples to try
        threads: CPU threads
        samples: try only this number, on behalf of a search
    """
    if samples:
        print(json.dumps(try_size(tier, configfile, memory_gib, threads, samples)))
        return
    device = pick_device(tier_config(configfile, tier)[1].device)
    if device.type == "cpu" and not memory_gib:
        raise UserError("pass --memory-gib: a CPU has no fixed memory limit")
    peaks: dict[int, float] = {}
    with machine_lock(exclusive=False):
        found = largest(lambda number: fits(number, memory_gib, peaks), most=most, multiple=multiple)
    if not found:
        raise UserError(f"not even {multiple} samples of tier {tier} fit into memory")
    print(f"largest micro-batch of {tier}: {found} samples, {peaks[found]:.3f} GiB{_slope(peaks)}")


def largest(fits: Callable[[int], bool], *, most: int, multiple: int = 1) -> int:
    """Find the largest multiple that fits, assuming that every smaller one fits too.

    Args:
        fits: tests whether a number fits; expensive.
        most: upper bound.
        multiple: only multiples of this number are tried.

    Returns:
        0 if not even `multiple` fits.
    """
    limit, beyond = most // multiple, 1
    while beyond <= limit and fits(beyond * multiple):
        beyond *= 2
    half = beyond // 2  # fits
    between = range(half + 1, min(beyond, limit + 1))
    return multiple * (half + bisect.bisect_left(between, True, key=lambda number: not fits(number * multiple)))


def fits(samples: int, memory_gib: float | None, peaks: dict[int, float]) -> bool:
    """Try one size in a fresh process; record its peak if it fits.

    Raises:
        UserError: the process failed for a reason other than lack of memory.
    """
    command = [sys.executable, "-m", "faze", "largest-batch", *sys.argv[2:], "--samples", str(samples)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode > 0:
        raise UserError(f"the trial with {samples} samples failed; see its output above")
    peak = json.loads(ended.stdout) if ended.returncode == 0 else None  # killed for lack of memory
    fitting = peak is not None and (not memory_gib or peak <= memory_gib)
    if peak is not None:
        peaks[samples] = peak
    words = "out of memory" if peak is None else f"{peak:.3f} GiB"
    print(f"{samples} samples: {words}{'' if fitting else ', too large'}", file=sys.stderr)
    return fitting


def try_size(
    tier: str, configfile: Sequence[Path], memory_gib: float | None, threads: int, samples: int
) -> float | None:
    """Return the peak memory of the first steps, in GiB; None if they ran out of memory."""
    sizes = {"train": {"global_batch": samples}, "loss": {"chunk_pairs": samples}}
    config, engine = tier_config(configfile, tier, sizes)
    engine = engine.model_copy(update={"parallel": "single", "accumulate": 1})
    with join(engine, threads) as world:
        workload = load_workload(config)
        workload.batch_size = samples
        _limit(memory_gib, world.device)
        peak = MemoryPeak(world.device)
        try:
            training = build(workload, engine, world, seed=0)
            for batch in training.feed(range(training.step.settling_steps + STEPS)):
                training.take(batch, workload.samples)
        except (RuntimeError, MemoryError) as error:
            if not lacks_memory(error):
                raise
            return None
        return peak.read()["peak_gib"]


def _limit(memory_gib: float | None, device: torch.device) -> None:
    """Limit this process's memory, so that a much too large batch fails before the machine runs out of memory."""
    if not memory_gib:
        return
    if device.type == "cuda":
        share = (memory_gib + MARGIN_GIB) * 2**30 / torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(share, 1.0), device)
    else:
        bytes_ = status_bytes("VmData") + int((memory_gib + MARGIN_GIB) * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (bytes_, bytes_))


def _slope(peaks: dict[int, float]) -> str:
    """Describe the memory needed per additional sample, computed from the smallest and the largest size that ran."""
    few, many = min(peaks), max(peaks)
    if few == many:
        return ""
    mib = 1024 * (peaks[many] - peaks[few]) / (many - few)
    return f"; {mib:.3g} MiB more for each sample (from {few} to {many})"
