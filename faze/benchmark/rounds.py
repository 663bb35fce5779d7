"""Rounds of the benchmark: each starts fresh processes of every tier, in a random order.

What differs between two processes that do the same (where their memory lies, how the allocator cut it up, which peak it
came to) is thereby in what is measured, as what differs between two blocks is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from faze.base.progress import Progress
from faze.benchmark.fork_server import ForkServer
from faze.benchmark.interleave import RooflineRates, TierRound, measure
from faze.benchmark.processes import Command, fork_servers, measuring_processes
from faze.config.parameters import Benchmark

ROOFLINE = "the roofline"

Descriptions = Mapping[str, Mapping[str, Any]]  # of a process of each tier, by tier
Same = dict[str, tuple[str, str]]  # a tier -> the one whose step it does, and why


@dataclass(frozen=True)
class Rounds:
    """What was measured of each tier in each round."""

    tiers: dict[str, list[TierRound]]
    same: Same  # tiers that were left out after the first round, since they do the step of another
    rates: RooflineRates = field(default_factory=RooflineRates)


def measure_rounds(
    commands: Mapping[str, Command],
    benchmark: Benchmark,
    *,
    roofline: Command | None = None,
    one_at_a_time: bool = False,
    leave_out: Callable[[Descriptions], Same] = lambda _: {},
) -> Rounds:
    """Measure every tier in benchmark.rounds rounds.

    Args:
        commands: of the measuring processes of each tier.
        benchmark: how many rounds, and blocks in each.
        roofline: command of the process that measures it; with it, the phases of the steps are timed too.
        one_at_a_time: start a tier's processes when those before have ended, for their memory, instead of interleaving.
        leave_out: finds the tiers that need no further round, once all have described themselves in the first.
    """
    random = np.random.default_rng(0)
    found = Rounds({tier: [] for tier in commands}, {})
    progress = Progress("benchmark", benchmark.rounds, "rounds")
    for number in range(benchmark.rounds):
        needed = {tier: commands[tier] for tier in map(str, random.permutation(list(found.tiers)))}
        needed |= {ROOFLINE: roofline} if roofline else {}
        with fork_servers(needed.values()) as servers:
            for group in [{name: needed[name]} for name in needed] if one_at_a_time else [needed]:
                _measure_group(servers, group, benchmark, found, phases=bool(roofline))
        if number == 0:
            found.same.update(leave_out({tier: rounds[0].description for tier, rounds in found.tiers.items()}))
            for tier in found.same:
                del found.tiers[tier]
        progress(number + 1)
    return found


def _measure_group(
    servers: Mapping[bool, ForkServer],
    commands: Mapping[str, Command],
    benchmark: Benchmark,
    found: Rounds,
    *,
    phases: bool,
) -> None:
    """Start the processes of these tiers, perhaps of the roofline, and add what they measure side by side."""
    with measuring_processes(servers, commands) as started:
        tiers = [processes for processes in started if processes.name != ROOFLINE]
        roofline = next((processes for processes in started if processes.name == ROOFLINE), None)
        measured = measure(tiers, benchmark, found.rates, roofline, phases=phases)
    for tier, result in zip(tiers, measured, strict=True):
        found.tiers[tier.name].append(result)
