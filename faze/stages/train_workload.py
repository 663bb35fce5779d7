"""Train a workload for one tier and seed, like the stage train."""

import sys
from pathlib import Path

from faze.base.machine import machine_lock
from faze.config.stage_config import Resolved
from faze.engine.machine import check_torch
from faze.engine.parallel import join, launch
from faze.training.workload_training import train_workload


def main(*, config: Resolved, out: Path, run_log: Path) -> None:
    """Train, or resume.

    Args:
        out: checkpoint.pt to write
        run_log: run.jsonl to write
    """
    check_torch()
    with machine_lock(exclusive=False):
        if launch(config.engine, ["train_workload", *sys.argv[2:]]):
            return
        with join(config.engine, config.train.threads) as world:
            train_workload(config, world, out, run_log)
