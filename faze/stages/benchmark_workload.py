"""Rule `benchmark_workload`: speed and memory of a workload's steps, measured like those of the rule `benchmark`."""

import contextlib
import dataclasses
from argparse import Namespace
from collections.abc import Callable
from functools import partial

import torch

from faze.base.command_line import CONFIG, command, needed, threads
from faze.base.files import whole_file, write_json
from faze.base.locks import machine_exclusive, output_lock
from faze.benchmark.processes import Job
from faze.benchmark.roofline import Work, count_step
from faze.benchmark.rounds import measure_rounds
from faze.benchmark.rows import about_rounds, tier_rows
from faze.benchmark.tier_steps import measure_roofline, measure_tier, refuse_debugging
from faze.benchmark.tier_table import markdown_tables
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved, load
from faze.engine import machine
from faze.engine.parallel import World, pick_device
from faze.training.loop import Training
from faze.training.workload_training import Losses, build_named, load_workload, parameter_groups
from faze.workloads.workload import Workload


@command(__doc__, CONFIG, threads("CPU threads for each tier"), needed("--out", "benchmark.json to write"))
def main(args: Namespace) -> None:
    """Run the benchmark and print its table."""
    config = load(args.config, "benchmark_workload")
    machine.check_torch()
    refuse_debugging()
    workload = load_workload(config.workload)
    device = pick_device(next(iter(config.engines.values())).device)
    with machine_exclusive(), output_lock(args.out):
        found = measure_rounds(
            {tier: tier_job(config, engine, args.threads) for tier, engine in config.engines.items()},
            config.benchmark,
            roofline=Job(partial(measure_roofline, device=device, threads=args.threads)),
            one_at_a_time=device.type == "cuda",
        )
        work, batch = count_workload(workload), workload.batch_size
        result = {"machine": machine.describe(), "threads": args.threads, **about_rounds(config.benchmark.rounds)}
        result |= {"work": dataclasses.asdict(work), "roof": found.rates.as_dict()}
        result |= {"tiers": tier_rows(found, work=work, batch=batch, images=batch)}
        with whole_file(args.out) as temporary:
            write_json(temporary, result)
    print(markdown_tables(result), end="")


def tier_job(config: Resolved, engine: Engine, threads: int) -> Job:
    """Return the job that measures steps with a tier's switches."""
    prepare = partial(prepare_workload, name=config.workload, engine=engine)
    block_steps = config.benchmark.block_steps
    return Job(partial(measure_tier, engine=engine, prepare=prepare, block_steps=block_steps, threads=threads), engine)


def prepare_workload(world: World, name: str, engine: Engine) -> Callable[[], Training]:
    """Return the function that builds the training of a tier in one of the benchmark's processes."""
    return partial(build_named, name, engine, world)


def count_workload(workload: Workload) -> Work:
    """Count the work of a step with SGD, in float32 on the CPU."""
    model = workload.build().train()
    groups = [group for of in parameter_groups(workload, model).values() for group in of]
    optimizer = torch.optim.SGD(groups, momentum=workload.momentum, foreach=False)
    return count_step(Losses(workload, model, contextlib.nullcontext), workload.batch(0, 0), [optimizer])
