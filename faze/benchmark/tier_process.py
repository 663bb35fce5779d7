"""Fresh processes of a tier, one for each rank, which time its steps on request: lines of JSON on standard input."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

import torch

from faze.base.errors import UserError
from faze.base.machine import LAUNCHER
from faze.benchmark.meters import Energy, MemoryPeak, busy_seconds
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved
from faze.engine.parallel import join, rank_environments, share
from faze.native.allocator_retention import VARIABLE, with_allocator_retention
from faze.training.train import Training, build, load_workload

PIPE = "FAZE_ANSWERS"  # file descriptor to which a process writes its answers; its standard output is for people


class TierProcesses:
    """The processes of a tier, addressed as one; leaving the context ends them."""

    def __init__(self, tier: str, engine: Engine, command: Sequence[str]) -> None:
        """Start `faze COMMAND --tier TIER`."""
        self.tier, self._processes, self._answers = tier, [], []
        common = {LAUNCHER: str(os.getpid())}
        if engine.allocator == "keep":  # which glibc reads when a process starts
            common[VARIABLE] = with_allocator_retention(os.environ.get(VARIABLE, ""))
        for rank in rank_environments(engine):
            ours, theirs = os.pipe()
            variables = os.environ | common | rank | {PIPE: str(theirs)}
            words = [sys.executable, "-m", "faze", *command, "--tier", tier]
            self._processes.append(subprocess.Popen(words, stdin=subprocess.PIPE, env=variables, pass_fds=[theirs]))
            os.close(theirs)
            self._answers.append(os.fdopen(ours))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        for process in self._processes:
            process.stdin.close()
            if error:
                process.kill()
            process.wait()

    def ask(self, request: str, *arguments: object) -> list[Any]:
        """Send all processes the same request; return their answers in the order of their ranks."""
        for process in self._processes:
            process.stdin.write(json.dumps([request, *arguments]).encode() + b"\n")
            process.stdin.flush()
        return self.receive()

    def receive(self) -> list[Any]:
        """Return the next answer of every process; raise UserError if one has ended instead."""
        found: dict[Any, Any] = {}
        while waiting := [pipe for pipe in self._answers if pipe not in found]:
            for pipe in wait(waiting):  # one that ended is noticed, though others may wait for it
                if not (line := pipe.readline()):
                    raise UserError(f"{self.tier}: its process ended early; see its output above")
                found[pipe] = json.loads(line)
        return [found[pipe] for pipe in self._answers]


# --- in such a process ------------------------------------------------------------------------------------------------


def answer(value: object) -> None:
    """Send a value to the process that started this one."""
    os.write(int(os.environ[PIPE]), json.dumps(value).encode() + b"\n")


def measure_tier(config: Resolved, tier: str, data: Path | None, threads: int) -> None:
    """Build a tier's training and describe it; then answer requests until the benchmark needs no more."""
    engine = config.engines[tier]
    with join(engine, share(threads, engine)) as world:
        workload = load_workload(config, data, world.processes_here)
        memory = MemoryPeak(world.device)
        training = build(workload, engine, world, seed=0)
        steps, step = TierSteps(training, config.benchmark.block_steps), training.step
        about = {"switches": [asdict(switch) for switch in training.switches], "settling_steps": step.settling_steps}
        about |= {"batch": workload.batch_size, "images": workload.images * workload.batch_size}
        about |= {"devices": world.size * step.replicas if world.device.type == "cuda" else 1}
        answer(about | {"least_s": steps.energy.least_s})
        answers = {"block": steps.block, "phases": steps.phases, "settle": memory.settle, "memory": memory.read}
        for line in sys.stdin:
            request, *arguments = json.loads(line)
            answer(answers[request](*arguments))


class TierSteps:
    """The steps of one tier on the first batches of its training, which are the same in every tier."""

    def __init__(self, training: Training, block_steps: int) -> None:
        self.training, self._read_ahead = training, 0
        self.energy = Energy(training.world.device, training.step.replicas)
        self._batches = training.feed(itertools.cycle(range(block_steps)))

    def block(self, steps: int) -> dict:
        """Time a block of steps."""
        self._take(self._read_ahead)  # batches that were read ahead while other tiers ran
        self._read_ahead = self.training.feed.ahead
        self.training.world.wait()
        self._synchronize()
        busy, joules, began = busy_seconds(), self.energy.joules(), time.perf_counter()
        self._take(steps)
        self._synchronize()
        seconds = time.perf_counter() - began
        found = {"seconds": seconds, "joules": self.energy.joules() - joules, "throttled": self.energy.throttled()}
        machine_s, own_s = (now - before for now, before in zip(busy_seconds(), busy, strict=True))
        return found | {"machine_s": machine_s, "own_s": own_s}

    def phases(self, steps: int) -> dict[str, float]:
        """Return the ms of each phase of a step; they add up to more than a step, since each one is waited for."""
        training, total = self.training, defaultdict(float)

        @contextlib.contextmanager
        def clock(phase: str) -> Iterator[None]:
            self._synchronize()
            began = time.perf_counter()
            yield
            self._synchronize()
            total[phase] += time.perf_counter() - began

        ahead = training.feed.ahead  # steps whose batches are read during the first one
        for number, batch in enumerate(training.feed(range(1 + ahead + steps), clock)):
            training.take(batch, training.workload.samples, clock=clock)
            if number == ahead:
                training.world.wait()
                total.clear()
        return {phase: 1e3 * seconds / steps for phase, seconds in total.items()}

    def _take(self, steps: int) -> None:
        for batch in itertools.islice(self._batches, steps):
            self.training.take(batch, self.training.workload.samples)

    def _synchronize(self) -> None:
        if self.training.world.device.type == "cuda":
            torch.cuda.synchronize()
