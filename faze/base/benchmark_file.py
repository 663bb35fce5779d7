"""Read benchmark.json: its older forms, and which memory peaks differ. Standard library only."""

from collections.abc import Mapping
from typing import Any

ENOUGH_ROUNDS = 3  # of fresh processes, to estimate their spread


def left_out_rows(leave_one_out: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the leave-one-outs of a benchmark.json: the tier whose change is left out -> its measurements."""
    if "left_out" in leave_one_out:
        return leave_one_out["left_out"]
    # Until version 0.1.0: under the key `without`, with the names without_TIER.
    return {name.removeprefix("without_"): row for name, row in leave_one_out["without"].items()}


def rounds_of(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of rounds, and the confidence and the unit of the intervals of speed-ups."""
    # Until version 0.1.0 each tier had one process, with 95 % intervals over its blocks.
    interval = benchmark.get("speed_interval", {"confidence": 0.95, "over": "blocks"})
    return {"rounds": benchmark.get("rounds", 1), **interval}


def peaks_differ(tier: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the memory ranges of two tiers over their rounds do not overlap."""
    if min(len(row.get("peaks_gib", ())) for row in (tier, other)) < ENOUGH_ROUNDS:
        return False
    return tier["peak_gib_high"] < other["peak_gib_low"] or tier["peak_gib_low"] > other["peak_gib_high"]
