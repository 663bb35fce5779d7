"""Rule `benchmark`: speed and memory of every tier, interleaved in fresh processes on fixed batches.

Nothing else may run on the machine meanwhile: the rule claims every core, and the stage refuses to start where another
benchmark or a training runs, of whatever checkout and user.
"""

import json
import sys
from argparse import SUPPRESS, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from faze.base.command_line import CONFIG, argument, command, threads
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.machine_lock import machine_alone
from faze.base.output_lock import sole_writer
from faze.benchmark.debugging import refuse_debugging
from faze.benchmark.energy import Meter, build_meter
from faze.benchmark.interleave import dismiss_same, ladder_row, leave_one_out_rows, measure
from faze.benchmark.memory_peak import MemoryPeak
from faze.benchmark.processes import MeasuringProcess, measuring_processes, process_command, serve
from faze.benchmark.roofline import Roofline, Work, count_work
from faze.benchmark.tier_steps import build_tier_steps, read_people
from faze.benchmark.tier_table import markdown_tables
from faze.config.stage_config import Resolved, load
from faze.engine import machine
from faze.engine.parallel import join, launch, pick_device


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
    work = count_work(config.model, config.loss, config.train)
    with machine_alone(f"the benchmark {args.out.absolute()}"), sole_writer(args.out):
        result = {"machine": machine.describe(), "threads": args.threads, **measure_ladder(config, args, work)}
        if config.leave_one_out:
            result["leave_one_out"] = measure_leave_one_out(config, args)
        with whole_file(args.out) as temporary:
            temporary.write_text(json.dumps(result, indent=2), encoding="utf-8")
    print(markdown_tables(result), end="")


def measure_ladder(config: Resolved, args: Namespace, work: Work) -> dict[str, Any]:
    """Measure every tier of run.tiers, and the roofline of the device."""
    commands = {tier: process_command(args, "--tier", tier) for tier in config.engines}
    with measuring_processes(commands | {"the roofline": process_command(args, "--roofline")}) as (*tiers, roofline):
        results, rates = measure(tiers, roofline, config.benchmark)
    batch = config.train.global_batch
    rows = {result.name: ladder_row(result, results[0], rates, work=work, global_batch=batch) for result in results}
    return {"work": asdict(work), "roof": rates.as_dict(), "tiers": rows}


def measure_leave_one_out(config: Resolved, args: Namespace) -> dict[str, Any]:
    """Measure the topmost tier without each of its rungs' changes, in processes of their own after the ladder's."""
    *_, topmost = config.leave_one_out
    commands = {topmost: process_command(args, "--tier", topmost)}
    commands |= {f"{topmost} without {rung}": process_command(args, "--without", rung) for rung in config.leave_one_out}
    with measuring_processes(commands) as (full, *others):
        variants, same = dismiss_same(full, dict(zip(config.leave_one_out, others, strict=True)))
        (of_full, *rest), _ = measure([full, *variants.values()], None, config.benchmark)
    return leave_one_out_rows(of_full, dict(zip(variants, rest, strict=True)), same)


def measure_tier(config: Resolved, args: Namespace) -> None:
    """Build the step of one tier, and run blocks when told to."""
    engine = config.leave_one_out[args.without] if args.without else config.engines[args.tier]
    launch(engine, ["benchmark", *sys.argv[1:]])
    with join(engine, args.threads) as world:
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
