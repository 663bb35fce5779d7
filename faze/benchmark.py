"""Speed and memory of the tiers, measured side by side. DESIGN section 7.

Every tier lives in fresh processes of its own for the whole benchmark. The conductor lets one of them at a time run one
block of steps on fixed batches, tiers interleaved in alternating order, so that a drift of the machine meets all alike.
Players wait on a socket in between; when the conductor dies they see its end closed and leave.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from faze.engine.parallel import World
from faze.engine.step import Step, no_clock
from faze.measurement import (
    MemoryPeak,
    PhaseClock,
    pays_off_after_pairs,
    ratio_interval,
    refuse_debugging,
    synchronize,
)
from faze.pairs import PairBatches
from faze.sections import Benchmark, Loss, Model, Train
from faze.telemetry import Progress
from faze.training import loss_weights, to_device


class Line:
    """One JSON object per line over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rw", encoding="utf-8")

    def send(self, **message: Any) -> None:
        """Send one message."""
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()

    def receive(self) -> dict[str, Any]:
        """Wait for one message; the other end's closing is {'do': 'stop'}."""
        line = self._file.readline()
        return json.loads(line) if line else {"do": "stop"}

    def close(self) -> None:
        """Hang up; the other end receives a stop."""
        self._connection.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self._connection.close()


@dataclass(frozen=True)
class Player:
    """One process of one tier: runs blocks when told to."""

    step: Step
    batches: PairBatches
    world: World
    model: Model
    loss: Loss
    train: Train
    peak: MemoryPeak

    def play(self, address: str, tier: str) -> None:
        """Serve the conductor until it says stop."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            line = Line(connection)
            switches = [asdict(switch) for switch in self.step.switches]
            line.send(tier=tier, rank=self.world.rank, processes=self.world.size, switches=switches)
            answers: dict[str, Callable[[int], dict]] = {"block": self._block, "phases": self._phases}
            while (message := line.receive())["do"] != "stop":
                refuse_debugging()  # each time: whatever is imported or built meanwhile could switch it on
                line.send(
                    **(self.peak.read() if message["do"] == "memory" else answers[message["do"]](message["steps"]))
                )

    def _block(self, steps: int) -> dict:
        self.world.wait()
        synchronize(self.world.device)
        began = time.perf_counter()
        for number in range(steps):
            self._step(number, no_clock)
        synchronize(self.world.device)
        return {"seconds": time.perf_counter() - began}

    def _phases(self, steps: int) -> dict:
        clock = PhaseClock(self.world.device)
        self.world.wait()
        for number in range(steps):
            self._step(number, clock)
        return {phase: seconds / steps for phase, seconds in clock.seconds.items()}

    def _step(self, number: int, clock: Callable) -> None:
        # The first steps of the training over and over: every block of every tier sees the same batches.
        weights = loss_weights(self.train.pairs, self.loss, self.train.global_batch)
        with clock("data"):
            raw = self.batches[number]
        with clock("copy"):
            batch = to_device(raw, self.world.device, self.model)
        self.step(batch, weights, clock)


class Tier:
    """The conductor's view of one tier: its processes, as one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.switches: list[dict] = []
        self._lines: list[Line] = []

    def join(self, line: Line, hello: Mapping[str, Any]) -> bool:
        """Take in a process; True once all are there."""
        self._lines.append(line)
        self.switches = hello["switches"]
        return len(self._lines) == hello["processes"]

    def ask(self, do: str, steps: int = 0) -> list[dict]:
        """Tell all processes the same and gather their answers.

        Raises:
            ValueError: a process ended instead of answering.
        """
        for line in self._lines:
            line.send(do=do, steps=steps)
        answers = [line.receive() for line in self._lines]
        if any(answer.get("do") == "stop" for answer in answers):
            raise ValueError(f"tier {self.name}: a process of the benchmark ended early; its words are above")
        return answers

    def dismiss(self) -> None:
        """Let the processes go."""
        for line in self._lines:
            line.close()


@contextlib.contextmanager
def players(commands: Mapping[str, Sequence[str]]) -> Iterator[list[Tier]]:
    """Start every tier's processes and wait until all have built their step.

    Args:
        commands: tier -> command line of a player, to which the socket's address is added.
    """
    with tempfile.TemporaryDirectory(prefix="faze") as folder, socket.socket(socket.AF_UNIX) as server:
        address = f"{folder}/conductor"
        server.bind(address)
        server.listen()
        started = {tier: subprocess.Popen([*command, address]) for tier, command in commands.items()}
        tiers = {name: Tier(name) for name in started}
        try:
            _gather(server, started, tiers)
            yield list(tiers.values())
            for tier in tiers.values():
                tier.dismiss()
            for process in started.values():
                process.wait(timeout=60)
        finally:
            for process in started.values():
                process.terminate()
            for process in started.values():
                process.wait()


def _gather(server: socket.socket, started: Mapping[str, subprocess.Popen], tiers: Mapping[str, Tier]) -> None:
    waiting = set(started)
    server.settimeout(0.5)
    while waiting:
        for name in waiting:
            if started[name].poll() is not None:
                raise ValueError(f"tier {name}: the benchmark's process ended at once; its words are above")
        with contextlib.suppress(TimeoutError):
            connection, _ = server.accept()
            connection.settimeout(None)
            line = Line(connection)
            hello = line.receive()
            if tiers[hello["tier"]].join(line, hello):
                waiting.discard(hello["tier"])


def conduct(tiers: Sequence[Tier], benchmark: Benchmark, global_batch: int) -> dict[str, dict]:
    """Warm up, run the interleaved blocks, then the phases; the first tier is the baseline.

    Returns:
        Per tier what benchmark.json holds.
    """
    # Seconds until compiled and tuned; one tier after the other, so the first call's work is each tier's own.
    warmup_s = {
        tier.name: max(answer["seconds"] for answer in tier.ask("block", benchmark.warmup_steps)) for tier in tiers
    }
    blocks: dict[str, list[float]] = {tier.name: [] for tier in tiers}
    progress = Progress("benchmark", benchmark.blocks * len(tiers), "blocks")
    for block in range(benchmark.blocks):
        for tier in tiers if block % 2 == 0 else reversed(tiers):
            seconds = max(answer["seconds"] for answer in tier.ask("block", benchmark.block_steps))
            blocks[tier.name].append(1e3 * seconds / benchmark.block_steps)
            progress(sum(map(len, blocks.values())))
    memory = {tier.name: _add_up(tier.ask("memory")) for tier in tiers}
    phases = {tier.name: tier.ask("phases", benchmark.block_steps)[0] for tier in tiers}
    first = tiers[0].name
    return {
        tier.name: {
            **_speed(blocks[tier.name], blocks[first], global_batch),
            "warmup_s": warmup_s[tier.name],
            "pays_off_after_pairs": pays_off_after_pairs(
                warmup_s[tier.name] - warmup_s[first],
                (np.median(blocks[first]) - np.median(blocks[tier.name])) / 1e3 / global_batch,
            ),
            **memory[tier.name],
            "memory_ratio": memory[first]["peak_gib"] / memory[tier.name]["peak_gib"],
            "phases_ms": {phase: 1e3 * seconds for phase, seconds in phases[tier.name].items()},
            "switches": tier.switches,
        }
        for tier in tiers
    }


def _speed(blocks_ms: list[float], baseline_ms: list[float], global_batch: int) -> dict[str, Any]:
    first, median, third = np.percentile(blocks_ms, [25, 50, 75])
    return {
        "step_ms": median,
        "step_ms_quartiles": [first, third],
        "images_per_s": 2 * global_batch / median * 1e3,
        "blocks_ms": blocks_ms,
        "speedup": ratio_interval(baseline_ms, blocks_ms),
    }


def _add_up(answers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(answer[name] for answer in answers) for name in answers[0]}


def player_command(tier: str, config: Path, data: Path, threads: int) -> list[str]:
    """Command line of a player; `players` adds the address."""
    module = [sys.executable, "-m", "faze.stages.benchmark", "--config", os.fspath(config), "--data", os.fspath(data)]
    return [*module, "--threads", str(threads), "--tier", tier, "--conductor"]
