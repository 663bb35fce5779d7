"""The measuring processes of a benchmark: fresh ones that run blocks of steps when told to.

Each tier has its own, forks of a fork server, and so has the roofline. The coordinator (`faze.benchmark.rounds`) lets
one tier at a time run, so that a drift of the machine meets all alike. Measuring processes wait on a socket in between;
when the coordinator dies, they see its end closed and leave.
"""

import contextlib
import functools
import itertools
import os
import socket
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Client, Connection
from typing import Any

from faze.base.allocator_retention import VARIABLE, with_allocator_retention
from faze.base.errors import UserError
from faze.benchmark.debugging import refuse_debugging
from faze.benchmark.energy import Meter
from faze.benchmark.fork_server import Fork, ForkServer
from faze.benchmark.memory_peak import MemoryPeak
from faze.benchmark.tier_steps import TierSteps
from faze.benchmark.timing import PhaseClock, synchronize
from faze.config.parameters import Engine
from faze.engine.parallel import rank_environments
from faze.engine.transfer import Tensors

IMPORTED = ("faze.stages.benchmark", "torch._dynamo")  # torch's optimisers import the second as the first is made


def serve(
    coordinator: tuple[str, str], description: Mapping[str, Any], answers: Mapping[str, Callable[..., dict]]
) -> None:
    """Describe this process to the coordinator and answer its requests until it hangs up.

    Args:
        coordinator: the address of its socket, and the name by which it knows this process.
        description: what it wants to know before the first request.
        answers: the function that answers a request, by what it asks to do.
    """
    address, name = coordinator
    with Client(address) as connection:
        connection.send({"name": name, **description})
        while True:
            try:
                do, arguments = connection.recv()
            except EOFError:
                return
            refuse_debugging()  # each time: whatever is imported or built meanwhile could switch it on
            connection.send(answers[do](**arguments))


@dataclass(frozen=True)
class MeasuringProcess:
    """One process of one tier: runs blocks when told to."""

    tier: TierSteps
    block_steps: int
    peak: MemoryPeak
    meter: Meter

    def serve(self, coordinator: tuple[str, str]) -> None:
        """Answer the coordinator until it hangs up."""
        world, step = self.tier.setup.world, self.tier.step
        description = {
            "rank": world.rank,
            "processes": world.size,
            "devices": world.size * step.replicas if world.device.type == "cuda" else 1,
            "engine": asdict(self.tier.setup.engine),
            "switches": [asdict(switch) for switch in self.tier.switches],
            "notes": self.tier.feed.notes,
            "settling_steps": step.settling_steps,
            "energy": {"source": self.meter.source, "reason": self.meter.reason},
            "least_block_s": self.meter.least_s,
        }
        answers = {"block": self._block, "phases": self._phases, "settle": self._settle, "memory": self.peak.read}
        serve(coordinator, description, answers)

    def _block(self, steps: int) -> dict:
        world, begun = self.tier.setup.world, "_batches" in vars(self)
        batches = self._batches
        if begun:  # use up what was read while other tiers ran; the first block is timed from its very first step
            self.tier.run(itertools.islice(batches, self.tier.feed.transfer.ahead))
        world.wait()
        synchronize(world.device)
        boards, joules, began = self.meter.boards(), self.meter.read(), time.perf_counter()
        self.tier.run(itertools.islice(batches, steps))
        synchronize(world.device)
        seconds, joules = time.perf_counter() - began, self.meter.since(joules)
        return {"seconds": seconds, "joules": joules, "boards": [*boards, *self.meter.boards()]}

    def _settle(self) -> dict:
        self.peak.settle()
        return {}

    def _phases(self, steps: int) -> dict:
        clock = PhaseClock(self.tier.setup.world.device)
        batches = self.tier.begin(steps, clock)
        self.tier.setup.world.wait()
        clock.seconds.clear()
        self.tier.run(batches, clock)
        return {phase: seconds / steps for phase, seconds in clock.seconds.items()}

    @functools.cached_property
    def _batches(self) -> Iterator[Tensors]:
        """The first batches of the training over and over: every block of every tier sees the same."""
        return self.tier.feed(itertools.cycle(range(self.block_steps)))


class TierProcesses:
    """The coordinator's view of the processes of one tier (or of the roofline), as one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.description: Mapping[str, Any] = {}  # of its first process
        self._connections: list[Connection] = []

    def add(self, connection: Connection, description: Mapping[str, Any]) -> bool:
        """Take in a process; True once all are there."""
        self._connections.append(connection)
        if description["rank"] == 0:
            self.description = description
        return len(self._connections) == description["processes"]

    def ask(self, do: str, **arguments: Any) -> list[dict]:
        """Send all processes the same request and gather their answers.

        Raises:
            UserError: a process ended instead of answering.
        """
        try:
            for connection in self._connections:
                connection.send((do, arguments))
            return [connection.recv() for connection in self._connections]
        except (EOFError, ConnectionError):
            raise UserError(f"{self.name}: a measuring process ended early; its words are above") from None

    def dismiss(self) -> None:
        """Let the processes go."""
        while self._connections:
            self._connections.pop().close()


@dataclass(frozen=True)
class Command:
    """How the measuring processes of a tier, or of the roofline, are started."""

    arguments: tuple[str, ...]  # of `faze`, to which the coordinator is added
    engine: Engine | None  # of the tier: how many processes it has, and with which allocator

    @property
    def keeps_memory(self) -> bool:
        """Whether they keep the memory that they free."""
        return self.engine is not None and self.engine.allocator == "keep"


def measuring_command(args: Namespace, *what: str, engine: Engine | None = None) -> Command:
    """Make the command of the stage `benchmark` that measures something.

    Args:
        args: of the stage: its resolved config, data (a store of strips; None makes them up) and threads.
        what: arguments of the stage that say what is measured.
        engine: of the tier, if it is one.
    """
    stored = ["--data", os.fspath(args.data)] if args.data else []
    common = ["benchmark", "--config", os.fspath(args.config), *stored, "--threads", str(args.threads)]
    return Command((*common, *what, "--coordinator"), engine)


@contextlib.contextmanager
def fork_servers(commands: Iterable[Command]) -> Iterator[Mapping[bool, ForkServer]]:
    """Start the fork servers that commands need: the allocator is chosen as a process starts, so each has its own."""
    kept = {VARIABLE: with_allocator_retention(os.environ.get(VARIABLE, ""))}
    with contextlib.ExitStack() as stack:
        yield {
            keeps: stack.enter_context(ForkServer(IMPORTED, kept if keeps else {}))
            for keeps in sorted({command.keeps_memory for command in commands})
        }


@contextlib.contextmanager
def measuring_processes(
    servers: Mapping[bool, ForkServer], commands: Mapping[str, Command]
) -> Iterator[list[TierProcesses]]:
    """Start every tier's processes and wait until all have built their step.

    Args:
        servers: of which they are forks.
        commands: tier -> what starts its measuring processes.
    """
    with (
        tempfile.TemporaryDirectory(prefix="faze") as folder,
        socket.socket(socket.AF_UNIX) as server,
        contextlib.ExitStack() as ends,
    ):
        address = f"{folder}/coordinator"
        server.bind(address)
        server.listen()
        started: dict[str, list[Fork]] = {}
        for name, command in commands.items():
            for environment in rank_environments(command.engine) if command.engine else [{}]:
                fork = servers[command.keeps_memory].fork([*command.arguments, address, name], environment)
                ends.callback(fork.end)
                started.setdefault(name, []).append(fork)
        tiers = {name: TierProcesses(name) for name in started}
        _gather(server, started, tiers)
        yield list(tiers.values())
        for tier in tiers.values():
            tier.dismiss()
        for fork in itertools.chain.from_iterable(started.values()):
            fork.ended(patience_s=60)


def _gather(server: socket.socket, started: Mapping[str, Sequence[Fork]], tiers: Mapping[str, TierProcesses]) -> None:
    waiting = set(started)
    server.settimeout(0.5)
    while waiting:
        for name in waiting:
            if any(fork.ended() for fork in started[name]):
                raise UserError(f"{name}: a measuring process ended at once; its words are above")
        # One that dies as it introduces itself hangs up; the next look at the processes says so.
        with contextlib.suppress(TimeoutError, EOFError, ConnectionError):
            connection = Connection(server.accept()[0].detach())
            description = connection.recv()
            if tiers[description["name"]].add(connection, description):
                waiting.discard(description["name"])
