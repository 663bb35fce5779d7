"""Effects of every switch on a CUDA machine: is it the same experiment, and what is gained at the paper's size?

    benchmarks/gpu.sh --budget-s 500

Units run in this order (units.plan), so that a short lease is spent on the most important ones:

    start/ddp      processes meet and communicate
    check/TIER     a small run with all changes of a tier: how it moves the weights, compared with the baseline
    time/GROUP-N   one round of steps of 256 pairs per device: the baseline and the group's tiers, in fresh processes
    people/...     rendered people, for the trainings
    train/TIER     a training to the end at the default's size, and its error on people that it has not seen
    step/TIER      the second step on several chunks of 256 pairs, in parts, compared with the baseline's in one part
    switch/VALUE   as check, with only this value of a switch

With --workload, the units are start, check, time and train, with the network of a case study or of your own class.

A tier is only timed after its check has passed. Each result is recorded at once, with the code, the sizes and the kind
of machine; the next call runs the remaining units, and then those that failed.
Exit code 0: everything is done and passed; 1: a unit failed; 3: another call is needed.
"""

import argparse
import fnmatch
import sys
import time
from pathlib import Path

import children
from faze.base.environment import check_environment
from records import Records
from table import page, unproved
from units import Unit, identity, make_data, plan, run, settings

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.config.parameters import DTED
from faze.engine import machine
from faze.training.workload_training import load_workload

FAILED, UNFINISHED = 1, 3
MOST_FAILURES = 2  # a unit that has failed so often is not repeated


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget-s", type=float, default=500.0, help="seconds that this call may take")
    parser.add_argument("--out", type=Path, help="folder of gpu.json, gpu.md and caches (default: results/gpu)")
    parser.add_argument(
        "--workload", default=DTED, help="faze, ssd, cgan, ... with sizes for a GPU, or package.module:Class"
    )
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="UNIT", help="names of units, such as 'time/talk-*'"
    )
    parser.add_argument("--plan", action="store_true", help="print the units with the time at which each should end")
    parser.add_argument(
        "--tiny", action="store_true", help="toy sizes, on whatever device there is; nothing is compiled"
    )
    args = parser.parse_args()
    folder = "gpu" if args.workload == DTED else f"gpu_{args.workload.replace(':', '.')}"
    args.out = args.out or Path("results") / folder
    return args


def main() -> int:
    """Run the units that fit into the budget; report the remaining ones."""
    began, args = time.monotonic(), parse()
    try:
        check_environment()
        machine.check_torch()
        config = settings(args.tiny, args.workload)
        if config["workload"] != DTED:
            load_workload(config["workload"])
    except UserError as error:
        raise SystemExit(str(error)) from None
    args.out.mkdir(parents=True, exist_ok=True)
    children.prepare(args.out / "caches", tiny=args.tiny)
    units = list(plan(config))
    records = Records(args.out / "gpu.json", {unit.name: identity(unit, config) for unit in units})
    if records.failed("start/ddp"):
        units = list(plan(config, ddp=False))
        records = Records(args.out / "gpu.json", {unit.name: identity(unit, config) for unit in units})
    if args.plan:
        print_plan(units, records)
        return 0
    make_data(args.out / "strips.h5", config)
    waiting = remaining(units, records, args.only)
    while waiting:
        left = args.budget_s - (time.monotonic() - began)
        if left < min(records.expected_s(waiting[0].kind), waiting[0].limit_s):
            break
        unit = waiting.pop(0)
        if not perform(unit, units, config, args, left, records):
            waiting.insert(0, unit)
            break
    text = page(records, units, config["workload"])
    with whole_file(args.out / "gpu.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(text)
    return conclude(waiting, units, records)


def remaining(units: list[Unit], records: Records, only: list[str]) -> list[Unit]:
    """Return the units to run, in the order of the plan: those never tried, then those that failed."""
    chosen = [unit for unit in units if any(fnmatch.fnmatch(unit.name, pattern) for pattern in only)]
    tried = [unit for unit in chosen if records.failed(unit.name) and records.failures(unit.name) < MOST_FAILURES]
    return [unit for unit in chosen if records[unit.name] is None] + tried


def print_plan(units: list[Unit], records: Records) -> None:
    """Print the units that are left, with the minute at which each ends if it takes as long as expected."""
    end_s = 0.0
    for unit in remaining(units, records, ["*"]):
        end_s += records.expected_s(unit.kind)
        print(f"{end_s / 60:5.1f} min  {unit.name}")


def perform(
    unit: Unit, units: list[Unit], config: dict, args: argparse.Namespace, left_s: float, records: Records
) -> bool:
    """Run a unit and record its result; return False if the budget ended before the unit's own limit."""
    print(f"{unit.name} ...", file=sys.stderr, flush=True)
    started, limit_s = time.monotonic(), min(left_s, unit.limit_s, 0.9 * args.budget_s)
    result, ended = run(unit, config, args.out, limit_s, unproved=unproved(records, units), tiny=args.tiny)
    if not ended and "failed" in result and limit_s == left_s:
        print(f"{unit.name}: stopped, since the budget is used up", file=sys.stderr)
        return False
    records.add(unit.name, result, time.monotonic() - started)
    return True


def conclude(waiting: list[Unit], units: list[Unit], records: Records) -> int:
    """Print failed units and the next step; return the exit code."""
    failed = [unit.name for unit in units if records.failed(unit.name)]
    for name in failed:
        print(f"{name} failed: {records[name]['failed']}")
    if waiting:
        print(f"{len(waiting)} of {len(units)} are left; give the same command again for {waiting[0].name} and others")
        return UNFINISHED
    done = sum(records[unit.name] is not None for unit in units)
    counted = f"all {done}" if done == len(units) else f"{done} of {len(units)}"
    print(f"{counted} done" + (f", {len(failed)} failed" if failed else ""))
    return FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
