"""Compare memory peaks in benchmark.json. Standard library only."""

from collections.abc import Mapping
from typing import Any

ENOUGH_ROUNDS = 3  # of fresh processes, to estimate their spread


def peaks_differ(tier: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the memory ranges of two tiers over their rounds do not overlap."""
    if min(len(row["peaks_gib"]) for row in (tier, other)) < ENOUGH_ROUNDS:
        return False
    return tier["peak_gib_high"] < other["peak_gib_low"] or tier["peak_gib_low"] > other["peak_gib_high"]
