"""`faze largest-batch`: the largest micro-batch of a tier that fits into the memory of one device.

    faze largest-batch --tier recompute --memory-gib 4
    faze largest-batch --tier recompute --configfile config/sizes/width.yaml    (a GPU: until it is full)

Every size is tried in a fresh process, with two steps after the warm-up steps (a graph is captured in the last warm-up
step); the second step includes the optimiser's state. Sizes are doubled until one does not fit, then bisected. A sample
of DT-ED is a pair, and all pairs form one chunk; accumulation is off.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

import torch

from faze.base.errors import UserError
from faze.base.machine import machine_lock
from faze.benchmark.tier_process import MemoryPeak, status_bytes
from faze.commands.profile import tier_config
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved
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
    threads: int,
    samples: int | None = None,
) -> None:
    """Search for the largest micro-batch of a tier.

    Args:
        tier: name of a tier
        configfile: files that override the defaults
        memory_gib: memory into which the batch must fit; required on a CPU
        threads: CPU threads
        samples: try only this number, on behalf of a search
    """
    sizes = {"train": {"global_batch": samples or 1}, "loss": {"chunk_pairs": samples or 1}}
    config, engine = tier_config(configfile, tier, sizes)
    if samples:
        print(json.dumps(measure_peak(config, engine, memory_gib, threads, samples)))
        return
    if pick_device(engine.device).type == "cpu" and not memory_gib:
        raise UserError("pass --memory-gib: a CPU has no fixed memory limit")
    fitting, too_many = 0, 1
    with machine_lock(exclusive=False):
        while fits(too_many, memory_gib):
            fitting, too_many = too_many, 2 * too_many
        while too_many - fitting > 1:
            middle = (fitting + too_many) // 2
            fitting, too_many = (middle, too_many) if fits(middle, memory_gib) else (fitting, middle)
    if not fitting:
        raise UserError(f"not even one sample of tier {tier} fits into memory")
    print(f"largest micro-batch of {tier}: {fitting} samples")


def fits(samples: int, memory_gib: float | None) -> bool:
    """Try one size in a fresh process."""
    command = [sys.executable, "-m", "faze", "largest-batch", *sys.argv[2:], "--samples", str(samples)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode > 0:
        raise UserError(f"the trial with {samples} samples failed; see its output above")
    peak_gib = json.loads(ended.stdout) if ended.returncode == 0 else None  # killed for lack of memory
    words = "out of memory" if peak_gib is None else f"{peak_gib:.3f} GiB"
    print(f"{samples} samples: {words}", file=sys.stderr)
    return peak_gib is not None and (not memory_gib or peak_gib <= memory_gib)


def measure_peak(
    config: Resolved, engine: Engine, memory_gib: float | None, threads: int, samples: int
) -> float | None:
    """Return the peak memory of the first steps, in GiB; None if they ran out of memory."""
    engine = engine.model_copy(update={"parallel": "single", "accumulate": 1})
    with join(engine, threads) as world:
        workload = load_workload(config)
        workload.batch_size = samples
        if memory_gib:
            limit_memory(world.device, int((memory_gib + MARGIN_GIB) * 2**30))
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


def limit_memory(device: torch.device, more_bytes: int) -> None:
    """Limit this process's memory, so that a much too large batch fails before the machine runs out of memory."""
    if device.type == "cuda":
        share = more_bytes / torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(share, 1.0), device)
    else:
        limit = status_bytes("VmData") + more_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
