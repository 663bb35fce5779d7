"""Rule `train`: normalised strips -> DT-ED checkpoint of one tier and seed.

With `parallel: ddp`, the stage runs torchrun with one process per device, on several nodes if PET_RDZV_ENDPOINT is set.
A killed training leaves its work folder and resumes from it. At SIGTERM, SIGUSR1 or SIGUSR2, it finishes the current
step, writes a checkpoint and exits with code 75.
"""

import contextlib
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from faze.base.command_line import CONFIG, MADE_ONCE, command, needed
from faze.base.machine_lock import machine_shared
from faze.base.output_cache import same_file
from faze.base.output_lock import output_lock
from faze.base.preemption import Preempted
from faze.config.parameters import Engine
from faze.config.stage_config import load
from faze.engine.parallel import join, launch
from faze.training.run import train


@command(
    __doc__,
    CONFIG,
    needed("--data", "store of normalised strips, with train and val people"),
    needed("--out", "checkpoint.pt to write"),
    needed("--run-log", "run.jsonl to write"),
    MADE_ONCE,
)
def main(args: Namespace) -> None:
    """Train, or resume a training."""
    config = load(args.config, "train")
    if launched(config.engine, args.out):
        return
    with writing(args.out, args.run_log), join(config.engine, config.train.threads) as world:
        train(config, args.data, world, args.out, args.run_log, args.output_cache)


def launched(engine: Engine, out: Path) -> bool:
    """Train in processes of their own if the tier needs it; ignore a signal that comes after the outputs are written.

    Args:
        engine: the switches of the tier.
        out: checkpoint to write.

    Returns:
        Whether the training has run.
    """
    before = same_file(out) if out.exists() else None
    try:
        return launch(engine, ["train", *sys.argv[1:]])
    except Preempted:
        if out.exists() and same_file(out) != before:
            return True
        raise


@contextlib.contextmanager
def writing(out: Path, run_log: Path) -> Iterator[None]:
    """Lock the outputs against other trainings, and this machine against benchmarks.

    Rank 0 locks the outputs for all processes; local rank 0 locks each machine.
    """
    with contextlib.ExitStack() as stack:
        if int(os.environ.get("RANK", 0)) == 0:
            stack.enter_context(output_lock(out))
            stack.enter_context(output_lock(run_log))
        if int(os.environ.get("LOCAL_RANK", 0)) == 0:
            stack.enter_context(machine_shared(f"the training {out.absolute()}"))
        yield
