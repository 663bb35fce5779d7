"""Tiers: how one configuration describes several runs."""

import importlib.metadata
import os

from faze.base.machine import gpus
from faze.config.parameters import Config, Engine

DEVICE = "FAZE_DEVICE"  # cpu or cuda: chosen once for all jobs, which may run on nodes with other devices


def listed(config: Config) -> tuple[str, ...]:
    """Return the tiers of the ablation, in order; run.tiers: auto stands for the list of the baseline's device."""
    return config.auto_tiers[auto_device(config)] if config.run.tiers == "auto" else config.run.tiers


def auto_device(config: Config) -> str:
    """Return the baseline's device, cpu or cuda; auto is cuda if this machine has a GPU that torch supports."""
    device = next(iter(config.tiers.values())).device
    if device != "auto":
        return device
    # torch itself takes longer to import than everything else that reads a configuration.
    supported = not importlib.metadata.version("torch").endswith("+cpu")
    return os.environ.get(DEVICE) or ("cuda" if supported and gpus() else "cpu")


def trained_tiers(config: Config) -> list[str]:
    """Return the listed tiers that are trained; the benchmark measures the others too."""
    return [tier for tier in listed(config) if config.tiers[tier].train]


def controls(config: Config) -> list[str]:
    """Return the noise controls; without another tier there is no change to compare them with."""
    return list(config.run.controls) if len(trained_tiers(config)) > 1 else []


def base_of(config: Config, tier: str) -> str | None:
    """Return the tier that a tier builds on: the stated one, the one before it in the list, or the first one."""
    first, tiers = next(iter(config.tiers)), listed(config)
    if tier == first:
        return None
    before = tiers[tiers.index(tier) - 1] if tier in tiers[1:] else first
    return config.tiers[tier].on or before


def resolve_tier(config: Config, tier: str) -> Engine:
    """Return the switches of a tier: its own, added to those of the tiers that it builds on."""
    switches, chain = {}, tier
    while chain is not None:
        switches = config.tiers[chain].model_dump(exclude={"on", "train"}, exclude_none=True) | switches
        chain = base_of(config, chain)
    return Engine(**switches)
