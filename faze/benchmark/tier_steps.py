"""Repeated training steps of one tier for measurement, and the process that times them in blocks.

The steps use the first batches of the tier's training, which contain stored strips or noise.
"""

import functools
import itertools
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from faze.base.errors import UserError
from faze.benchmark.meters import EnergyMeter, MemoryPeak, build_energy_meter
from faze.benchmark.processes import answer_requests
from faze.benchmark.roofline import PhaseClock, Roofline, synchronize
from faze.config.parameters import DTED, Engine
from faze.config.stage_config import Resolved, resolve, resolve_tier
from faze.config.validation import nearest, read_config
from faze.data.pairs import People, cache_what_fits, open_people
from faze.data.strips import StoredPerson, read_store
from faze.engine.parallel import World, check_chunks, join, share
from faze.engine.transfer import Tensors
from faze.training.augmentation import build_augmentation
from faze.training.dted_training import build_step, build_training
from faze.training.feed import TrainingSetup, build_feed
from faze.training.loop import Training
from faze.training.workload_training import build_named

# Each makes steps slower, or memory larger, than in a training, or changes what the allocators of all tiers do.
DEBUG_VARIABLES = (
    "CUDA_INJECTION64_PATH",  # loads Nsight and other profilers
    "CUDA_LAUNCH_BLOCKING",
    "DNNL_VERBOSE",
    "MALLOC_CHECK_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_PERTURB_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MKL_VERBOSE",
    "ONEDNN_VERBOSE",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_CUDA_SANITIZER",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_SHOW_DISPATCH_TRACE",
)


def build_tier_steps(config: Resolved, engine: Engine, world: World, people: People) -> Training:
    """Build the step of a tier; every tier sees the same batches and starts from the same weights.

    Args:
        config: configuration of the stage benchmark.
        engine: switches of the tier.
        world: this process's position among those that run the steps together.
        people: training people.

    Raises:
        UserError: the global batch cannot be divided into shares of whole chunks.
    """
    setup = TrainingSetup(config.model, config.loss, engine, config.train, world, seed=0)
    step = build_step(setup)
    check_chunks(config.train.global_batch, config.loss.chunk_pairs, world.size * step.shares)
    augmentation = build_augmentation(config.augment, config.preprocess, config.model, len(people.persons))
    feed = build_feed(people, setup, workers=config.data.workers, augmentation=augmentation)
    return build_training(setup, step, feed, None)


def read_people(path: Path | None, config: Resolved, processes_here: int = 1) -> People:
    """Read a store's training people at the network's image size; without a store, generate four people of noise."""
    size = (config.model.image_height_px, config.model.image_width_px)
    if path:
        store = read_store(path, config.fold)
        people = open_people(store, size, split="train", min_entries=config.data.min_entries)
        return cache_what_fits([people], config.data.memory_gib, processes_here)[0]
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (32, *size, 3), dtype=np.uint8)
    labels = random.normal(0, 0.2, (4, 8, 4)).astype(np.float32)
    people = [StoredPerson(f"made-up-{i}", "train", labels[i]) for i in range(4)]
    return People(people, torch.from_numpy(labels).flatten(0, 1), torch.from_numpy(pixels), size)


def tier_config(
    overrides: Sequence[Path], tier: str, changes: Mapping[str, Any] | None = None
) -> tuple[Resolved, Engine]:
    """Read the benchmark's configuration (defaults, override files, then changes) and the switches of a tier."""
    config = read_config(overrides, changes)
    if tier not in config.tiers:
        raise UserError(f"{tier} is not defined under tiers{nearest(tier, config.tiers)}")
    return Resolved(resolve(config, "benchmark")), resolve_tier(config, tier)


def refuse_debugging() -> None:
    """Check that no debugging mode of this process slows down the measured steps.

    Raises:
        UserError: a debugging mode is enabled; the message names all of them.
    """
    modes = {
        "autograd's anomaly mode": torch.is_anomaly_enabled(),
        # The first covers all threads, the second also the marks for Nsight and VTune.
        "torch's profiler": torch.autograd.profiler._is_profiler_enabled or torch.autograd._profiler_enabled(),
        "CUDA's sync debug mode": torch.cuda.is_initialized() and torch.cuda.get_sync_debug_mode() != 0,
        "a Python tracer or profiler": sys.gettrace() is not None or sys.getprofile() is not None,
        "tracemalloc": tracemalloc.is_tracing(),
        "Python's development mode": sys.flags.dev_mode,
    }
    off = ("", "0", "OFF", "NONE", "FALSE")
    variables = [
        f"{name}={os.environ[name]}" for name in DEBUG_VARIABLES if os.environ.get(name, "").upper() not in off
    ]
    if found := [name for name, is_on in modes.items() if is_on] + variables:
        raise UserError(f"these would distort the measurement: switch off {', '.join(found)}")


def prepare(
    world: World, config: Resolved, engine: Engine, data: Path | None = None, batch: int | None = None
) -> Callable[[], Training]:
    """Read the data of a tier's training; return the function that builds the training.

    Args:
        world: this process's position among those of the tier.
        config: configuration of the benchmark.
        engine: switches of the tier.
        data: store of normalised strips; None for noise. Workloads other than DT-ED make their own data.
        batch: samples of a step of another workload than DT-ED; None for those of its training.
    """
    if config.workload != DTED:
        return functools.partial(build_named, config.workload, engine, world, batch)
    people = read_people(data, config, world.processes_here)
    return functools.partial(build_tier_steps, config, engine, world, people)


def measure_tier(
    connection: Connection,
    engine: Engine,
    prepare: Callable[[World], Callable[[], Training]],
    block_steps: int,
    threads: int,
) -> None:
    """Build the step of a tier, then run blocks on request.

    Args:
        connection: connection to the stage.
        engine: switches of the tier.
        prepare: reads the data; returns a function that builds the training, whose memory counts.
        block_steps: number of batches in the repeated blocks.
        threads: total number of CPU threads for all processes of the tier.
    """
    with join(engine, share(threads, engine)) as world:
        build = prepare(world)
        peak = MemoryPeak(world.device)
        tier = build()
        # All processes of a CPU share one counter; each GPU has its own.
        counts = world.device.type == "cuda" or world.rank == 0
        energy = build_energy_meter(world.device, tier.step.replicas) if counts else EnergyMeter("none")
        blocks = TierBlocks(tier, block_steps, energy)
        description = {
            "devices": world.size * tier.step.replicas if world.device.type == "cuda" else 1,
            "engine": engine.model_dump(),
            "switches": [asdict(switch) for switch in tier.switches],
            "notes": tier.feed.notes,
            "settling_steps": tier.step.settling_steps,
            "energy": {"source": energy.source, "reason": energy.reason},
            "least_block_s": energy.least_s,
        }
        answers = {"block": blocks.block, "phases": blocks.phases, "settle": peak.settle, "memory": peak.read}
        answer_requests(connection, description, _without_debugging(answers))


def measure_roofline(connection: Connection, device: torch.device, threads: int) -> None:
    """Time copies and matrix products on a device on request, using as many threads as a tier does."""
    torch.set_num_threads(threads)
    roofline = Roofline(device)
    answer_requests(connection, {}, _without_debugging({"copy": roofline.copy, "matmul": roofline.matmul}))


def _without_debugging(answers: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Check for debugging modes before each answer, since any import or build could have enabled one."""

    def checked(answer: Callable[..., Any], **arguments: Any) -> Any:
        refuse_debugging()
        return answer(**arguments)

    return {request: functools.partial(checked, answer) for request, answer in answers.items()}


@dataclass(frozen=True)
class TierBlocks:
    """Blocks of steps of one tier, timed in one of its processes."""

    tier: Training
    block_steps: int
    energy: EnergyMeter

    def block(self, steps: int) -> dict:
        """Time a block of steps."""
        world, begun = self.tier.world, "_batches" in vars(self)
        batches = self._batches
        if begun:  # consume what was read ahead while other tiers ran; the first block is timed from its first step
            self.tier.run(itertools.islice(batches, self.tier.feed.transfer.ahead))
        world.wait()
        synchronize(world.device)
        boards, joules, began = self.energy.boards(), self.energy.read(), time.perf_counter()
        self.tier.run(itertools.islice(batches, steps))
        synchronize(world.device)
        seconds, joules = time.perf_counter() - began, self.energy.since(joules)
        return {"seconds": seconds, "joules": joules, "boards": [*boards, *self.energy.boards()]}

    def phases(self, steps: int) -> dict:
        """Time the phases of several steps; return the seconds that each phase takes per step."""
        clock = PhaseClock(self.tier.world.device)
        batches = self.tier.begin(steps, clock)
        self.tier.world.wait()
        clock.seconds.clear()
        self.tier.run(batches, clock)
        return {phase: seconds / steps for phase, seconds in clock.seconds.items()}

    @functools.cached_property
    def _batches(self) -> Iterator[Tensors]:
        """The first training batches, repeated: every block of every tier uses the same ones."""
        return self.tier.feed(itertools.cycle(range(self.block_steps)))
