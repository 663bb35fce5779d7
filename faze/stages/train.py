"""Rule `train`: normalised strips -> DT-ED checkpoint of one tier and seed.

Under the tier `ddp` the stage is torchrun with one process per device, of several nodes where the environment names
their meeting point. A killed training leaves its work folder and resumes from it. At SIGTERM, SIGUSR1 or SIGUSR2 it
writes a checkpoint after the step under way and ends with code 75.
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
from faze.engine.parallel import join, launch
from faze.training.run import train


@command(
    __doc__,
    CONFIG,
    needed("--data", "store of normalised strips, with train and val people"),
    needed("--out", "checkpoint.pt to write"),
    needed("--run-log", "run.jsonl to write"),
    OUTPUT_CACHE,
)
def main(args: Namespace) -> None:
    """Train, or go on training."""
    config = load(args.config, "train")
    if launched(config.engine, args.out):
        return
    with writing(args.out, args.run_log), join(config.engine, config.train.threads) as world:
        train(config, args.data, world, args.out, args.run_log, args.output_cache)


def launched(engine: Engine, out: Path) -> bool:
    """Train in processes of their own, if the tier wants that. A signal that came when all was written ends nothing."""
    before = out.stat().st_mtime_ns if out.exists() else None
    try:
        return launch(engine, ["train", *sys.argv[1:]])
    except Preempted:
        if out.exists() and out.stat().st_mtime_ns != before:
            return True
        raise


@contextlib.contextmanager
def writing(out: Path, run_log: Path) -> Iterator[None]:
    """Let only one training write these outputs, and none run beside a benchmark.

    The first of its processes stands for all; where there are several machines, the first on each.
    """
    with contextlib.ExitStack() as stack:
        if int(os.environ.get("RANK", 0)) == 0:
            stack.enter_context(output_lock(out))
            stack.enter_context(output_lock(run_log))
        if int(os.environ.get("LOCAL_RANK", 0)) == 0:
            stack.enter_context(machine_shared())
        yield
