"""How batch and model are spread: one device, DataParallel over several, DistributedDataParallel over processes."""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from faze.base.errors import UserError
from faze.config.parameters import Engine
from faze.engine.parallel import World
from faze.engine.switches import Switch


@dataclass(frozen=True)
class Wrap:
    """How the model is wrapped so that its gradient is the mean over the whole global batch."""

    module: Callable[[nn.Module], nn.Module]
    replicas: int
    switches: tuple[Switch, ...]


def build_wrap(engine: Engine, world: World) -> Wrap:
    """Choose the wrapper of a tier."""
    cuda, parallel = world.device.type == "cuda", engine.parallel
    devices = torch.cuda.device_count() if cuda else 1
    make, replicas = (lambda module: module), 1
    switch = Switch("parallel", parallel, "one device")
    if parallel == "ddp":
        options = {
            "device_ids": [world.device] if cuda else None,
            "bucket_cap_mb": engine.bucket_mib or None,
        }
        switch = Switch("parallel", parallel, f"{world.size} processes, {'nccl' if cuda else 'gloo'}")
        make = functools.partial(nn.parallel.DistributedDataParallel, **options)
    elif parallel == "dp" and devices > 1:
        make, replicas = nn.DataParallel, devices
        switch = Switch("parallel", parallel, f"DataParallel over {devices} devices")
    elif parallel == "dp":
        switch = replace(switch, reason="DataParallel needs several CUDA devices")
    reason = "" if parallel == "ddp" else "an option of DistributedDataParallel"
    asked = [Switch.of(name, getattr(engine, name), reason) for name in ("processes", "bucket_mib")]
    return Wrap(make, replicas, (switch, *asked))


def build_exchanges(module: nn.Module, parts: int) -> tuple[Callable[[], contextlib.AbstractContextManager], ...]:
    """Make the context of each part of a batch: processes exchange gradients in the last one only."""
    return (*[getattr(module, "no_sync", contextlib.nullcontext)] * (parts - 1), contextlib.nullcontext)


def check_chunks(global_batch: int, chunk_pairs: int, replicas: int) -> None:
    """Check that each replica has whole chunks in each part of a batch: the loss must not depend on their number.

    Raises:
        UserError: the global batch is not a multiple of replicas x chunk.
    """
    if global_batch % (replicas * chunk_pairs):
        raise UserError(
            f"train.global_batch {global_batch} is not a multiple of {replicas} processes, replicas or accumulated "
            f"parts x loss.chunk_pairs {chunk_pairs}: take a multiple of {replicas * chunk_pairs}, or show fewer GPUs "
            "by CUDA_VISIBLE_DEVICES"
        )
