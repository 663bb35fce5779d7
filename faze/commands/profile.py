"""For people: where the time of a tier's step goes.

    faze profile --tier lean
    faze profile --tier lean --configfile config/width.yaml --data results/width/data/gazecapture.h5

Writes trace.json.gz (for chrome://tracing or ui.perfetto.dev), and the costliest operations as operations.txt and
operations.json: time, share of the step, rates, and share of the device's own roofline, a copy or a matrix product
timed in the same process.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from faze.base.command_line import Parser, at_least_one, one_sentence
from faze.base.files import whole_file
from faze.base.machine_lock import machine_shared
from faze.benchmark import profiling
from faze.benchmark.roofline import Roofline, number_format
from faze.benchmark.tier_steps import TierSteps, build_tier_steps, read_people, sections
from faze.benchmark.timing import synchronize
from faze.config.check import build
from faze.config.data_parameters import Data
from faze.config.ladder import climb
from faze.config.validation import read_config
from faze.engine import machine
from faze.engine.parallel import World, join, launch

WARMUP_STEPS = 3
COSTLIEST = 10


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_argument("--tier", required=True, help="rung of the ladder")
    parser.add_configfile()
    parser.add_argument("--data", type=Path, help="store of normalised strips; without it, strips of noise")
    parser.add_argument("--steps", type=at_least_one, default=3, help="profiled steps")
    parser.add_threads("CPU threads, over all processes")
    parser.add_argument("--out", type=Path, help="folder; default results/NAME/profile/TIER")
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Profile; the first of several processes speaks for all."""
    args = parse()
    values = read_config(args.configfile)
    engine = climb(values["tiers"], args.tier)
    launch(engine, "faze.commands.profile", sys.argv[1:])
    out = args.out or Path("results") / values["name"] / "profile" / args.tier
    with machine_shared(f"the profile {out.absolute()}"), join(engine, args.threads) as world:
        chosen = sections(values)
        people = read_people(args.data, build(Data, values["data"]), chosen["model"])
        write(build_tier_steps(engine, world, people, **chosen), world, args.steps, out)


def write(tier_steps: TierSteps, world: World, steps: int, out: Path) -> None:
    """Profile some steps and leave trace and tables in a folder."""
    for number in range(WARMUP_STEPS):
        tier_steps(number)
    switches = [asdict(switch) for switch in tier_steps.switches]
    step_ms = _undisturbed_ms(tier_steps, steps)
    flop, traffic = profiling.count_operations(tier_steps)
    profiler = profiling.record(tier_steps, steps)
    world.wait()
    if world.rank:
        return
    roofline = Roofline(world.device)
    rates = {"copy": roofline.copy()["rate"], "matmul": roofline.matmul(number_format(switches))["rate"]}
    on_gpu = world.device.type == "cuda"
    found = profiling.operations(profiler, steps, flop, traffic, on_gpu=on_gpu)[:COSTLIEST]
    words = profiling.operation_table(found, **rates)
    result = {
        "machine": machine.describe(),
        "step_ms": step_ms,
        "roof": {"copy_bytes_per_s": rates["copy"], "matmul_flop_per_s": rates["matmul"]},
        "operations": [asdict(operation) | operation.rates(**rates) for operation in found],
        "switches": switches,
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in (("operations.txt", words), ("operations.json", json.dumps(result, indent=2))):
        with whole_file(out / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    profiler.export_chrome_trace(os.fspath(out / "trace.json.gz"))
    print(f"{words}step without profiler: {step_ms:.4g} ms; trace: {out / 'trace.json.gz'}")


def _undisturbed_ms(tier_steps: TierSteps, steps: int) -> float:
    tier_steps.world.wait()
    synchronize(tier_steps.world.device)
    began = time.perf_counter()
    for number in range(steps):
        tier_steps(number)
    synchronize(tier_steps.world.device)
    return 1e3 * (time.perf_counter() - began) / steps


if __name__ == "__main__":
    sys.exit(main())
