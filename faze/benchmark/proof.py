"""The proof that a tier's training is the same experiment as the baseline's: a number that must be at most 1.

The first steps are taken in float64 and again in the tier's number format. The number is the distance between the
tier's weight changes and the baseline's, divided by the tolerance. The tolerance is OVER_NOISE times the distance that
rounding alone causes. To measure this distance, the baseline's steps are repeated from weights perturbed by one
rounding error. The result is the largest number over all parts of the network and all formats. If rounding errors grow
so fast that no fault could be detected, fewer steps are compared.

Tier and baseline draw the same random numbers in each step. Where that is impossible, dropout is turned off in both.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config as inductor

from faze.config.parameters import Engine
from faze.config.stage_config import Resolved
from faze.engine.execution import dropouts
from faze.engine.parallel import World, pick_device
from faze.engine.switches import number_format
from faze.training.check import describe
from faze.training.train import build, load_workload
from faze.training.workload import Workload, seed_draws

STEPS = (12, 6, 3, 1)  # numbers of steps to compare, largest first; 12 suffice to detect a fault in every tenth step
SETTLING = 15  # initial steps with learning rates of 0, in a tier that captures graphs
# The largest relative rounding error of each number format.
ROUNDING = {"float64": 2.0**-53, "fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
OVER_NOISE = 10.0  # tolerance over noise: reordered sums differ by 0.3 to 1.3 times the noise, bf16 by up to 2.7 times
MOST_TOLERANCE = 0.7  # upper limit, whatever the noise: weights that do not change at all have a distance of 1
SMALL_PART = 0.01  # share of the whole change; if a part changes less, its distance is relative to this share
DIFFERS = "in {format}, the weights of {part} change differently: distance {distance:.2g}, tolerance {tolerance:.2g}"
RANDOM = "random numbers differ from the baseline's: draw them in batch(), which gets the seed, or use nn.Dropout"
RANDOM_DISTANCE = 1e-3  # other draws change the weights by more than this in the first step, and rounding by less
LOSS_SCALE = 64.0  # the default, 65536, overflows fp16 in the first steps, which would be skipped

SKETCH, SAME_SKETCH = 32, 1e-6  # numbers in a sketch; relative distance up to which two sketches count as the same

Change = Mapping[str, Tensor]  # part of the network -> the changes of its weights; float64, on the host


def prove_tier(config: Resolved, data: Path | None, world: World) -> dict[str, Any]:
    """Compare the first steps of a tier with those of the baseline. Every process of the tier must call this.

    Returns:
        In the first process: `formats`, a row for each number format compared; `number`, the largest number in any row;
        `not_compared`, the reason why other formats are omitted, or ""; and if the proof failed, `failed`, the reason.
    """
    workload = load_workload(config, data, world.size)
    training = build(workload, config.engine, world, seed=0)
    formats = "float64", number_format([asdict(switch) for switch in training.switches])
    whole, dropout = world.size * training.step.shares == 1, bool(dropouts(training.model))
    with inductor.patch(fallback_random=True):  # compiled code then draws the same numbers
        # Each piece of a batch would draw other numbers.
        proof = compare_formats(workload, config, world, formats, whole or not dropout)
        if "failed" in proof and whole and dropout:  # some kernels draw other numbers in another number format
            proof = compare_formats(workload, config, world, formats, False)
    return proof


def compare_formats(
    workload: Workload, config: Resolved, world: World, formats: Iterable[str], dropout: bool
) -> dict[str, Any]:
    """Compare the first steps in each number format, with or without dropout; return the proof."""
    rows, missing, random = [], [] if dropout else ["dropout, which was off"], False
    for name in formats:
        shared = SETTLING if config.engine.graphs else 0, name, dropout
        try:
            found = take_steps(workload, config.engine, world, *shared)
        except Exception as error:  # a user's network can raise anything
            if name != "float64":
                raise
            missing.append(f"float64: {describe(error)}")
            continue
        if world.rank:
            continue
        baseline = workload, config.baseline, World(0, 1, world.device), *shared
        repeats = [take_steps(*baseline, seed) for seed in (0, 1, 2)]
        row = compare(found, repeats, name)
        if not row:
            missing.append(f"{name}: rounding alone exceeds the tolerance")
        elif name == "float64" and row["number"] > 1 and row["distance"] < OVER_NOISE * ROUNDING["fp32"]:
            missing.append("float64: the network or a loss computes in float32")
        else:
            rows.append(row)
        if not row or row["number"] > 1:
            random |= distances(take_steps(*baseline, -1)[1], repeats[0][1])[1] > RANDOM_DISTANCE
    proof = {"number": max((row["number"] for row in rows), default=None), "formats": rows}
    proof["not_compared"] = "; ".join(missing)
    failed = [DIFFERS.format(**row) for row in rows if row["number"] > 1] if rows else missing
    return proof | ({"failed": RANDOM if random else "; ".join(failed)} if failed else {})


def sketch_first_steps(config: Resolved, data: Path | None) -> list[float]:
    """Return random projections of the baseline's weight changes in its first steps in float64, if these can run.

    Their distance is about that of the changes (Charikar et al. 2002, section 3), so the same training is recognised.
    """
    engine = config.baseline.model_copy(update={"parallel": "single"})
    world = World(0, 1, pick_device(engine.device))
    try:
        changes = take_steps(load_workload(config, data), engine, world, 0, "float64", True)[max(STEPS)]
    except Exception:  # a user's network can raise anything
        return []
    moved = torch.cat([changes[part] for part in sorted(changes)])
    signs = 2 * torch.randint(2, moved.shape, generator=torch.Generator().manual_seed(0)) - 1
    return [float(part.sum()) for part in (signs * moved).tensor_split(SKETCH)]


def is_same_training(sketch: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two sketches show the same training; False if there is none."""
    return bool(sketch and other) and math.dist(sketch, other) <= SAME_SKETCH * math.hypot(*sketch)


def take_steps(
    workload: Workload, engine: Engine, world: World, settling: int, name: str, dropout: bool, seed: int = 0
) -> dict[int, Change]:
    """Take the first steps in a number format; return the changes by step count.

    The weights are perturbed if seed > 0. Every tier draws the same random numbers, and other ones if seed < 0.
    """
    before = torch.get_default_dtype()
    if name == "float64":
        engine = engine.model_copy(update={"precision": "fp32", "tf32": False})
        torch.set_default_dtype(torch.float64)
    try:
        training = build(workload, engine, world, seed=0)
        step, named = training.step, dict(workload.network(training.model).named_parameters())
        nudge(named.values(), ROUNDING[name] * (seed > 0), seed)
        for part, probability in () if dropout else dropouts(training.model):
            setattr(part, probability, 0.0)
        for scaler in step.scalers:
            scaler.update(LOSS_SCALE)
        named = {key: torch.view_as_real(w) if w.is_complex() else w for key, w in named.items()}
        first = {key: weight.detach().to("cpu", torch.float64, copy=True) for key, weight in named.items()}
        # Use the loss weights from the end of training, because some may be 0 at the start.
        weights, found = workload.weights(workload.samples), {}
        for number, batch in enumerate(training.feed(range(settling + max(STEPS))), 1 - settling):
            rates = workload.rates(max(number - 1, 0) * workload.batch_size, training.first_rates)
            step.set_learning_rates([rate * (number > 0) for rate in rates])
            seed_draws(int(seed < 0), number + settling)
            step(batch, weights)
            if number in STEPS:
                found[number] = change_since(first, named)
        return found
    finally:
        torch.set_default_dtype(before)


@torch.no_grad()
def nudge(weights: Iterable[Tensor], share: float, seed: int) -> None:
    """Change each weight randomly by at most the fraction `share` of its value."""
    generator = torch.Generator().manual_seed(seed)
    for weight in weights if share else ():
        random = torch.rand(weight.shape, generator=generator, dtype=weight.dtype)
        weight.mul_((1 + share * (2 * random - 1)).to(weight.device))


def change_since(first: Mapping[str, Tensor], named: Mapping[str, Tensor]) -> Change:
    """Return the weight changes, grouped by the first component of each name, stripped of trailing digits."""
    parts: dict[str, list[Tensor]] = {}
    for name, weight in named.items():
        part = name.split(".")[0]
        moved = (weight.detach().cpu().double() - first[name]).flatten()
        parts.setdefault(part.rstrip("0123456789") or part, []).append(moved)
    return {part: torch.cat(moved) for part, moved in parts.items()}


def compare(found: Mapping[int, Change], repeats: Sequence[Mapping[int, Change]], name: str) -> dict[str, Any] | None:
    """Compare weight changes with the baseline's, `repeats[0]`; the other repeats start from perturbed weights.

    Returns:
        `format`, the largest comparable number of `steps`, the worst `part`, its `distance` and `tolerance`, and
        their ratio `number`; None if rounding would hide any difference.
    """
    for steps in STEPS:
        wanted, *nudged = (changes[steps] for changes in repeats)
        noise = [distances(each, wanted) for each in nudged]
        least = max(ROUNDING[name], *(whole for _, whole in noise))
        tolerance = {part: OVER_NOISE * max(least, *(parts[part] for parts, _ in noise)) for part in wanted}
        if max(tolerance.values()) < MOST_TOLERANCE:
            break
    if min(tolerance.values()) >= MOST_TOLERANCE:
        return None
    gaps, _ = distances(found[steps], wanted)
    numbers = {part: gap / min(tolerance[part], MOST_TOLERANCE) for part, gap in gaps.items()}
    part = max(numbers, key=lambda each: numbers[each])
    row = {"format": name, "steps": steps, "part": part, "distance": gaps[part]}
    return row | {"tolerance": min(tolerance[part], MOST_TOLERANCE), "number": numbers[part]}


def distances(found: Change, wanted: Change) -> tuple[dict[str, float], float]:
    """Return the distance between two changes, relative to the norm of `wanted`, by part and in total."""
    lengths = {part: float(change.norm()) for part, change in wanted.items()}
    gaps = {part: float((found[part] - change).norm()) for part, change in wanted.items()}
    whole = math.hypot(*lengths.values())
    if not whole or not math.isfinite(sum(gaps.values())):
        return dict.fromkeys(gaps, math.inf), math.inf
    by_part = {part: gap / max(lengths[part], SMALL_PART * whole) for part, gap in gaps.items()}
    return by_part, math.hypot(*gaps.values()) / whole
