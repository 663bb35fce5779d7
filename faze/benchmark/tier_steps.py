"""Blocks of a tier's training steps, timed on request in one of the tier's processes."""

import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from faze.benchmark.meters import Energy, MemoryPeak, busy_seconds
from faze.benchmark.processes import answer, answer_requests
from faze.benchmark.roofline import synchronize
from faze.config.stage_config import Resolved
from faze.engine.parallel import join, share
from faze.training.train import Training, build, load_workload


def measure_tier(config: Resolved, tier: str, data: Path | None, threads: int) -> None:
    """Build a tier's training and describe it; then answer requests until the benchmark closes the connection."""
    engine = config.engines[tier]
    with join(engine, share(threads, engine)) as world:
        workload = load_workload(config, data, world.processes_here)
        memory = MemoryPeak(world.device)
        training = build(workload, engine, world, seed=0)
        steps = TierSteps(training, config.benchmark.block_steps)
        answer(
            {
                "switches": [asdict(switch) for switch in training.switches],
                "settling_steps": training.step.settling_steps,
                "images": workload.images * workload.batch_size,
                "batch": workload.batch_size,
                "devices": world.size * training.step.replicas if world.device.type == "cuda" else 1,
                "least_s": steps.energy.least_s,
            }
        )
        answers = {"block": steps.block, "phases": steps.phases, "settle": memory.settle, "memory": memory.read}
        answer_requests(answers)


class TierSteps:
    """The steps of one tier on the first batches of its training, which are the same in every tier."""

    def __init__(self, training: Training, block_steps: int) -> None:
        self.training, self.device = training, training.world.device
        self.energy = Energy(self.device, training.step.replicas)
        self._batches = training.feed(itertools.cycle(range(block_steps)))
        self._read_ahead = 0

    def block(self, steps: int) -> dict:
        """Time a block of steps."""
        self._take(self._read_ahead)  # batches that were read ahead while other tiers ran
        self._read_ahead = self.training.feed.ahead
        self.training.world.wait()
        synchronize(self.device)
        busy, joules, began = busy_seconds(), self.energy.joules(), time.perf_counter()
        self._take(steps)
        synchronize(self.device)
        seconds, used = time.perf_counter() - began, self.energy.joules() - joules
        busy_s, own_s = (now - before for now, before in zip(busy_seconds(), busy, strict=True))
        return {
            "seconds": seconds,
            "joules": used,
            "throttled": self.energy.throttled(),
            "busy_s": busy_s,
            "own_s": own_s,
        }

    def phases(self, steps: int) -> dict[str, float]:
        """Return the ms of each phase of a step; they add up to more than a step, since every phase is waited for."""
        training, total = self.training, defaultdict(float)

        @contextlib.contextmanager
        def clock(phase: str) -> Iterator[None]:
            synchronize(self.device)
            began = time.perf_counter()
            yield
            synchronize(self.device)
            total[phase] += time.perf_counter() - began

        first = training.feed.ahead  # the last step whose batch is read ahead during the first one
        for number, batch in enumerate(training.feed(range(first + 1 + steps), clock)):
            training.take(batch, training.workload.samples, clock=clock)
            if number == first:
                training.world.wait()
                total.clear()
        return {phase: 1e3 * seconds / steps for phase, seconds in total.items()}

    def _take(self, steps: int) -> None:
        for batch in itertools.islice(self._batches, steps):
            self.training.take(batch, self.training.workload.samples)
