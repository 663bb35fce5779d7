"""Rule `train`: normalised strips -> DT-ED checkpoint of one tier and seed.

Under the tier `ddp` the stage becomes torchrun with one process per device; on several nodes start it with torchrun.
A killed training leaves its work folder and resumes from it.
"""

import contextlib
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from faze.base.command_line import CONFIG, MADE_ONCE, command, needed
from faze.base.machine_lock import machine_shared
from faze.base.output_lock import sole_writer
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
    """Train, or go on training."""
    config = load(args.config, "train")
    launch(config.engine, ["train", *sys.argv[1:]])
    with writing(args.out, args.run_log), join(config.engine, config.train.threads) as world:
        train(config, args.data, world, args.out, args.run_log, args.made_once)


@contextlib.contextmanager
def writing(out: Path, run_log: Path) -> Iterator[None]:
    """Let only one training write these outputs, and none run beside a benchmark.

    The first of its processes stands for all; where there are several machines, the first on each.
    """
    with contextlib.ExitStack() as stack:
        if int(os.environ.get("RANK", 0)) == 0:
            stack.enter_context(sole_writer(out))
            stack.enter_context(sole_writer(run_log))
        if int(os.environ.get("LOCAL_RANK", 0)) == 0:
            stack.enter_context(machine_shared(f"the training {out.absolute()}"))
        yield
