"""The measuring processes of a benchmark: fresh ones that run blocks of steps when told to. DESIGN section 7.

Each tier has its own, and so has the roofline. The coordinator (`faze.benchmark.interleave`) lets one tier at a time
run, so that a drift of the machine meets all alike. Measuring processes wait on a socket in between; when the
coordinator dies, they see its end closed and leave.
"""

import contextlib
import functools
import itertools
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

from faze.base.errors import UserError
from faze.benchmark.debugging import refuse_debugging
from faze.benchmark.energy import Meter
from faze.benchmark.memory_peak import MemoryPeak
from faze.benchmark.tier_steps import TierSteps
from faze.benchmark.timing import PhaseClock, synchronize
from faze.config.parameters import Engine
from faze.data.pairs import Batch
from faze.engine.step import no_clock

ROOFLINE = "the roofline"  # with a space: no tier can have this name


class Connection:
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


def serve(address: str, description: Mapping[str, Any], answers: Mapping[str, Callable[..., dict]]) -> None:
    """Introduce this process to the coordinator and answer it until it says stop."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        line = Connection(connection)
        line.send(**description)
        while (message := line.receive())["do"] != "stop":
            refuse_debugging()  # each time: whatever is imported or built meanwhile could switch it on
            line.send(**answers[message.pop("do")](**message))


@dataclass(frozen=True)
class MeasuringProcess:
    """One process of one tier: runs blocks when told to."""

    tier_steps: TierSteps
    block_steps: int
    peak: MemoryPeak
    engine: Engine
    meter: Meter

    def serve(self, address: str, tier: str) -> None:
        """Serve the coordinator until it says stop."""
        on_gpus = self.tier_steps.world.device.type == "cuda"
        description = {
            "tier": tier,
            "rank": self.tier_steps.world.rank,
            "processes": self.tier_steps.world.size,
            "devices": self.tier_steps.world.size * self.tier_steps.step.replicas if on_gpus else 1,
            "engine": asdict(self.engine),
            "switches": [asdict(switch) for switch in self.tier_steps.switches],
            "settling_steps": self.tier_steps.step.settling_steps,
            "energy": {"source": self.meter.source, "reason": self.meter.reason},
        }
        serve(address, description, {"block": self._block, "phases": self._phases, "memory": lambda: self.peak.read()})

    def _block(self, steps: int) -> dict:
        self.tier_steps.world.wait()
        synchronize(self.tier_steps.world.device)
        joules, began = self.meter.read(), time.perf_counter()
        self.tier_steps.train_on(itertools.islice(self._batches, steps), no_clock)
        synchronize(self.tier_steps.world.device)
        return {"seconds": time.perf_counter() - began, "joules": self.meter.since(joules)}

    def _phases(self, steps: int) -> dict:
        clock = PhaseClock(self.tier_steps.world.device)
        self.tier_steps.world.wait()
        self.tier_steps.train_on(self.tier_steps.feed(range(steps), clock), clock)
        return {phase: seconds / steps for phase, seconds in clock.seconds.items()}

    @functools.cached_property
    def _batches(self) -> Iterator[Batch]:
        """The first steps of the training over and over: every block of every tier sees the same batches."""
        return self.tier_steps.feed(itertools.cycle(range(self.block_steps)))


class TierProcesses:
    """The coordinator's view of one tier (or of the roofline): its processes, as one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.description: Mapping[str, Any] = {}
        self._lines: list[Connection] = []

    def join(self, line: Connection, description: Mapping[str, Any]) -> bool:
        """Take in a process; True once all are there."""
        self._lines.append(line)
        if description["rank"] == 0:
            self.description = description
        return len(self._lines) == description["processes"]

    @property
    def switches(self) -> list[dict[str, str]]:
        """How each of its switches acts."""
        return self.description["switches"]

    def ask(self, do: str, **arguments: Any) -> list[dict]:
        """Tell all processes the same and gather their answers.

        Raises:
            UserError: a process ended instead of answering.
        """
        for line in self._lines:
            line.send(do=do, **arguments)
        answers = [line.receive() for line in self._lines]
        if any(answer.get("do") == "stop" for answer in answers):
            raise UserError(f"tier {self.name}: a process of the benchmark ended early; its words are above")
        return answers

    def dismiss(self) -> None:
        """Let the processes go."""
        while self._lines:
            self._lines.pop().close()


@contextlib.contextmanager
def measuring_processes(commands: Mapping[str, Sequence[str]]) -> Iterator[list[TierProcesses]]:
    """Start every tier's processes and wait until all have built their step.

    Args:
        commands: tier -> command line of a measuring process, to which the socket's address is added.
    """
    with tempfile.TemporaryDirectory(prefix="faze") as folder, socket.socket(socket.AF_UNIX) as server:
        address = f"{folder}/coordinator"
        server.bind(address)
        server.listen()
        started = {tier: subprocess.Popen([*command, address]) for tier, command in commands.items()}
        tiers = {name: TierProcesses(name) for name in started}
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


def _gather(server: socket.socket, started: Mapping[str, subprocess.Popen], tiers: Mapping[str, TierProcesses]) -> None:
    waiting = set(started)
    server.settimeout(0.5)
    while waiting:
        for name in waiting:
            if started[name].poll() is not None:
                raise UserError(f"tier {name}: the benchmark's process ended at once; its words are above")
        with contextlib.suppress(TimeoutError):
            connection, _ = server.accept()
            connection.settimeout(None)
            line = Connection(connection)
            description = line.receive()
            if tiers[description["tier"]].join(line, description):
                waiting.discard(description["tier"])


def process_command(tier: str, config: Path, data: Path | None, threads: int) -> list[str]:
    """Command line of a tier's measuring process, or the ROOFLINE's; `measuring_processes` adds the address."""
    module = [sys.executable, "-m", "faze.stages.benchmark", "--config", os.fspath(config)]
    if data:
        module += ["--data", os.fspath(data)]
    return [*module, "--threads", str(threads), "--tier", tier, "--coordinator"]
