"""Tiers and sweeps: how one configuration describes several runs."""

import dataclasses
import importlib.metadata
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from faze.base.locks import gpus
from faze.config.check import ConfigError, Fault, build, fields_of, nearest, shown
from faze.config.parameters import STAGES, Engine
from faze.config.yaml_files import merge, unflatten

ON = " on "  # in a list of tiers, before the one that a tier builds on
UNTRAINED = " (untrained)"  # after a tier that is measured, but not trained
WEIGHTS = "weights"  # the only key of a tier that is evaluated with these weights
DEVICE = "FAZE_DEVICE"  # cpu or cuda: chosen once for all jobs, which may run on nodes with other devices


def tier_bases(config: Mapping[str, Any]) -> dict[str, str | None]:
    """Return all tiers, each with the tier it builds on: the one before it, or the one after ON.

    The first one builds on the tier that sets every switch, and that one on nothing. A tier with given weights changes
    no switch, so no other builds on it.
    """
    first, given, found = next(iter(config["tiers"])), given_weights(config), {}
    for item in _items(config):
        tier, base, _ = split_item(item)
        before = next((other for other in reversed(found) if other not in given), first)
        found[tier] = None if tier == first else base or (first if tier in given else before)
    return found


def given_weights(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the tiers that are evaluated with given weights instead of being trained, each with its checkpoint."""
    return {tier: change[WEIGHTS] for tier, change in config["tiers"].items() if WEIGHTS in change}


def switch_tiers(config: Mapping[str, Any]) -> list[str]:
    """Return the tiers that consist of switches, which the benchmark measures."""
    given = given_weights(config)
    return [tier for tier in tier_bases(config) if tier not in given]


def evaluated_tiers(config: Mapping[str, Any]) -> list[str]:
    """Return the tiers to train, or to evaluate with given weights; those marked UNTRAINED are only measured."""
    return [tier for tier, _, trained in map(split_item, _items(config)) if trained]


def split_item(item: str) -> tuple[str, str | None, bool]:
    """Split an item of a list of tiers: the tier, the one that it says it builds on, and whether it is trained."""
    named = item.removesuffix(UNTRAINED)
    tier, on, base = named.partition(ON)
    return tier, base if on else None, named == item


def _items(config: Mapping[str, Any]) -> Sequence[str]:
    items = config["run"]["tiers"]
    return config["auto_tiers"][auto_device(config)] if items == "auto" else items


def auto_device(config: Mapping[str, Any]) -> str:
    """Return the device whose tiers `run.tiers: auto` stands for: cpu or cuda.

    It is that of the tier which sets every switch. If that is auto, it is cuda if this machine has a GPU and torch is
    built for CUDA; torch is not imported, since that takes longer than the rest of reading a configuration.
    """
    device = next(iter(config["tiers"].values()))["device"]
    if device != "auto":
        return device
    if DEVICE in os.environ:
        return os.environ[DEVICE]
    return "cuda" if gpus() and not importlib.metadata.version("torch").endswith("+cpu") else "cpu"


def resolve_tier(config: Mapping[str, Any], tier: str, *, without: str | None = None) -> Engine:
    """Return the switches of a tier: its changes, added to those of the tiers it builds on.

    Args:
        config: the configuration. A tier that it does not train builds on the tier that sets every switch.
        tier: name of the tier.
        without: a tier whose changes are left out.
    """
    tiers, bases = config["tiers"], tier_bases(config)
    if tier not in tiers:
        raise ConfigError(f"tier {tier!r} is not defined under tiers: {', '.join(tiers)}")
    changes = [tiers[name] for name in _chain(tiers, bases, tier) if name != without]
    switches = {switch: value for change in changes for switch, value in change.items()}
    return build(Engine, {switch: value for switch, value in switches.items() if switch != WEIGHTS})


def _chain(tiers: Mapping[str, Any], bases: Mapping[str, str | None], tier: str) -> list[str]:
    """List the tiers whose changes a tier combines, from the one that sets every switch to the tier itself."""
    first, chain = next(iter(tiers)), [tier]
    while chain[0] != first:
        chain.insert(0, bases.get(chain[0]) or first)
    return chain


def leave_one_out(config: Mapping[str, Any]) -> dict[str, Engine]:
    """Return the last tier's switches without one tier's changes, for each tier that it combines except the first.

    If a later tier sets the same switch, the later value remains, and the variant equals the tier itself.

    Returns:
        Tier whose changes are left out -> switches; the last entry is for the tier itself.
    """
    bases = tier_bases(config)
    *_, top = switch_tiers(config)
    return {out: resolve_tier(config, top, without=out) for out in _chain(config["tiers"], bases, top)[1:]}


SECTIONS = ("engine", "model", "loss", "train", "data", "augment")  # of a training; its strips belong to the ablation
KINDS = {f"{name}.{key}": kind for name in SECTIONS for key, kind in fields_of(STAGES["train"][name]).items()}
MOST_POINTS = 10_000
MOST_SOBOL_KEYS = 10


def points(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the values of each sweep point by dotted key; an empty dictionary if nothing is swept."""
    sweep = config["sweep"]
    if not sweep["grid"] and not sweep["sobol"]:
        return {}
    grid = [dict(zip(sweep["grid"], values, strict=True)) for values in itertools.product(*sweep["grid"].values())]
    spread = list(_sobol_points(sweep["sobol"], sweep["points"])) if sweep["sobol"] else [{}]
    found = [some | others for some in spread for others in grid]
    digits = max(2, len(str(len(found) - 1)))
    return {f"point{number:0{digits}}": values for number, values in enumerate(found)}


def at_point(config: Mapping[str, Any], point: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point's configuration: the first tier's with the point's values, as a tier named after the point."""
    sections = unflatten(values)
    change = sections.pop("engine", {})
    first = dataclasses.asdict(resolve_tier(config, next(iter(tier_bases(config)))))
    return merge(config, sections) | {"tiers": {"first": first, point: change}}


def at_weights(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the configuration of a tier that is only evaluated with given weights."""
    return merge(config, {"train": {"start": path, "pairs": 0}})


def check_sweep(sweep: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the errors in a sweep's keys and bounds; its values are checked with the rest of the configuration."""
    for part in ("grid", "sobol"):
        for key in sweep[part]:
            if key not in KINDS:
                known = f"a sweep can vary only training parameters, in {', '.join(SECTIONS)}"
                yield Fault(f"sweep.{part}.{key}", f"{known}{nearest(key, list(KINDS))}")
    for key in sweep["grid"].keys() & sweep["sobol"].keys():
        yield Fault(f"sweep.sobol.{key}", "is also under sweep.grid; remove one of them")
    for key, bounds in sweep["sobol"].items():
        if key in KINDS:
            yield from _check_bounds(key, bounds)
    if bool(sweep["sobol"]) != bool(sweep["points"]):
        yield Fault(
            "sweep.points", f"{sweep['points']}, with {len(sweep['sobol'])} keys under sweep.sobol: set both or neither"
        )
    count = math.prod(map(len, sweep["grid"].values())) * (sweep["points"] or 1)
    if count > MOST_POINTS:
        yield Fault("sweep", f"has {count} points, each of which is a training run; at most {MOST_POINTS} are allowed")
    if len(sweep["sobol"]) > MOST_SOBOL_KEYS:
        yield Fault("sweep.sobol", f"can vary at most {MOST_SOBOL_KEYS} keys; put the others under sweep.grid")


def _check_bounds(key: str, bounds: Sequence[Any]) -> Iterator[Fault]:
    low, high, *how = [*bounds, None, None][: max(2, len(bounds))]
    if how not in ([], ["log"]) or not all(_is_bound(end) for end in (low, high)):
        yield Fault(f"sweep.sobol.{key}", f"{shown(list(bounds))} is not [lowest, highest] or [lowest, highest, log]")
    elif not low < high or (how and low <= 0):
        yield Fault(
            f"sweep.sobol.{key}", f"{list(bounds)}: the lowest must be less than the highest, and positive for log"
        )
    elif not {int, float} & {KINDS[key], *get_args(KINDS[key])}:
        yield Fault(f"sweep.sobol.{key}", "is not a number; put its values under sweep.grid")


def _is_bound(end: Any) -> bool:
    return type(end) in (int, float) and abs(end) < 2**63  # finite sums and logarithms


def _sobol_points(sobol: Mapping[str, Sequence[Any]], count: int) -> Iterator[dict[str, Any]]:
    """Yield the points of a Sobol sequence between the bounds, except the first, which is every key's lower bound."""
    from scipy.stats import qmc  # takes a second, which only a sweep with a Sobol sequence spends

    sequence = qmc.Sobol(len(sobol), scramble=False)
    sequence.fast_forward(1)
    for shares in sequence.random(count).tolist() if count else ():
        yield {
            key: _between(key, *bounds, share=share) for (key, bounds), share in zip(sobol.items(), shares, strict=True)
        }


def _between(key: str, low: float, high: float, how: str = "", *, share: float) -> float | int:
    if int in (KINDS[key], *get_args(KINDS[key])):  # each integer is equally likely
        if how:
            return min(high, math.floor(low * ((high + 1) / low) ** share))
        return min(high, math.floor(low + share * (high + 1 - low)))
    value = low * (high / low) ** share if how else low + share * (high - low)
    return float(f"{value:.6g}")
