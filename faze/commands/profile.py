"""`faze profile`: the time of each operation in a step of a tier.

    faze profile --tier recompute
    faze profile --tier recompute --configfile config/width.yaml --data results/width/data/gazecapture.h5

It writes trace.json.gz (for chrome://tracing or ui.perfetto.dev), and the slowest operations as operations.txt and
operations.json: time, share of the step, rates, and share of the device's roofline peak, which a copy and a matrix
product measure in the same process.
"""

import json
import os
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from faze.base.command_line import CONFIGFILE, argument, at_least_one, command, threads
from faze.base.files import whole_file
from faze.base.locks import machine_shared
from faze.benchmark import profiling
from faze.benchmark.roofline import PhaseClock, Roofline, number_format
from faze.benchmark.tier_steps import TierSteps, build_tier_steps, read_people, tier_config
from faze.engine import machine
from faze.engine.parallel import join, launch, share

WARMUP_STEPS = 3  # minimum; a graph is captured later
COSTLIEST = 10


@command(
    __doc__,
    argument("--tier", required=True, help="name of a tier"),
    CONFIGFILE,
    argument("--data", type=Path, help="store of normalised strips (default: strips of noise)"),
    argument("--steps", type=at_least_one, default=3, help="number of steps to profile"),
    threads("CPU threads, over all processes"),
    argument("--out", type=Path, help="folder to write (default: results/NAME/profile/TIER)"),
)
def main(args: Namespace) -> None:
    """Profile; of several processes, the first one reports."""
    config = tier_config(args.configfile, args.tier)
    if launch(config.engine, ["profile", *sys.argv[1:]]):
        return
    out = args.out or Path("results") / config.name / "profile" / args.tier
    with (
        machine_shared(),
        join(config.engine, share(args.threads, config.engine)) as world,
    ):
        people = read_people(args.data, config, world.processes_here)
        write(build_tier_steps(config, config.engine, world, people), args.steps, out)


def write(tier: TierSteps, steps: int, out: Path) -> None:
    """Profile some steps, and write trace and tables into a folder."""
    world = tier.setup.world
    tier.run(tier.feed(range(max(WARMUP_STEPS, tier.step.settling_steps))))
    switches = [asdict(switch) for switch in tier.switches]
    step_ms = _undisturbed_ms(tier, steps)
    flop, traffic = profiling.count_operations(tier)
    profiler = profiling.record(tier, steps)
    world.wait()
    if world.rank:
        return
    roofline = Roofline(world.device)
    rates = {"copy": roofline.copy()["rate"], "matmul": roofline.matmul(number_format(switches))["rate"]}
    found = profiling.operations(profiler, steps, flop, traffic, on_gpu=world.device.type == "cuda")[:COSTLIEST]
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


def _undisturbed_ms(tier: TierSteps, steps: int) -> float:
    batches, clock = tier.begin(steps), PhaseClock(tier.setup.world.device)
    tier.setup.world.wait()
    with clock("steps"):
        tier.run(batches)
    return 1e3 * clock.seconds["steps"] / steps
