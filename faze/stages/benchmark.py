"""Rule `benchmark`: speed and memory of every tier, in rounds of fresh processes on fixed batches.

Nothing else may run on the machine meanwhile: the rule claims every core, and the stage refuses to start where another
benchmark or a training runs, of whatever checkout and user.
"""

from argparse import SUPPRESS, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from faze.base.command_line import CONFIG, argument, command, threads
from faze.base.errors import UserError
from faze.base.files import whole_file, write_json
from faze.base.locks import machine_exclusive, output_lock
from faze.benchmark.debugging import refuse_debugging
from faze.benchmark.energy import Meter, build_meter
from faze.benchmark.memory_peak import MemoryPeak
from faze.benchmark.paper_width import at_paper_width
from faze.benchmark.processes import MeasuringProcess, measuring_command, serve
from faze.benchmark.roofline import Roofline, count_work
from faze.benchmark.rounds import measure_rounds
from faze.benchmark.rows import (
    about_rounds,
    ladder_rows,
    leave_one_out_rows,
    paper_width_rows,
    same_steps,
    without_rung,
)
from faze.benchmark.tier_steps import build_tier_steps, read_people
from faze.benchmark.tier_table import markdown_tables
from faze.config.stage_config import Resolved, load
from faze.engine import machine
from faze.engine.parallel import join, pick_device, share


@command(
    __doc__,
    CONFIG,
    argument("--data", type=Path, help="store of normalised strips"),
    threads("CPU threads of each tier in its turn"),
    argument("--out", type=Path, help="benchmark.json to write"),
    argument("--coordinator", nargs=2, metavar=("ADDRESS", "NAME"), help=SUPPRESS),
    argument("--roofline", action="store_true", help=SUPPRESS),
    argument("--tier", help=SUPPRESS),  # with --coordinator: be a measuring process
    argument("--without", metavar="RUNG", help=SUPPRESS),
    argument("--paper-width", action="store_true", help=SUPPRESS),
)
def main(args: Namespace) -> None:
    """Coordinate the benchmark, or be one of its measuring processes."""
    if not args.coordinator and not (args.data and args.out):
        raise UserError("--data and --out are needed")
    config = load(args.config, "benchmark")
    if args.coordinator:
        (measure_roofline if args.roofline else measure_tier)(config, args)
        return
    refuse_debugging()
    with machine_exclusive(), output_lock(args.out):
        rounds = about_rounds(config.benchmark.rounds)
        result = {"machine": machine.describe(), "threads": args.threads, **rounds, **measure_ladder(config, args)}
        if config.leave_one_out:
            result["leave_one_out"] = measure_leave_one_out(config, args)
        if wide := at_paper_width(config):
            result["paper_width"] = measure_paper_width(wide, args)
        with whole_file(args.out) as temporary:
            write_json(temporary, result)
    print(markdown_tables(result), end="")


def measure_ladder(config: Resolved, args: Namespace) -> dict[str, Any]:
    """Measure every tier of run.tiers, and the roofline of the device."""
    work = count_work(config.model, config.loss, config.train)
    found = measure_rounds(
        {tier: measuring_command(args, "--tier", tier, engine=engine) for tier, engine in config.engines.items()},
        config.benchmark,
        roofline=measuring_command(args, "--roofline"),
        one_at_a_time=on_gpu(config),
    )
    rows = ladder_rows(found, work=work, global_batch=config.train.global_batch)
    return {"work": asdict(work), "roof": found.rates.as_dict(), "tiers": rows}


def measure_leave_one_out(config: Resolved, args: Namespace) -> dict[str, Any]:
    """Measure the topmost tier without each of its rungs' changes, in rounds of their own after the ladder's."""
    *_, topmost = config.leave_one_out
    commands = {topmost: measuring_command(args, "--tier", topmost, engine=config.engines[topmost])}
    for rung, engine in config.leave_one_out.items():
        commands[without_rung(topmost, rung)] = measuring_command(args, "--without", rung, engine=engine)
    found = measure_rounds(
        commands,
        config.benchmark,
        one_at_a_time=on_gpu(config),
        leave_out=lambda described: same_steps(described, as_first=True),
    )
    return leave_one_out_rows(found)


def measure_paper_width(wide: Resolved, args: Namespace) -> dict[str, Any]:
    """Measure every tier at the paper's width, one at a time: few machines have the memory for all of them at once.

    Args:
        wide: the configuration at the paper's width.
        args: of the stage.
    """
    of_tier = ("--paper-width", "--tier")
    commands = {tier: measuring_command(args, *of_tier, tier, engine=engine) for tier, engine in wide.engines.items()}
    found = measure_rounds(commands, wide.benchmark, one_at_a_time=True, leave_out=same_steps)
    sizes = {"model": asdict(wide.model), "global_batch": wide.train.global_batch}
    return sizes | about_rounds(wide.benchmark.rounds) | {"tiers": paper_width_rows(found)}


def on_gpu(config: Resolved) -> bool:
    """Whether the baseline trains on a GPU, whose memory the processes of one tier have for themselves."""
    return pick_device(next(iter(config.engines.values())).device).type == "cuda"


def measure_tier(config: Resolved, args: Namespace) -> None:
    """Build the step of one tier, and run blocks when told to."""
    if args.paper_width:
        config = at_paper_width(config)
    engine = config.leave_one_out[args.without] if args.without else config.engines[args.tier]
    with join(engine, share(args.threads, engine)) as world:
        people = read_people(args.data, config, world.processes_here)
        peak = MemoryPeak(world.device)
        tier = build_tier_steps(config, engine, world, people)
        # All processes of a CPU share one counter, each GPU has its own.
        counts = world.device.type == "cuda" or world.rank == 0
        meter = build_meter(world.device, tier.step.replicas) if counts else Meter("none")
        MeasuringProcess(tier, config.benchmark.block_steps, peak, meter).serve(args.coordinator)


def measure_roofline(config: Resolved, args: Namespace) -> None:
    """Copy and multiply when told to, on the baseline's device with as many threads as a tier has."""
    torch.set_num_threads(args.threads)
    roofline = Roofline(pick_device(next(iter(config.engines.values())).device))
    serve(args.coordinator, {"rank": 0, "processes": 1}, {"copy": roofline.copy, "matmul": roofline.matmul})
