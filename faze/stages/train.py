"""Train DT-ED for one tier and seed: normalised strips -> checkpoint and run log.

With `parallel: ddp`, torchrun starts one process per device. A killed training resumes from its last checkpoint.
"""

import sys
from pathlib import Path

from faze.base.machine import machine_lock
from faze.config.stage_config import Resolved
from faze.engine.machine import check_torch
from faze.engine.parallel import join, launch
from faze.training.dted_training import train


def main(*, config: Resolved, data: Path, out: Path, run_log: Path) -> None:
    """Train, or resume.

    Args:
        data: store of normalised strips, with train and val people
        out: checkpoint.pt to write
        run_log: run.jsonl to write
    """
    check_torch()
    with machine_lock(exclusive=False):
        if launch(config.engine, ["train", *sys.argv[2:]]):
            return
        with join(config.engine, config.train.threads) as world:
            train(config, data, world, out, run_log)
