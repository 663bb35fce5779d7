"""Rule `benchmark`: speed and memory of every tier, interleaved in fresh processes on fixed batches.

Nothing else may run on the machine meanwhile: the rule claims every core, and the stage refuses to start where another
benchmark or a training runs, of whatever checkout and user.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from faze.base.command_line import Parser, one_sentence
from faze.base.files import whole_file
from faze.base.machine_lock import machine_alone
from faze.base.output_lock import sole_writer
from faze.benchmark.debugging import refuse_debugging
from faze.benchmark.energy import Meter, build_meter
from faze.benchmark.interleave import ladder_rows, leave_one_out_rows, measure, split_idle
from faze.benchmark.memory_peak import MemoryPeak
from faze.benchmark.processes import ROOFLINE, MeasuringProcess, measuring_processes, process_command, serve
from faze.benchmark.roofline import Roofline, Work, count_work
from faze.benchmark.tier_steps import build_tier_steps, read_people
from faze.benchmark.tier_table import markdown_tables
from faze.config.ladder import WITHOUT
from faze.config.stage_config import Resolved, load
from faze.engine import machine
from faze.engine.parallel import join, launch, pick_device


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_config()
    parser.add_argument("--data", type=Path, help="store of normalised strips")
    parser.add_threads("CPU threads of each tier in its turn")
    parser.add_argument("--out", type=Path, help="benchmark.json to write")
    parser.add_argument("--tier", help=argparse.SUPPRESS)  # with --coordinator: be a measuring process
    parser.add_argument("--coordinator", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.coordinator and not (args.data and args.out):
        parser.error("--data and --out are needed")
    return args


@one_sentence
def main() -> None:
    """Coordinate the benchmark, or be one of its measuring processes."""
    args = parse()
    config = load(args.config, "benchmark")
    if args.coordinator:
        measure_tier(config, args)
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


def measure_ladder(config: Resolved, args: argparse.Namespace, work: Work) -> dict[str, Any]:
    """Every tier of run.tiers, and the roofline of the device."""
    with measuring_processes(commands([*config.engines, ROOFLINE], args)) as (*tiers, roofline):
        measured, rates = measure(tiers, roofline, config.benchmark)
    tiers = ladder_rows(measured, rates, work=work, global_batch=config.train.global_batch)
    return {"work": asdict(work), "roof": rates.as_dict(), "tiers": tiers}


def measure_leave_one_out(config: Resolved, args: argparse.Namespace) -> dict[str, Any]:
    """The topmost tier without each of its rungs' changes, in processes of their own after the ladder's are gone."""
    full = list(config.leave_one_out)[-1].removeprefix(WITHOUT)
    with measuring_processes(commands([full, *config.leave_one_out], args)) as (top, *variants):
        others, same = split_idle(top, variants)
        measured, _ = measure([top, *others], None, config.benchmark)
    return leave_one_out_rows(measured, full, same)


def commands(names: list[str], args: argparse.Namespace) -> dict[str, list[str]]:
    """Command lines of measuring processes."""
    return {name: process_command(name, args.config, args.data, args.threads) for name in names}


def measure_tier(config: Resolved, args: argparse.Namespace) -> None:
    """Time the roofline, or build the step of one tier, and run blocks when told to."""
    if args.tier == ROOFLINE:
        serve_roofline(config, args)
        return
    engine = (config.engines | config.leave_one_out)[args.tier]
    launch(engine, "faze.stages.benchmark", sys.argv[1:])
    with join(engine, args.threads) as world:
        people = read_people(args.data, config.data, config.model)
        # All processes of a CPU share one counter, each GPU has its own.
        meter = build_meter(world.device) if world.device.type == "cuda" or world.rank == 0 else Meter("none")
        peak = MemoryPeak(world.device)
        tier_steps = build_tier_steps(engine, world, people, model=config.model, loss=config.loss, train=config.train)
        MeasuringProcess(tier_steps, config.benchmark.block_steps, peak, engine, meter).serve(
            args.coordinator, args.tier
        )


def serve_roofline(config: Resolved, args: argparse.Namespace) -> None:
    """Copy and multiply when told to, on the baseline's device with as many threads as a tier has."""
    device = pick_device(next(iter(config.engines.values())).device)
    torch.set_num_threads(args.threads)
    roofline = Roofline(device)
    description = {"tier": ROOFLINE, "rank": 0, "processes": 1}
    serve(args.coordinator, description, {"copy": roofline.copy, "matmul": roofline.matmul})


if __name__ == "__main__":
    sys.exit(main())
