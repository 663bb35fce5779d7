"""Devices and processes that train together: their number, their start, what they tell each other, their end."""

import contextlib
import datetime
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from faze.base.errors import UserError
from faze.base.preemption import PREEMPTED, SIGNALS, Preempted, Unheard, all_is_written
from faze.config.parameters import Engine
from faze.engine.graphs import drop_captured

# A rank may wait for another one's checkpoint write, or for the lock of an orphaned run to be released.
PATIENCE = datetime.timedelta(hours=12)
# What gloo says where a process at the other end is gone, on this machine or another.
PEER_GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
LAUNCHER = "FAZE_LAUNCHER"  # the process that is torchrun: it may have been killed before its workers can look
LEAVE_S = 600  # that torchrun gives its processes to end a step and write a checkpoint; a cluster may give them less


@dataclass(frozen=True)
class World:
    """This process among those that train together."""

    rank: int
    size: int
    device: torch.device

    @property
    def processes_here(self) -> int:
        """How many of them run on this machine."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.size))

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def least(self, value: int) -> int:
        """Find the smallest of the numbers that the processes have."""
        values = torch.tensor([value], device=self.device)
        if self.size > 1:
            dist.all_reduce(values, op=dist.ReduceOp.MIN)
        return int(values)

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.size > 1:
            dist.barrier()


class Vote:
    """Whether any of the processes that train together wants to leave: all learn it at the same call."""

    def __init__(self, world: World) -> None:
        """Prepare to vote; all processes do. Votes travel by a way of their own, which asks no device."""
        self._group = dist.new_group(backend="gloo", timeout=PATIENCE) if world.size > 1 else None
        self._cast: tuple[torch.Tensor, dist.Work] | None = None

    def any(self, here: bool) -> bool:
        """Vote, and learn how the vote of the call before went: nobody waits for a vote under way.

        Alone, a process learns of its own vote at once.
        """
        if self._group is None:
            return here
        before = False
        if self._cast:
            votes, work = self._cast
            work.wait()
            before = bool(votes)
        votes = torch.tensor([int(here)], dtype=torch.int32)
        self._cast = votes, dist.all_reduce(votes, dist.ReduceOp.MAX, group=self._group, async_op=True)
        return before


def pick_device(device: str) -> torch.device:
    """Choose the device of this process.

    Raises:
        UserError: cuda is asked for and there is none.
    """
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("engine.device: cuda is asked for but torch finds no CUDA device; set auto or cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def count_processes(engine: Engine) -> int:
    """Count the processes on this machine that a tier trains with.

    Raises:
        UserError: there are fewer GPUs.
    """
    if engine.parallel != "ddp":
        return 1
    if pick_device(engine.device).type == "cpu":
        return engine.processes or 2
    gpus = torch.cuda.device_count()
    if engine.processes > gpus:
        raise UserError(
            f"engine.processes {engine.processes}: each needs a GPU of its own, and {gpus} can be seen here; set 0, "
            "which takes as many as there are, or device: cpu"
        )
    return engine.processes or gpus


def share(threads: int, engine: Engine) -> int:
    """Share CPU threads among the processes of a tier on this machine."""
    return max(threads // count_processes(engine), 1)


def launch(engine: Engine, command: Sequence[str]) -> bool:
    """Run a command by torchrun in one process per device, if the tier wants that and torchrun runs us not already.

    For several nodes the environment names their meeting point: PET_RDZV_ENDPOINT, torchrun's own variable.

    Returns:
        Whether it has run, to its end; otherwise this process is the one to do it.

    Raises:
        Preempted: the processes were asked to go, and have said so.
        UserError: one of them was killed.
    """
    if engine.parallel != "ddp" or "RANK" in os.environ:
        return False
    # Here and not a child: a signal for the stage reaches torchrun, which passes it on.
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    passed_on = ",".join(number.name for number in (*SIGNALS, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # join() sets the threads; unset, torchrun prints a warning
    # Options, by their variables: an older torchrun does not know them.
    os.environ.setdefault("PET_SIGNALS_TO_HANDLE", passed_on)
    os.environ.setdefault("PET_SHUTDOWN_TIMEOUT", str(LEAVE_S))
    os.environ[LAUNCHER] = str(os.getpid())
    meeting = [] if "PET_RDZV_ENDPOINT" in os.environ else ["--standalone"]
    options = [*meeting, f"--nproc-per-node={count_processes(engine)}"]
    sys.stdout.flush()
    try:
        torchrun.run(torchrun.parse_args([*options, "-m", "faze", *command]))
        all_is_written()
    except SignalException as asked:
        if asked.sigval not in SIGNALS:
            sys.exit(128 + asked.sigval)
        raise Preempted("") from None
    except ChildFailedError as failed:
        _end_as(failed.failures)
    except RendezvousError as lost:
        words = "another node has ended, or is not reached where PET_RDZV_ENDPOINT says; the same command goes on"
        raise UserError(f"{words} ({lost})") from None
    finally:
        del os.environ[LAUNCHER]
    return True


def _end_as(failures: Mapping[int, Any]) -> None:
    """End as the processes did that failed: who was killed could not say so, who ended by itself has said why."""
    codes = {rank: failure.exitcode for rank, failure in failures.items()}
    # As torchrun found them: those that it ended itself, asked to go by its SIGTERM, come after the one that failed.
    if next(iter(codes.values())) == PREEMPTED:
        raise Preempted("")
    # SIGTERM is what torchrun sends to those that are left.
    killed = {rank: signal.Signals(-code).name for rank, code in codes.items() if code < 0 and -code != signal.SIGTERM}
    for rank, name in sorted(killed.items()):
        raise UserError(f"process {rank} of the training was killed by {name}; the same command goes on")
    sys.exit(1)


def rank_environments(engine: Engine) -> list[dict[str, str]]:
    """Say what torchrun would put into the environment of each process of a tier, for who starts them without it."""
    if engine.parallel != "ddp":
        return [{}]
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    count = count_processes(engine)
    size = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return [meeting | size | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


@contextlib.contextmanager
def join(engine: Engine, threads: int) -> Iterator[World]:
    """Join the processes that train together (or be alone), with so many CPU threads in this one."""
    device = pick_device(engine.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if engine.parallel != "ddp":
        torch.set_num_threads(threads)
        yield World(0, 1, device)
        return
    with _ending_with_others(), _process_group(device) as world:
        torch.set_num_threads(threads)
        yield world


@contextlib.contextmanager
def _process_group(device: torch.device) -> Iterator[World]:
    cuda = device.type == "cuda"
    # Given the device, NCCL connects here and now, and not amid the first step.
    dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE, device_id=device if cuda else None)
    ended = False
    try:
        yield World(dist.get_rank(), dist.get_world_size(), device)
        ended = True
    except RuntimeError as error:
        if any(words in str(error) for words in PEER_GONE):
            raise UserError("another process of this training has ended; the same command goes on") from None
        raise
    finally:
        # Who fails must not wait in NCCL for those who wait for it: it is gone, then torchrun ends them.
        if ended or not cuda:
            drop_captured()
            dist.destroy_process_group()


@contextlib.contextmanager
def _ending_with_others() -> Iterator[None]:
    """End with who started us: torchrun's workers are in process groups of their own, which no kill of its reaches.

    End too at a signal that the main thread does not hear, as when it waits for a process that is gone.
    """
    parent, done = int(os.environ.get(LAUNCHER) or os.getppid()), threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            if os.getppid() != parent:
                os._exit(1)
            if ending := unheard.ending():
                code, words = ending
                if os.environ["RANK"] == "0":
                    print(f"{sys.argv[0]}: {words}", file=sys.stderr, flush=True)
                os._exit(code)

    with Unheard() as unheard:
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
