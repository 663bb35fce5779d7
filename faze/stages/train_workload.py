"""Rule `train_workload`: a workload -> checkpoint and run log of one tier and seed.

Processes, resumption and signals are those of the rule `train`.
"""

from argparse import Namespace

from faze.base.command_line import CONFIG, OUTPUT_CACHE, command, needed
from faze.config.stage_config import load
from faze.engine.machine import check_torch
from faze.engine.parallel import join
from faze.stages.train import launched, writing
from faze.training.workload_training import train_workload


@command(
    __doc__,
    CONFIG,
    needed("--out", "checkpoint.pt to write"),
    needed("--run-log", "run.jsonl to write"),
    OUTPUT_CACHE,
)
def main(args: Namespace) -> None:
    """Train, or resume a killed run."""
    config = load(args.config, "train_workload")
    check_torch()
    if launched(config.engine, args.out, stage="train_workload"):
        return
    with writing(args.out, args.run_log), join(config.engine, config.train.threads) as world:
        train_workload(config, world, args.out, args.run_log, args.output_cache)
