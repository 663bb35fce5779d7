"""`faze profile`: the time of each operation in a step of a tier.

    faze profile --tier recompute
    faze profile --tier recompute --configfile config/width.yaml --data results/width/data/gazecapture.h5

It writes trace.json.gz (for chrome://tracing or ui.perfetto.dev), and the slowest operations as operations.txt and
operations.json: time, share of the step, rates, and share of the device's roofline peak, which is measured with a copy
and a matrix product in the same process. Operations are those that autograd dispatches; their times include everything
that they call. The byte counts are estimates, which assume that each input is read once and each output written once.
"""

import json
import os
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from faze.base.command_line import CONFIGFILE, argument, at_least_one, command, threads
from faze.base.files import whole_file
from faze.base.locks import machine_shared
from faze.benchmark.roofline import PhaseClock, Roofline, Traffic, number_format
from faze.benchmark.tier_steps import prepare, tier_config
from faze.engine import machine
from faze.engine.parallel import join, launch, share
from faze.training.loop import Training


@dataclass(frozen=True)
class ProfiledOperation:
    """One kind of operation in one step."""

    name: str
    ms: float
    share: float  # of the time of all operations of the step
    flop: int | None  # None: not known
    bytes: int | None

    def rates(self, copy: float, matmul: float) -> dict[str, float | None]:
        """Compute the operation's rates, and its share of the roofline peak that limits it.

        Args:
            copy: peak of a copy, bytes per second.
            matmul: peak of a matrix product, FLOP per second.
        """
        flop = self.flop / self.ms * 1e3 if self.flop and self.ms else None
        traffic = self.bytes / self.ms * 1e3 if self.bytes and self.ms else None
        shares = [rate / limit for rate, limit in ((flop, matmul), (traffic, copy)) if rate]
        return {
            "gflop_per_s": flop and flop / 1e9,
            "gbytes_per_s": traffic and traffic / 1e9,
            "share_of_roof": max(shares, default=None),
        }


def count_operations(tier: Training) -> tuple[dict[str, int], dict[str, int]]:
    """Count the FLOP and bytes of each operation in one step; compiled or captured operations are not visible."""
    with FlopCounterMode(display=False) as counter, Traffic() as traffic:
        tier.run(tier.feed(range(1)))
    flop = {f"aten::{op.__name__}": count for op, count in counter.get_flop_counts()["Global"].items()}
    return flop, dict(traffic.of)


def record(tier: Training, steps: int) -> profile:
    """Profile steps, with their phases marked in the trace."""
    activities = [ProfilerActivity.CPU]
    if tier.world.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    batches = tier.begin(steps, record_function)
    with profile(activities=activities, record_shapes=True) as profiler:
        tier.run(batches, record_function)
    return profiler


def operations(
    profiler: profile, steps: int, flop: Mapping[str, int], traffic: Mapping[str, int], *, on_gpu: bool
) -> list[ProfiledOperation]:
    """Return the operations of a step, slowest first; their shares add up to 1."""
    ms: dict[str, float] = defaultdict(float)
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CPU:
            microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            ms[_owner(event, traffic)] += microseconds / 1e3 / steps
    total = sum(ms.values()) or 1.0
    found = [ProfiledOperation(name, t, t / total, flop.get(name), traffic.get(name) or None) for name, t in ms.items()]
    return sorted(found, key=lambda operation: -operation.ms)


def _owner(event: torch.autograd.profiler_util.FunctionEvent, known: Iterable[str]) -> str:
    """Return the name of the outermost known operation around an event; if there is none, the event's own name."""
    owner, ancestor = event.name, event
    while ancestor is not None:
        if ancestor.name in known:
            owner = ancestor.name
        ancestor = ancestor.cpu_parent
    return owner


def operation_table(found: Iterable[ProfiledOperation], copy: float, matmul: float) -> str:
    """Format the operations as a table, one per line."""
    lines = [f"{'operation':44s} {'ms':>9s} {'share':>7s} {'GFLOP/s':>9s} {'GB/s':>8s} {'of peak':>8s}"]
    for operation in found:
        rates = operation.rates(copy, matmul)
        cells = [
            "" if value is None else f"{value:.{digits}{kind}}"
            for value, digits, kind in zip(rates.values(), (1, 1, 0), ("f", "f", "%"), strict=True)
        ]
        lines.append(
            f"{operation.name:44.44s} {operation.ms:9.2f} {operation.share:7.1%} {cells[0]:>9s} {cells[1]:>8s} "
            f"{cells[2]:>8s}"
        )
    return "\n".join(lines) + "\n"


WARMUP_STEPS = 3  # minimum; a graph is captured later
COSTLIEST = 10


@command(
    __doc__,
    argument("--tier", required=True, help="name of a tier"),
    CONFIGFILE,
    argument("--data", type=Path, help="store of normalised strips for DT-ED (default: random strips)"),
    argument("--steps", type=at_least_one, default=3, help="number of steps to profile"),
    threads("CPU threads in total"),
    argument("--out", type=Path, help="folder to write (default: results/NAME/profile/TIER)"),
)
def main(args: Namespace) -> None:
    """Profile a tier; with several processes, only the first one reports."""
    config, engine = tier_config(args.configfile, args.tier)
    if launch(engine, ["profile", *sys.argv[1:]]):
        return
    out = args.out or Path("results") / config.name / "profile" / args.tier
    with machine_shared(), join(engine, share(args.threads, engine)) as world:
        write(prepare(world, config, engine, args.data)(), args.steps, out)


def write(tier: Training, steps: int, out: Path) -> None:
    """Profile some steps, and write the trace and the tables into a folder."""
    world = tier.world
    tier.run(tier.feed(range(max(WARMUP_STEPS, tier.step.settling_steps))))
    switches = [asdict(switch) for switch in tier.switches]
    step_ms = _undisturbed_ms(tier, steps)
    flop, traffic = count_operations(tier)
    profiler = record(tier, steps)
    world.wait()
    if world.rank:
        return
    roofline = Roofline(world.device)
    rates = {"copy": roofline.copy()["rate"], "matmul": roofline.matmul(number_format(switches))["rate"]}
    found = operations(profiler, steps, flop, traffic, on_gpu=world.device.type == "cuda")[:COSTLIEST]
    words = operation_table(found, **rates)
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


def _undisturbed_ms(tier: Training, steps: int) -> float:
    batches, clock = tier.begin(steps), PhaseClock(tier.world.device)
    tier.world.wait()
    with clock("steps"):
        tier.run(batches)
    return 1e3 * clock.seconds["steps"] / steps
