"""Rule `train`: train one tier with one seed -> checkpoint and run log.

DT-ED is trained on normalised strips, whereas a user's class generates its own batches. With `parallel: ddp`, torchrun
starts one process per device. A killed run resumes from its last checkpoint.
"""

import sys
from pathlib import Path

from faze.base.machine import machine_lock
from faze.config.stage_config import Resolved
from faze.engine.parallel import join, launch
from faze.training.train import train


def main(*, config: Resolved, data: Path | None = None, out: Path, run_log: Path) -> None:
    """Train, or resume a training run; only DT-ED needs `data`."""
    with machine_lock(exclusive=False):
        if launch(config.engine, ["train", *sys.argv[2:]]):
            return
        with join(config.engine, config.train.threads) as world:
            train(config, data, world, out, run_log)
