"""Rule `train`: normalised strips -> DT-ED checkpoint of one tier and seed.

With `parallel: ddp` it runs torchrun with one process per device, on several nodes if the environment sets their
rendezvous. A killed run resumes from its work folder. On SIGTERM, SIGUSR1 or SIGUSR2, it finishes the current step,
writes a checkpoint and exits with code 75.
"""

import contextlib
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from faze.base.command_line import CONFIG, OUTPUT_CACHE, command, needed
from faze.base.locks import machine_shared, output_lock
from faze.base.preemption import Preempted
from faze.config.parameters import Engine
from faze.config.stage_config import load
from faze.engine.machine import check_torch
from faze.engine.parallel import join, launch
from faze.training.dted_training import train


@command(
    __doc__,
    CONFIG,
    needed("--data", "store of normalised strips, with train and val people"),
    needed("--out", "checkpoint.pt to write"),
    needed("--run-log", "run.jsonl to write"),
    OUTPUT_CACHE,
)
def main(args: Namespace) -> None:
    """Train, or resume a killed run."""
    config = load(args.config, "train")
    check_torch()
    if launched(config.engine, args.out):
        return
    with writing(args.out, args.run_log), join(config.engine, config.train.threads) as world:
        train(config, args.data, world, args.out, args.run_log, args.output_cache)


def launched(engine: Engine, out: Path, stage: str = "train") -> bool:
    """Train in separate processes if the tier requires them, and return whether it does.

    A signal that arrives after the checkpoint is written is ignored.
    """
    before = out.stat().st_mtime_ns if out.exists() else None
    try:
        return launch(engine, [stage, *sys.argv[1:]])
    except Preempted:
        if out.exists() and out.stat().st_mtime_ns != before:
            return True
        raise


@contextlib.contextmanager
def writing(out: Path, run_log: Path) -> Iterator[None]:
    """Lock the outputs against other writers, and the machine against benchmarks.

    The first process locks the outputs; the first process on each machine locks that machine.
    """
    with contextlib.ExitStack() as stack:
        if int(os.environ.get("RANK", 0)) == 0:
            stack.enter_context(output_lock(out))
            stack.enter_context(output_lock(run_log))
        if int(os.environ.get("LOCAL_RANK", 0)) == 0:
            stack.enter_context(machine_shared())
        yield
