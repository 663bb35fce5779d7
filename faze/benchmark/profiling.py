"""The operations that take the time of a step, and how close each is to the roofline.

Operations are those that autograd dispatches, and the time of whatever they call counts as theirs. Their bytes are an
estimate: inputs read and outputs written once each.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from faze.benchmark.roofline import Traffic
from faze.benchmark.tier_steps import TierSteps


@dataclass(frozen=True)
class ProfiledOperation:
    """One kind of operation in one step."""

    name: str
    ms: float
    share: float  # of the time of all operations of the step
    flop: int | None  # None: not known
    bytes: int | None

    def rates(self, copy: float, matmul: float) -> dict[str, float | None]:
        """Compute the rates of the operation, and its share of the nearer roofline peak.

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


def count_operations(tier: TierSteps) -> tuple[dict[str, int], dict[str, int]]:
    """Count FLOP and bytes of each operation of one step; compiled or captured operations are not visible."""
    with FlopCounterMode(display=False) as counter, Traffic() as traffic:
        tier.run(tier.feed(range(1)))
    flop = {f"aten::{op.__name__}": count for op, count in counter.get_flop_counts()["Global"].items()}
    return flop, dict(traffic.of)


def record(tier: TierSteps, steps: int) -> profile:
    """Profile steps, with their phases marked in the trace."""
    activities = [ProfilerActivity.CPU]
    if tier.setup.world.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    batches = tier.begin(steps, record_function)
    with profile(activities=activities, record_shapes=True) as profiler:
        tier.run(batches, record_function)
    return profiler


def operations(
    profiler: profile, steps: int, flop: Mapping[str, int], traffic: Mapping[str, int], *, on_gpu: bool
) -> list[ProfiledOperation]:
    """Return the operations of a step, the slowest first; their shares add up to 1."""
    ms: dict[str, float] = defaultdict(float)
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CPU:
            microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            ms[_owner(event, traffic)] += microseconds / 1e3 / steps
    total = sum(ms.values()) or 1.0
    found = [ProfiledOperation(name, t, t / total, flop.get(name), traffic.get(name) or None) for name, t in ms.items()]
    return sorted(found, key=lambda operation: -operation.ms)


def _owner(event: torch.autograd.profiler_util.FunctionEvent, known: Iterable[str]) -> str:
    """Return the name of the outermost known operation around an event; without one, the event's own name."""
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
