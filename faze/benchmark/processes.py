"""Fresh processes for the benchmark, which run blocks of steps on request.

Each tier has its own processes, and so does the roofline. One tier at a time runs, so that any drift of the machine
affects all tiers equally; the other processes wait for their next request.

Importing torch takes seconds, longer than many tiers take to measure. Therefore the processes of a round are forked
from a fork server, which has imported torch but computed nothing: it has no threads and no tensors. Each round has new
fork servers, so the addresses of libraries and memory differ between rounds, but not between the tiers of a round.
glibc reads its allocator settings when a process starts, so each allocator setting has its own fork server.
"""

import contextlib
import importlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, Self

from faze.base.errors import UserError
from faze.config.parameters import Engine
from faze.engine.parallel import rank_environments
from faze.native.allocator_retention import VARIABLE, with_allocator_retention

END_S = 60  # a process that takes longer to end is terminated

Answers = Mapping[str, Callable[..., dict]]  # request -> the function that answers it


@dataclass(frozen=True)
class Job:
    """The work of a tier's processes, or of the roofline's."""

    run: Callable[[Connection], None]  # picklable; describes the process, then answers requests (`answer_requests`)
    engine: Engine | None = None  # of the tier: determines the number of processes and their allocator

    @property
    def retains_memory(self) -> bool:
        """Return whether the processes' allocator retains freed memory."""
        return self.engine is not None and self.engine.allocator == "keep"


def answer_requests(connection: Connection, description: Mapping[str, Any], answers: Answers) -> None:
    """Send the description of this process, then answer requests until the connection is closed."""
    connection.send(description)
    with contextlib.suppress(EOFError):
        while True:
            request, arguments = connection.recv()
            connection.send(answers[request](**arguments))


class ForkServer:
    """A fork server, which runs until its context is exited.

    Args:
        environment: variables that its processes have in addition to those of this process.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = Pipe()
        with theirs:
            # Ctrl-C also reaches this process, which then closes its end.
            program = f"""import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)
from {__name__} import serve_forks; serve_forks({theirs.fileno()})"""
            command, variables = [sys.executable, "-c", program], {**os.environ, **environment}
            self._process = subprocess.Popen(command, env=variables, pass_fds=[theirs.fileno()])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.close()  # the server then terminates its processes
        self._process.wait()

    def start(self, job: Job) -> list[Connection]:
        """Start the processes of a job; return the connection to each, in the order of their ranks.

        Raises:
            UserError: the server exited.
        """
        environments = rank_environments(job.engine) if job.engine else [{}]
        with self._reported():
            self._requests.send((job.run, environments))
            return [Connection(recv_handle(self._requests)) for _ in environments]

    def join(self) -> None:
        """Wait until all processes have ended and their memory is free."""
        with self._reported():
            self._requests.send(None)
            self._requests.recv()

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            raise UserError("the benchmark's fork server exited; see its output above") from None


def serve_forks(requests: int) -> None:
    """Run as a fork server: fork the processes of each requested job until the connection is closed.

    Args:
        requests: file descriptor of the connection to the stage.
    """
    importlib.import_module("torch._dynamo")  # else each process imports it with its first optimiser
    started = []
    with Connection(requests) as stage, contextlib.suppress(EOFError, ConnectionError):
        try:
            while True:
                if job := stage.recv():  # unpickling imports the modules that the job needs
                    run, environments = job
                    for environment in environments:
                        ours, theirs = Pipe()
                        with ours, theirs:
                            arguments = (run, environment, theirs, (stage, ours))
                            started.append(multiprocessing.get_context("fork").Process(target=_run, args=arguments))
                            started[-1].start()
                            send_handle(stage, ours.fileno(), None)
                else:
                    while started:
                        _end(started.pop(), END_S)
                    stage.send(None)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                _end(process, END_S)


def _end(process: multiprocessing.Process, patience_s: float) -> None:
    process.join(patience_s)
    if process.exitcode is None:
        process.kill()
        process.join()


def _run(
    run: Callable[[Connection], None],
    environment: Mapping[str, str],
    connection: Connection,
    others: Iterable[Connection],
) -> None:
    """Run as one of a job's processes."""
    for other in others:  # inherited; an end is closed only when no process has it open
        other.close()
    os.environ.update(environment)
    try:
        run(connection)
    except (UserError, OSError) as error:
        sys.exit(f"faze benchmark: {error}")


class TierProcesses:
    """The processes of one tier (or of the roofline), addressed as one."""

    def __init__(self, name: str, connections: list[Connection]) -> None:
        self.name = name
        self.description: Mapping[str, Any] = {}  # of its first process
        self._connections = connections

    def receive_description(self) -> None:
        """Wait until every process has built its step and described itself.

        Raises:
            UserError: a process exited instead.
        """
        self.description = self._receive()[0]

    def ask(self, request: str, **arguments: Any) -> list[dict]:
        """Send all processes the same request; return their answers in the order of their ranks.

        Raises:
            UserError: a process exited instead of answering.
        """
        with self._reported():
            for connection in self._connections:
                connection.send((request, arguments))
        return self._receive()

    def dismiss(self) -> None:
        """Close the connections, so that the processes end."""
        for connection in self._connections:
            connection.close()

    def _receive(self) -> list[Any]:
        answers: dict[Connection, Any] = {}
        with self._reported():
            while waiting := [connection for connection in self._connections if connection not in answers]:
                for connection in wait(waiting):  # one that exited is noticed, though others may wait for it
                    answers[connection] = connection.recv()
        return [answers[connection] for connection in self._connections]

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            raise UserError(f"{self.name}: a benchmark process exited early; see its output above") from None


@contextlib.contextmanager
def fork_servers(jobs: Iterable[Job]) -> Iterator[Mapping[bool, ForkServer]]:
    """Yield the fork servers that jobs need, keyed by whether their allocator retains memory."""
    retaining = {VARIABLE: with_allocator_retention(os.environ.get(VARIABLE, ""))}
    with contextlib.ExitStack() as stack:
        yield {
            retains: stack.enter_context(ForkServer(retaining if retains else {}))
            for retains in sorted({job.retains_memory for job in jobs})
        }


@contextlib.contextmanager
def benchmark_processes(servers: Mapping[bool, ForkServer], jobs: Mapping[str, Job]) -> Iterator[list[TierProcesses]]:
    """Start the processes of every tier and wait until all have built their step; finally wait for their exit.

    Args:
        servers: fork servers, from `fork_servers`.
        jobs: tier -> the job of its processes.
    """
    tiers = [TierProcesses(name, servers[job.retains_memory].start(job)) for name, job in jobs.items()]
    for tier in tiers:
        tier.receive_description()
    yield tiers
    for tier in tiers:
        tier.dismiss()
    for server in servers.values():
        server.join()
