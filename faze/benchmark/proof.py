"""The proof that a tier's training is the same experiment as the baseline's: one number, at most 1 if it is.

A fresh process takes the first steps in float64 without the tier's number format, then with it. The number is the
distance between the tier's change of the weights and the baseline's, divided by the tolerance. The tolerance is FACTOR
times the distance that rounding alone causes, which the baseline measures by nudging its first weights by one rounding.
The worst part of the network and the worst format count. Rounding may grow so fast that nothing could be detected; then
fewer steps are compared.
"""

import functools
import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.benchmark.processes import TierProcesses, answer, first_line, number_format, taking_part
from faze.config.parameters import DTED, Engine
from faze.config.stage_config import Resolved
from faze.engine.parallel import World
from faze.training.check import check
from faze.training.train import build, load_workload
from faze.training.workload import Workload

STEPS = (12, 6, 3, 1)  # to compare, most first: 12 are enough to detect a fault in every tenth step
SETTLING = 15  # first steps if a tier captures graphs, with learning rates of 0
SEEDS = (1, 2)  # of the nudges
# The share of a weight by which each number format rounds it.
ROUNDING = {"float64": 2.0**-53, "fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
FACTOR = 10.0  # tolerance over noise: reordered sums differ by 0.3 to 1.3 times the noise, bf16 by up to 2.7 times
MOST = 0.7  # of the tolerance, whatever the noise: at a distance of 1, nothing need have moved
SMALL = 0.01  # share of the whole change below which a part's is too short for a distance of its own
LOSS_SCALE = 64.0  # the default, 65536, overflows fp16 in the first steps, which would be skipped

Change = Mapping[str, Tensor]  # part of the network -> how all its weights moved; float64, on the host


def prove_tiers(config: Resolved, command: Sequence[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Compare the first steps of every tier with those of the first one, the baseline.

    Args:
        config: configuration of the stage prove.
        command: of a process that calls `take_part`.
        folder: for the proof of each tier, which is not repeated if it exists.

    Returns:
        Tier -> `number`, a row of `formats` for each number format and, if it is another experiment, `failed`.
    """
    found: dict[str, dict[str, Any]] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for tier, engine in config.engines.items():
        path = folder / f"{tier}.json"
        if not path.exists():
            try:
                with TierProcesses(tier, engine, command) as processes:
                    proof = processes.receive()[0]
            except UserError as error:
                proof = {"number": None, "failed": str(error), "formats": []}
            if not found and "failed" in proof:
                raise UserError(proof["failed"])
            with whole_file(path) as temporary:
                temporary.write_text(json.dumps(proof), encoding="utf-8")
        found[tier] = json.loads(path.read_text(encoding="utf-8"))
    shutil.rmtree(folder)
    return dict(list(found.items())[1:])


# --- in the processes of a tier ---------------------------------------------------------------------------------------


def take_part(config: Resolved, tier: str, data: Path | None, threads: int, reference: Path) -> None:
    """Take a tier's first steps and answer with its proof; the baseline writes the reference for it instead."""
    engine, baseline = config.engines[tier], next(iter(config.engines))
    settling = SETTLING if any(each.graphs for each in config.engines.values()) else 0
    with taking_part(engine, threads) as world:
        workload = load_workload(config, data, world.processes_here)
        take = functools.partial(take_steps, workload, world, engine, settling)
        if tier != baseline:
            switches = [asdict(switch) for switch in build(workload, engine, world, seed=0).switches]
            answer(prove(take, number_format(switches), torch.load(reference)))
            return
        if config.workload != DTED:
            check(workload, config.workload)
        formats = {each.precision for each in config.engines.values()}
        formats |= {"tf32" for each in config.engines.values() if each.tf32}
        found = {name: measure_noise(take, name) for name in ["float64", *sorted(formats)]}
        if world.rank == 0:
            torch.save(found, reference)
        answer({})


def take_steps(
    workload: Workload,
    world: World,
    engine: Engine,
    settling: int,
    name: str,
    wanted: Sequence[int],
    nudge: float = 0.0,
    seed: int = 0,
) -> dict[int, Change]:
    """Take steps in a number format, from nudged weights; return the change after each wanted number of steps."""
    before = torch.get_default_dtype()
    if name == "float64":
        engine = engine.model_copy(update={"precision": "fp32", "tf32": False})
        torch.set_default_dtype(torch.float64)
    try:
        training = build(workload, engine, world, seed=0)
        step, named = training.step, dict(workload.network(training.model).named_parameters())
        nudge_weights(named.values(), nudge, seed)
        for scaler in step.scalers:
            if scaler.is_enabled():
                scaler.load_state_dict(scaler.state_dict() | {"scale": LOSS_SCALE, "_growth_tracker": 0})
        first = {key: weight.detach().to("cpu", torch.float64, copy=True) for key, weight in named.items()}
        # The loss weights are those of the training's end: at its start, a term may not count yet.
        weights, found = workload.weights(workload.samples) or dict.fromkeys(training.terms, 1.0), {}
        for number, batch in enumerate(training.feed(range(settling + max(wanted))), 1 - settling):
            rates = workload.rates(max(number - 1, 0) * workload.batch_size, training.first_rates)
            step.set_learning_rates([rate * (number > 0) for rate in rates])
            step(batch, weights)
            if number in wanted:
                found[number] = change_since(first, named)
        return found
    finally:
        torch.set_default_dtype(before)


@torch.no_grad()
def nudge_weights(weights: Iterable[Tensor], share: float, seed: int) -> None:
    """Change each weight by at most a share of it."""
    generator = torch.Generator().manual_seed(seed)
    for weight in weights if share else ():
        random = torch.rand(weight.shape, generator=generator, dtype=weight.dtype)
        weight.mul_((1 + share * (2 * random - 1)).to(weight.device))


def change_since(first: Mapping[str, Tensor], named: Mapping[str, Tensor]) -> Change:
    """Return how the weights moved, by the first part of their names; numbers at its end do not count."""
    parts: dict[str, list[Tensor]] = {}
    for name, weight in named.items():
        part = name.split(".")[0]
        moved = (weight.detach().cpu().double() - first[name]).flatten()
        parts.setdefault(part.rstrip("0123456789") or part, []).append(moved)
    return {part: torch.cat(moved) for part, moved in parts.items()}


def measure_noise(take: Callable[..., dict[int, Change]], name: str) -> dict[str, Any] | str:
    """Return the baseline's `change` and each part's `tolerance` after the most comparable `steps`; or why none are."""
    try:
        wanted = take(name, STEPS)
        nudged = [take(name, STEPS, ROUNDING[name], seed) for seed in SEEDS]
    except (RuntimeError, MemoryError) as error:
        if name != "float64":
            raise
        return f"float64: {first_line(error)}"
    for steps in STEPS:
        noise = [distances(each[steps], wanted[steps]) for each in nudged]
        least = max(ROUNDING[name], *(whole for _, whole in noise))
        tolerance = {part: FACTOR * max(least, *(parts[part] for parts, _ in noise)) for part in wanted[steps]}
        if max(tolerance.values()) < MOST or steps == 1 and min(tolerance.values()) < MOST:
            return {"steps": steps, "tolerance": tolerance, "change": wanted[steps]}
    return f"{name}: rounding alone changes the first step by more than can be tolerated"


def prove(take: Callable[..., dict[int, Change]], own: str, references: Mapping[str, Any]) -> dict[str, Any]:
    """Compare a tier's steps with the baseline's, in float64 and the tier's own format; return its proof."""
    rows, missing = [], [references[name] for name in ("float64", own) if isinstance(references[name], str)]
    for name in ("float64", own):
        if not isinstance(reference := references[name], str):
            steps = reference["steps"]
            compared = compare(take(name, [steps])[steps], reference["change"], reference["tolerance"])
            rows.append({"format": name, "steps": steps} | compared)
    if not rows:  # it is not shown to be the same
        return {"number": None, "failed": "; ".join(missing), "formats": []}
    worst = max(rows, key=lambda row: row["number"])
    proof = {"number": worst["number"], "formats": rows} | ({"not_compared": "; ".join(missing)} if missing else {})
    if worst["number"] <= 1:
        return proof
    words = "in {format}, the weights of {part} move differently: by {distance:.2g}, tolerated are {tolerance:.2g}"
    return proof | {"failed": words.format(**worst)}


def compare(found: Change, wanted: Change, tolerance: Mapping[str, float]) -> dict[str, Any]:
    """Return the worst `part`, its `distance` and `tolerance`, and the `number`, their ratio."""
    gaps, _ = distances(found, wanted)
    worst = max(gaps, key=lambda part: gaps[part] / min(tolerance[part], MOST))
    allowed = min(tolerance[worst], MOST)
    return {"part": worst, "distance": gaps[worst], "tolerance": allowed, "number": gaps[worst] / allowed}


def distances(found: Change, wanted: Change) -> tuple[dict[str, float], float]:
    """Return the distance between two changes, relative to the wanted one's length: by part, and in all."""
    lengths = {part: float(change.norm()) for part, change in wanted.items()}
    gaps = {part: float((found[part] - change).norm()) for part, change in wanted.items()}
    whole = math.hypot(*lengths.values())
    if not whole or not math.isfinite(sum(gaps.values())):
        return dict.fromkeys(gaps, math.inf), math.inf
    by_part = {part: gap / max(lengths[part], SMALL * whole) for part, gap in gaps.items()}
    return by_part, math.hypot(*gaps.values()) / whole
