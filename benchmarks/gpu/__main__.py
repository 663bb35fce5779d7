"""Effects of every switch on a CUDA machine: is it the same experiment, and what is gained at the paper's size?

    benchmarks/gpu.sh --budget-s 500

Units run in this order (units.plan), so that a short lease is spent on the most important ones:

    switch/VALUE   a small run with only this value of a switch: how it moves the weights, compared with the baseline
    check/TIER     the same with all changes up to a tier
    tier/TIER      the speed of steps of 256 pairs per device, compared with the baseline's, in fresh processes
    step/TIER      the second step on several chunks of 256 pairs, in parts, compared with the baseline's in one part
    without/TIER   the speed of the last tier without the change of this tier, compared with the last tier's

Each result is recorded at once, with the code, the machine and the sizes; the next call runs the remaining units.
Exit code 0: everything is done and passed; 1: a check failed; 3: another call is needed.
"""

import argparse
import sys
import time
from pathlib import Path

import children
from records import Records
from table import page
from units import Unit, identity, make_data, plan, run, settings

from faze.base.files import whole_file

FAILED, UNFINISHED = 1, 3


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget-s", type=float, default=500.0, help="seconds that this call may take")
    parser.add_argument("--out", type=Path, default=Path("results/gpu"), help="folder of gpu.json, gpu.md and caches")
    parser.add_argument(
        "--tiny", action="store_true", help="toy sizes, on whatever device there is; nothing is compiled"
    )
    return parser.parse_args()


def main() -> int:
    """Run the units that fit into the budget; report the remaining ones."""
    began, args = time.monotonic(), parse()
    c = settings(args.tiny)
    args.out.mkdir(parents=True, exist_ok=True)
    children.prepare(args.out / "caches", tiny=args.tiny)
    units = list(plan(c))
    records = Records(args.out / "gpu.json", identity(c))
    make_data(args.out / "strips.h5", c)
    # What ended in an error is tried again, but takes no time from what was never tried.
    waiting = [u for u in units if records[u.name] is None] + [u for u in units if records.failed(u.name)]
    while waiting:
        left = args.budget_s - (time.monotonic() - began)
        if left < records.expected_s(waiting[0].kind):
            break
        unit = waiting.pop(0)
        if not perform(unit, c, args, left, records):
            waiting.insert(0, unit)
            break
    text = page(records, units)
    with whole_file(args.out / "gpu.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(text)
    return conclude(waiting, units, records)


def perform(unit: Unit, c: dict, args: argparse.Namespace, limit_s: float, records: Records) -> bool:
    """Run a unit and record its result; return False if the budget ran out during the unit."""
    print(f"{unit.name} ...", file=sys.stderr, flush=True)
    started = time.monotonic()
    result = run(unit, c, args.out, limit_s, made_by=records.identity, tiny=args.tiny)
    if result is None:
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
        done = len(units) - len(waiting)
        print(f"{done} of {len(units)} done; give the same command again for {waiting[0].name} and what follows")
        return UNFINISHED
    print(f"all {len(units)} done" + (f", {len(failed)} failed" if failed else ""))
    return FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
