"""What the readers of benchmark.json share: its older forms, and what its peaks show. Standard library only."""

from collections.abc import Mapping
from typing import Any

ENOUGH_ROUNDS = 3  # of fresh processes, to tell their spread


def left_out_rows(leave_one_out: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Read the leave-one-outs of a benchmark.json: the rung that is left out -> what was measured without it."""
    if "left_out" in leave_one_out:
        return leave_one_out["left_out"]
    # Until version 0.1.0 they stood under `without`, each as without_RUNG.
    return {name.removeprefix("without_"): row for name, row in leave_one_out["without"].items()}


def rounds_of(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Read how many rounds of fresh processes there were, and what the intervals of speed-ups are: confidence, over."""
    # Until version 0.1.0 each tier had one process, and intervals over its blocks were of 95 %.
    interval = benchmark.get("speed_interval", {"confidence": 0.95, "over": "blocks"})
    return {"rounds": benchmark.get("rounds", 1), **interval}


def peaks_differ(tier: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the memory of two tiers differs by more than that of their rounds: least and most do not overlap."""
    if min(len(row.get("peaks_gib", ())) for row in (tier, other)) < ENOUGH_ROUNDS:
        return False
    return tier["peak_gib_high"] < other["peak_gib_low"] or tier["peak_gib_low"] > other["peak_gib_high"]
