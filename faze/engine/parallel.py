"""Devices and processes that train together: how they start, communicate and end, and how they share a model."""

import contextlib
import datetime
import functools
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from faze.base.environment import LAUNCHER, MEETING
from faze.base.errors import UserError
from faze.base.preemption import PREEMPTED, SIGNALS, Preempted, SignalWatch, ignore_signals
from faze.config.parameters import Engine
from faze.engine.graphs import drop_captured
from faze.engine.precision import Context
from faze.engine.switches import Switch

# A rank may wait while another one writes a checkpoint, or until an orphaned run releases its lock.
PATIENCE = datetime.timedelta(hours=12)
# Gloo's messages when a process at the other end has ended, on this machine or another; the last one while connecting.
PEER_GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "connectFullMesh failed")
LEAVE_S = 600  # time for torchrun's processes to finish a step and write a checkpoint; a cluster may grant less


# --- processes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """This process's position among those that train together."""

    rank: int
    size: int
    device: torch.device

    @property
    def processes_here(self) -> int:
        """Number of processes on this machine."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.size))

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def least(self, value: int) -> int:
        """Return the minimum of a value over all processes."""
        values = torch.tensor([value], device=self.device)
        if self.size > 1:
            dist.all_reduce(values, op=dist.ReduceOp.MIN)
        return int(values)

    def wait(self) -> None:
        """Wait until every process has made this call."""
        if self.size > 1:
            dist.barrier()


class Vote:
    """A vote by which all processes learn, at the same call, whether any of them must stop.

    Every process creates one. Votes are sent with gloo, which needs no device.
    """

    def __init__(self, world: World) -> None:
        self._group = dist.new_group(backend="gloo", timeout=PATIENCE) if world.size > 1 else None
        self._cast: tuple[torch.Tensor, dist.Work] | None = None

    def any(self, here: bool) -> bool:
        """Vote, and return the result of the previous call's vote, so that no process waits for a vote in progress.

        A single process gets its own vote back at once.
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
    """Return the device of this process.

    Raises:
        UserError: `device` is cuda and torch finds no CUDA device.
    """
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("engine.device is cuda, but torch finds no CUDA device; set it to auto or cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def count_processes(engine: Engine) -> int:
    """Return the number of processes that train a tier on this machine.

    Raises:
        UserError: there are fewer GPUs than `processes`.
    """
    if engine.parallel != "ddp":
        return 1
    if pick_device(engine.device).type == "cpu":
        return engine.processes or 2
    gpus = torch.cuda.device_count()
    if engine.processes > gpus:
        raise UserError(
            f"engine.processes {engine.processes}: each process needs its own GPU, but this machine has {gpus}; "
            "set it to 0 to use all GPUs, or set device to cpu"
        )
    return engine.processes or gpus


def share(threads: int, engine: Engine) -> int:
    """Return each process's number of CPU threads if the processes of a tier share `threads`."""
    return max(threads // count_processes(engine), 1)


def launch(engine: Engine, command: Sequence[str]) -> bool:
    """Run a command with torchrun, one process per device, if the tier needs it and this is not already a worker.

    With several nodes, torchrun's environment variable PET_RDZV_ENDPOINT contains the address of the rendezvous.

    Returns:
        Whether the command was run; if not, this process must run it.

    Raises:
        Preempted: the processes were asked to stop, and have printed a message.
        UserError: one of them was killed, or a network interface that the environment names does not exist.
    """
    if engine.parallel != "ddp" or (LAUNCHER in os.environ and "RANK" in os.environ):
        return False
    _check_interfaces(engine)
    # In this process, not a child: a signal to the stage reaches torchrun, which passes it on.
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    passed_on = ",".join(number.name for number in (*SIGNALS, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # join() sets the threads; unset, torchrun prints a warning
    # Options as variables, since an older torchrun does not have them as arguments.
    os.environ.setdefault("PET_SIGNALS_TO_HANDLE", passed_on)
    os.environ.setdefault("PET_SHUTDOWN_TIMEOUT", str(LEAVE_S))
    os.environ[LAUNCHER] = str(os.getpid())
    # Without the address, torchrun would wait for five minutes on a machine whose own name cannot be resolved.
    meeting = [] if MEETING in os.environ else ["--standalone", "--local-addr=127.0.0.1"]
    options = [*meeting, f"--nproc-per-node={count_processes(engine)}"]
    sys.stdout.flush()
    try:
        with tempfile.TemporaryDirectory(prefix="faze-torchrun-") as logs:  # its own folder would remain
            torchrun.run(torchrun.parse_args([*options, f"--log-dir={logs}", "-m", "faze", *command]))
            ignore_signals()
    except SignalException as received:
        if received.sigval not in SIGNALS:
            sys.exit(128 + received.sigval)
        raise Preempted("") from None
    except ChildFailedError as failed:
        _exit_as_children(failed.failures)
    except RendezvousError as lost:
        raise UserError(
            f"another node has ended, or {MEETING} cannot be reached ({lost}); run the same command again"
        ) from None
    finally:
        del os.environ[LAUNCHER]
    return True


def _check_interfaces(engine: Engine) -> None:
    """Check that the network interfaces that the processes must use, according to the environment, exist."""
    present = [name for _, name in socket.if_nameindex()]
    rules = {"GLOO_SOCKET_IFNAME": str.__eq__}  # gloo is also used on GPUs, for votes
    if pick_device(engine.device).type == "cuda":
        rules["NCCL_SOCKET_IFNAME"] = str.startswith  # its names are prefixes; others begin with ^ or =, or have a port
    for variable, fits in rules.items():
        value = os.environ.get(variable, "")
        wanted = [name for name in value.split(",") if name and not set(value) & set("^=:")]
        if missing := [name for name in wanted if not any(fits(interface, name) for interface in present)]:
            raise UserError(
                f"{variable}={value}: this machine has no network interface {missing[0]}, only {', '.join(present)}: "
                "correct or unset this variable"
            )


def _exit_as_children(failures: Mapping[int, Any]) -> None:
    """Exit with the code of the failed processes. Report a killed process, which could not print an error itself."""
    codes = {rank: failure.exitcode for rank, failure in failures.items()}
    # Torchrun lists the process that failed first before those that it then ended with SIGTERM.
    if next(iter(codes.values())) == PREEMPTED:
        raise Preempted("")
    killed = {rank: signal.Signals(-code).name for rank, code in codes.items() if code < 0 and -code != signal.SIGTERM}
    for rank, name in sorted(killed.items()):
        raise UserError(f"process {rank} was killed by {name}; run the same command again to resume")
    sys.exit(1)


def rank_environments(engine: Engine) -> list[dict[str, str]]:
    """Return the environment that torchrun would set for each process of a tier, so that they can start without it."""
    if engine.parallel != "ddp":
        return [{}]
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    count = count_processes(engine)
    size = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return [meeting | size | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


@contextlib.contextmanager
def join(engine: Engine, threads: int) -> Iterator[World]:
    """Join the processes that train together, or set up a single one; each uses `threads` CPU threads."""
    device = pick_device(engine.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if engine.parallel != "ddp":
        torch.set_num_threads(threads)
        yield World(0, 1, device)
        return
    _check_interfaces(engine)
    with _ending_with_others(), _process_group(device) as world:
        torch.set_num_threads(threads)
        yield world


@contextlib.contextmanager
def _process_group(device: torch.device) -> Iterator[World]:
    cuda = device.type == "cuda"
    try:
        # With the device, NCCL connects now instead of during the first step.
        dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE, device_id=device if cuda else None)
        ended = False
        try:
            yield World(dist.get_rank(), dist.get_world_size(), device)
            ended = True
        finally:
            # A process that fails must not wait in NCCL for others that wait for it. Once it ends, torchrun ends them.
            if ended or not cuda:
                drop_captured()
                dist.destroy_process_group()
    except RuntimeError as error:
        if any(message in str(error) for message in PEER_GONE):
            raise UserError(
                "another process of this training has ended; run the same command again to resume"
            ) from None
        raise


@contextlib.contextmanager
def _ending_with_others() -> Iterator[None]:
    """End this process when torchrun ends: workers have their own process groups, so they survive if it is killed.

    Also end it after a signal that the main thread does not handle, for example because that thread is waiting for a
    dead process.
    """
    parent, done = int(os.environ.get(LAUNCHER) or os.getppid()), threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            if os.getppid() != parent:
                os._exit(1)
            if overdue := signals.overdue():
                code, message = overdue
                if os.environ["RANK"] == "0":
                    print(f"{sys.argv[0]}: {message}", file=sys.stderr, flush=True)
                os._exit(code)

    with SignalWatch() as signals:
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


# --- model and batch ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrapper:
    """How the model is wrapped so that its gradient is the mean over the whole global batch."""

    wrap: Callable[[nn.Module], nn.Module]
    replicas: int  # of the model in this process
    switches: tuple[Switch, ...]


def build_wrapper(engine: Engine, world: World) -> Wrapper:
    """Choose the wrapper for a tier: none, DataParallel or DistributedDataParallel."""
    cuda, parallel = world.device.type == "cuda", engine.parallel
    devices = torch.cuda.device_count() if cuda else 1
    wrap, replicas, acted, reason = (lambda module: module), 1, "one device", ""
    if parallel == "ddp":
        acted = f"{world.size} processes, {'nccl' if cuda else 'gloo'}"
        wrap = functools.partial(nn.parallel.DistributedDataParallel, device_ids=[world.device] if cuda else None)
    elif parallel == "dp" and devices > 1:
        wrap, replicas, acted = nn.DataParallel, devices, f"DataParallel over {devices} devices"
    elif parallel == "dp":
        reason = "DataParallel needs several CUDA devices"
    unused = "" if parallel == "ddp" else "an option of DistributedDataParallel"
    switches = Switch("parallel", parallel, acted, reason), Switch.of("processes", engine.processes, unused)
    return Wrapper(wrap, replicas, switches)


def build_exchanges(module: nn.Module, parts: int) -> tuple[Context, ...]:
    """Return the context for each part of a batch: processes exchange gradients in the last part only."""
    return (*[getattr(module, "no_sync", contextlib.nullcontext)] * (parts - 1), contextlib.nullcontext)


def check_chunks(global_batch: int, chunk_pairs: int, shares: int) -> None:
    """Check that each share of a batch has whole chunks, so that the loss does not depend on the number of shares.

    Args:
        global_batch: pairs per step.
        chunk_pairs: pairs per chunk.
        shares: processes x replicas x accumulated parts.

    Raises:
        UserError: the global batch is not a multiple of shares x chunk_pairs.
    """
    if global_batch % (shares * chunk_pairs):
        raise UserError(
            f"train.global_batch {global_batch} is not a multiple of {shares} processes, replicas or accumulated "
            f"parts x loss.chunk_pairs {chunk_pairs}: use a multiple of {shares * chunk_pairs}, or fewer GPUs "
            "(CUDA_VISIBLE_DEVICES)"
        )
