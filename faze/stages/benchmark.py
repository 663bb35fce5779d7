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
from faze.benchmark.energy import Meter, build_meter
from faze.benchmark.interleave import ladder_rows, leave_one_out_rows, measure, split_idle
from faze.benchmark.ledger import ledger
from faze.benchmark.measurement import MemoryPeak, refuse_debugging
from faze.benchmark.processes import ROOF, Player, player_command, players, serve
from faze.benchmark.roofline import Roof, Work, count_work
from faze.benchmark.tier_steps import build_trial, read_people
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
    parser.add_argument("--tier", help=argparse.SUPPRESS)  # with --conductor: be a player
    parser.add_argument("--conductor", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.conductor and not (args.data and args.out):
        parser.error("--data and --out are needed")
    return args


@one_sentence
def main() -> None:
    """Conduct the benchmark, or play one tier for the conductor."""
    args = parse()
    config = load(args.config, "benchmark")
    if args.conductor:
        play(config, args)
        return
    refuse_debugging()
    work = count_work(config.model, config.loss, config.train)
    with machine_alone(f"the benchmark {args.out.absolute()}"), sole_writer(args.out):
        result = {"machine": machine.describe(), "threads": args.threads, **measure_ladder(config, args, work)}
        if config.leave_one_out:
            result["leave_one_out"] = measure_leave_one_out(config, args)
        with whole_file(args.out) as temporary:
            temporary.write_text(json.dumps(result, indent=2), encoding="utf-8")
    print(ledger(result), end="")


def measure_ladder(config: Resolved, args: argparse.Namespace, work: Work) -> dict[str, Any]:
    """Every tier of run.tiers, and the roof of the device."""
    with players(commands([*config.engines, ROOF], args)) as (*tiers, roof):
        measured, rates = measure(tiers, roof, config.benchmark)
    tiers = ladder_rows(measured, rates, work=work, global_batch=config.train.global_batch)
    return {"work": asdict(work), "roof": rates.as_dict(), "tiers": tiers}


def measure_leave_one_out(config: Resolved, args: argparse.Namespace) -> dict[str, Any]:
    """The topmost tier without each of its rungs' changes, in processes of their own after the ladder's are gone."""
    full = list(config.leave_one_out)[-1].removeprefix(WITHOUT)
    with players(commands([full, *config.leave_one_out], args)) as (top, *variants):
        others, same = split_idle(top, variants)
        measured, _ = measure([top, *others], None, config.benchmark)
    return leave_one_out_rows(measured, full, same)


def commands(names: list[str], args: argparse.Namespace) -> dict[str, list[str]]:
    """Command lines of players."""
    return {name: player_command(name, args.config, args.data, args.threads) for name in names}


def play(config: Resolved, args: argparse.Namespace) -> None:
    """Be the roof, or build the step of one tier, and run blocks when told to."""
    if args.tier == ROOF:
        play_roof(config, args)
        return
    engine = (config.engines | config.leave_one_out)[args.tier]
    launch(engine, "faze.stages.benchmark", sys.argv[1:])
    with join(engine, args.threads) as world:
        people = read_people(args.data, config.data, config.model)
        # All processes of a CPU share one counter, each GPU has its own.
        meter = build_meter(world.device) if world.device.type == "cuda" or world.rank == 0 else Meter("none")
        peak = MemoryPeak(world.device)
        trial = build_trial(engine, world, people, model=config.model, loss=config.loss, train=config.train)
        Player(trial, config.benchmark.block_steps, peak, engine, meter).play(args.conductor, args.tier)


def play_roof(config: Resolved, args: argparse.Namespace) -> None:
    """Copy and multiply when told to, on the baseline's device with as many threads as a tier has."""
    device = pick_device(next(iter(config.engines.values())).device)
    torch.set_num_threads(args.threads)
    roof = Roof(device)
    hello = {"tier": ROOF, "rank": 0, "processes": 1}
    serve(args.conductor, hello, {"copy": roof.copy, "matmul": roof.matmul})


if __name__ == "__main__":
    sys.exit(main())
