"""Tiers: each has the switches of the tier above it plus the changes that it states."""

from collections.abc import Mapping
from typing import Any

from faze.config.check import ConfigError, build
from faze.config.parameters import Engine


def resolve_tier(tiers: Mapping[str, Mapping[str, Any]], tier: str) -> Engine:
    """Return the switches of a tier: the changes of all tiers from the first to this one."""
    switches: dict[str, Any] = {}
    for name, change in tiers.items():
        switches.update(change)
        if name == tier:
            return build(Engine, switches)
    raise ConfigError(f"tier {tier!r} is not defined under tiers: {', '.join(tiers)}")


def leave_one_out(tiers: Mapping[str, Mapping[str, Any]], tier: str) -> dict[str, Engine]:
    """Return the switches of a tier without the change of one other tier, for each tier after the first.

    If a later tier sets the same switch, its value remains, and the variant is the tier itself.

    Returns:
        Tier whose change is left out -> switches, in ablation order; the last is the tier itself.
    """
    resolve_tier(tiers, tier)  # raises an error if it is not defined
    names = list(tiers)[: list(tiers).index(tier) + 1]
    rest = {out: [name for name in names if name != out] for out in names[1:]}
    return {out: resolve_tier({name: tiers[name] for name in left}, left[-1]) for out, left in rest.items()}
