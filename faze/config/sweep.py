"""The points of a sweep: trainings of the first tier with other values of what a training knows.

A point stands where a tier's name does, so the rules of a tier are the rules of a point. The grid gives every
combination of its values; a Sobol sequence (with the direction numbers of Joe and Kuo 2008) spreads points evenly
between bounds; with both, each point of the sequence is tried with every combination.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from faze.config.check import Fault, fields_of, nearest, shown
from faze.config.stage_parameters import STAGES
from faze.config.tiers import resolve_tier
from faze.config.yaml_files import merge, unflatten

SECTIONS = ("engine", "model", "loss", "train", "data", "augment")  # a training's own; its strips are the ablation's
KINDS = {f"{name}.{key}": kind for name in SECTIONS for key, kind in fields_of(STAGES["train"][name]).items()}
BITS = 30
MOST_POINTS = 10_000
# Of each dimension after the first: the polynomial, without its ends, and the first direction numbers.
DIRECTIONS = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
    (5, 4, (1, 1, 5, 5, 5)),
    (5, 7, (1, 1, 7, 11, 19)),
)


def points(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Name each point, with its values by dotted key; there are none where nothing is swept."""
    sweep = config["sweep"]
    if not sweep["grid"] and not sweep["sobol"]:
        return {}
    grid = [dict(zip(sweep["grid"], values, strict=True)) for values in itertools.product(*sweep["grid"].values())]
    spread = list(_spread(sweep["sobol"], sweep["points"])) if sweep["sobol"] else [{}]
    found = [some | others for some in spread for others in grid]
    digits = max(2, len(str(len(found) - 1)))
    return {f"point{number:0{digits}}": values for number, values in enumerate(found)}


def at_point(config: Mapping[str, Any], point: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Give the configuration of a point: the first tier's, with its values laid over it, under a tier of its name."""
    sections = unflatten(values)
    change = sections.pop("engine", {})
    first = dataclasses.asdict(resolve_tier(config["tiers"], config["run"]["tiers"][0]))
    return merge(config, sections) | {"tiers": {"first": first, point: change}}


def check_sweep(sweep: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong with keys and bounds; values are checked where they are laid over the rest."""
    for part in ("grid", "sobol"):
        for key in sweep[part]:
            if key not in KINDS:
                known = f"a sweep varies what a training knows, of {', '.join(SECTIONS)}"
                yield Fault(f"sweep.{part}.{key}", f"{known}{nearest(key, list(KINDS))}")
    for key in sweep["grid"].keys() & sweep["sobol"].keys():
        yield Fault(f"sweep.sobol.{key}", "stands under sweep.grid too; take one of them out")
    for key, bounds in sweep["sobol"].items():
        if key in KINDS:
            yield from _check_bounds(key, bounds)
    if bool(sweep["sobol"]) != bool(sweep["points"]):
        yield Fault(
            "sweep.points", f"{sweep['points']}, with {len(sweep['sobol'])} keys under sweep.sobol: both or none"
        )
    count = math.prod(map(len, sweep["grid"].values())) * (sweep["points"] or 1)
    if count > MOST_POINTS:
        yield Fault("sweep", f"has {count} points, of which each is a training; at most {MOST_POINTS}")
    if len(sweep["sobol"]) > len(DIRECTIONS) + 1:
        yield Fault("sweep.sobol", f"spreads at most {len(DIRECTIONS) + 1} keys; put others under sweep.grid")


def _check_bounds(key: str, bounds: Sequence[Any]) -> Iterator[Fault]:
    low, high, *how = [*bounds, None, None][: max(2, len(bounds))]
    if how not in ([], ["log"]) or not all(_is_bound(end) for end in (low, high)):
        yield Fault(f"sweep.sobol.{key}", f"{shown(list(bounds))} is not [lowest, highest] or [lowest, highest, log]")
    elif not low < high or (how and low <= 0):
        yield Fault(
            f"sweep.sobol.{key}", f"{list(bounds)}: the lowest must be less than the highest, and positive for log"
        )
    elif not {int, float} & {KINDS[key], *get_args(KINDS[key])}:
        yield Fault(f"sweep.sobol.{key}", "is no number; put its values under sweep.grid")


def _is_bound(end: Any) -> bool:
    return type(end) in (int, float) and abs(end) < 2**63  # of which sums and logarithms are numbers


def _spread(sobol: Mapping[str, Sequence[Any]], count: int) -> Iterator[dict[str, Any]]:
    """Place points between bounds; the first of the sequence, where all are lowest, is left out."""
    for shares in itertools.islice(sobol_sequence(len(sobol)), 1, count + 1):
        yield {
            key: _between(key, *bounds, share=share) for (key, bounds), share in zip(sobol.items(), shares, strict=True)
        }


def _between(key: str, low: float, high: float, how: str = "", *, share: float) -> float | int:
    if int in (KINDS[key], *get_args(KINDS[key])):  # each whole number is as likely
        if how:
            return min(high, math.floor(low * ((high + 1) / low) ** share))
        return min(high, math.floor(low + share * (high + 1 - low)))
    value = low * (high / low) ** share if how else low + share * (high - low)
    return float(f"{value:.6g}")


def sobol_sequence(dimensions: int) -> Iterator[tuple[float, ...]]:
    """Yield the points of a Sobol sequence in the unit cube, in Gray code order."""
    columns = [_directions(dimension) for dimension in range(dimensions)]
    state = [0] * dimensions
    for number in itertools.count(1):
        yield tuple(value / 2**BITS for value in state)
        lowest = (number & -number).bit_length() - 1
        state = [value ^ column[lowest] for value, column in zip(state, columns, strict=True)]


def _directions(dimension: int) -> list[int]:
    """Give the direction numbers of one dimension, as integers of BITS bits."""
    if dimension == 0:
        return [1 << (BITS - 1 - bit) for bit in range(BITS)]
    degree, polynomial, first = DIRECTIONS[dimension - 1]
    found = [number << (BITS - 1 - bit) for bit, number in enumerate(first)]
    for bit in range(degree, BITS):
        number = found[bit - degree] ^ (found[bit - degree] >> degree)
        for term in range(1, degree):
            if polynomial >> (degree - 1 - term) & 1:
                number ^= found[bit - term]
        found.append(number)
    return found
