"""The ladder of tiers: each rung is the one above it plus the change that it states."""

from collections.abc import Mapping
from typing import Any

from faze.config.check import ConfigError, build
from faze.config.parameters import Engine


def resolve_tier(tiers: Mapping[str, Mapping[str, Any]], tier: str) -> Engine:
    """Add up the rungs from the first to this one: the switches of a tier."""
    switches: dict[str, Any] = {}
    for rung, change in tiers.items():
        switches.update(change)
        if rung == tier:
            return build(Engine, switches)
    raise ConfigError(f"tier {tier!r} is not defined under tiers: {', '.join(tiers)}")


def leave_one_out(tiers: Mapping[str, Mapping[str, Any]], tier: str) -> dict[str, Engine]:
    """The switches of a tier with the change of one rung taken back, for every rung above the first.

    What a later rung changes too stays as that one has it: such a variant is the tier itself.

    Returns:
        The rung that is left out -> switches, in the order of the ladder; the last is the tier's own rung.
    """
    resolve_tier(tiers, tier)  # or say that it is not defined
    rungs = list(tiers)[: list(tiers).index(tier) + 1]
    rest = {out: [rung for rung in rungs if rung != out] for out in rungs[1:]}
    return {out: resolve_tier({rung: tiers[rung] for rung in left}, left[-1]) for out, left in rest.items()}
