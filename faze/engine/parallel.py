"""Devices and processes that train together: how they start, communicate and end, and how they share a model."""

import contextlib
import ctypes
import datetime
import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from faze.base.errors import UserError
from faze.base.machine import LAUNCHER
from faze.config.parameters import Engine
from faze.engine.graphs import drop_captured
from faze.engine.switches import Switch

# A rank may wait while another one writes a checkpoint, or until an orphaned run releases its lock.
PATIENCE = datetime.timedelta(hours=12)


@dataclass(frozen=True)
class World:
    """This process's position among the processes that train together."""

    rank: int
    size: int
    device: torch.device

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def wait(self) -> None:
        """Wait until every process has reached this call."""
        if self.size > 1:
            dist.barrier()


def pick_device(device: str) -> torch.device:
    """Return the device of this process; raise UserError if `device` is cuda but torch finds no GPU."""
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("engine.device is cuda, but torch finds no CUDA device; set it to auto or cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def count_processes(engine: Engine) -> int:
    """Return the number of processes that train a tier on this machine; raise UserError if there are fewer GPUs."""
    if engine.parallel != "ddp":
        return 1
    if pick_device(engine.device).type == "cpu":
        return engine.processes or 2
    gpus = torch.cuda.device_count()
    if engine.processes > gpus:
        raise UserError(f"engine.processes {engine.processes}: this machine has {gpus} GPUs; set it to 0 to use all")
    return engine.processes or gpus


def share(threads: int, engine: Engine) -> int:
    """Return the number of CPU threads per process when the processes of a tier share `threads` threads."""
    return max(threads // count_processes(engine), 1)


def launch(engine: Engine, command: Sequence[str]) -> bool:
    """Run a command with torchrun, one process per device; return False if this process must run it itself."""
    if engine.parallel != "ddp" or (LAUNCHER in os.environ and "RANK" in os.environ):
        return False
    options = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={count_processes(engine)}"]
    environment = os.environ | {LAUNCHER: str(os.getpid()), "OMP_NUM_THREADS": "1"}  # overridden by join()
    torchrun = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "faze", *command]
    if subprocess.run(torchrun, env=environment, check=False).returncode:
        raise UserError("a training process failed; see its output above. Repeat the command to resume")
    return True


def rank_environments(engine: Engine) -> list[dict[str, str]]:
    """Return the environment variables that torchrun would set in each process, to start processes without torchrun."""
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
    torch.set_num_threads(threads)
    if engine.parallel != "ddp":
        yield World(0, 1, device)
        return
    end_with_parent()
    cuda = device.type == "cuda"
    # If given the device, NCCL connects now instead of during the first step.
    dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE, device_id=device if cuda else None)
    yield World(dist.get_rank(), dist.get_world_size(), device)
    drop_captured()
    dist.destroy_process_group()


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends. Otherwise, workers would survive a killed torchrun."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def build_wrapper(engine: Engine, world: World) -> tuple[Callable[[nn.Module], nn.Module], int, tuple[Switch, ...]]:
    """Choose the wrapper that averages the model's gradient over the whole global batch.

    Return a function that wraps the model if needed, the number of replicas in this process, and the switches' reports.
    """
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
    unused = "" if parallel == "ddp" else "only DistributedDataParallel uses it"
    switches = Switch("parallel", parallel, acted, reason), Switch.of("processes", engine.processes, unused)
    return wrap, replicas, switches
