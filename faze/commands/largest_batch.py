"""`faze largest-batch`: the largest micro-batch of a tier that fits into one device's memory.

    faze largest-batch --tier recompute --memory-gib 4
    faze largest-batch --tier recompute --configfile config/sizes/width.yaml    (on a GPU, whose memory is the limit)

Each size is tried in a fresh process, for two steps after the warm-up (a graph is captured in the last warm-up step).
The second step's peak includes the optimiser's state. The size is doubled until it does not fit, and then bisected. For
DT-ED, a sample is a pair, and all pairs form one chunk. Gradient accumulation is off.
"""

import multiprocessing
import re
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from faze.base.errors import UserError
from faze.base.machine import machine_lock
from faze.benchmark.tier_process import MemoryPeak, status_bytes
from faze.commands.profile import tier_config
from faze.engine.parallel import end_with_parent, join, pick_device
from faze.training.train import build, load_workload

STEPS = 2  # after the settling steps
MARGIN_GIB = 1.0  # by which a process may exceed the limit before allocations fail; some modules are loaded later


def main(*, tier: str, configfile: list[Path] = (), memory_gib: float | None = None, threads: int) -> None:
    """Search for a tier's largest micro-batch.

    Args:
        memory_gib: memory that the batch must fit into; required on a CPU
    """
    if pick_device(tier_config(configfile, tier)[1].device).type == "cpu" and not memory_gib:
        raise UserError("pass --memory-gib: a CPU has no fixed memory limit")
    where = (tier, configfile, memory_gib, threads)
    fitting, too_many = 0, 1
    with machine_lock(exclusive=False):
        while fits(*where, too_many):
            fitting, too_many = too_many, 2 * too_many
        while too_many - fitting > 1:
            middle = (fitting + too_many) // 2
            fitting, too_many = (middle, too_many) if fits(*where, middle) else (fitting, middle)
    print(f"largest micro-batch of {tier}: {fitting} samples")


def fits(tier: str, files: list[Path], memory_gib: float | None, threads: int, samples: int) -> bool:
    """Try a size in a fresh process, which the kernel may kill for lack of memory; return whether the size fits."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), end_with_parent) as process:
        try:
            peak_gib = process.submit(measure_peak, tier, files, memory_gib, threads, samples).result()
        except BrokenProcessPool:
            peak_gib = None
    words = "out of memory" if peak_gib is None else f"{peak_gib:.3f} GiB"
    print(f"{samples} samples: {words}", file=sys.stderr)
    return peak_gib is not None and (not memory_gib or peak_gib <= memory_gib)


def measure_peak(tier: str, files: list[Path], memory_gib: float | None, threads: int, samples: int) -> float | None:
    """Return the first steps' peak memory in GiB, or None if they ran out of memory."""
    sizes = {"train": {"global_batch": samples}, "loss": {"chunk_pairs": samples}}
    config, engine = tier_config(files, tier, sizes)
    engine = engine.model_copy(update={"parallel": "single", "accumulate": 1})
    with join(engine, threads) as world:
        workload = load_workload(config)
        workload.batch_size = samples
        if world.device.type == "cpu":  # otherwise, the machine could run out of memory
            limit = status_bytes("VmData") + int((memory_gib + MARGIN_GIB) * 2**30)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        peak = MemoryPeak(world.device)
        try:
            training = build(workload, engine, world, seed=0)
            for batch in training.feed(range(training.step.settling_steps + STEPS)):
                training.take(batch, workload.samples)
        except Exception as error:  # torch's allocators raise RuntimeError, and some errors are converted to UserError
            if not isinstance(error, MemoryError) and not re.search("out of memory|can't allocate memory", str(error)):
                raise
            return None
        return peak.read()["peak_gib"]
