"""Prove that a tier's training is the same experiment as the baseline's, before the tier is trained or timed."""

import json
import os
import sys
from pathlib import Path

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.machine import machine_lock
from faze.benchmark.proof import first_line, prove_tier
from faze.config.parameters import DTED
from faze.config.stage_config import Resolved
from faze.engine.machine import check_torch
from faze.engine.parallel import join, launch
from faze.training.check import check
from faze.training.train import load_workload


def main(*, config: Resolved, data: Path | None = None, out: Path) -> None:
    """Write a tier's proof; for the baseline, only check the workload. Only DT-ED needs `data`."""
    check_torch()
    proof = {"number": 0.0, "formats": []}
    with machine_lock(exclusive=False):
        if config.engine != config.baseline:
            try:
                if launch(config.engine, ["prove", *sys.argv[2:]]):
                    return
                with join(config.engine, config.train.threads) as world:
                    proof = prove_tier(config, data, world)
            except (UserError, RuntimeError, MemoryError) as error:
                if "RANK" in os.environ:  # torchrun ends the other processes
                    raise
                proof = {"number": None, "failed": first_line(error), "formats": []}
        elif config.workload != DTED:
            check(load_workload(config), config.workload)
    if os.environ.get("RANK", "0") == "0":
        with whole_file(out) as temporary:
            temporary.write_text(json.dumps(proof), encoding="utf-8")
        said = f"another experiment: {proof['failed']}" if "failed" in proof else "the same experiment"
        print(f"{config.tier}: {said}")
