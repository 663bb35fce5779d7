"""Proofs that the step of every tier moves a workload's weights as the baseline's does.

The first steps are repeated in fresh processes: in float64 without the tier's number format, where rounding is
negligible, and in float32 with it. The tolerance is a multiple of what rounding does to the baseline's own steps
(`faze.benchmark.weight_changes`). In float32 and coarser formats, rounding errors can grow so fast that soon any two
trainings differ; then fewer steps are compared. A tier that fails is another experiment, whose speed says nothing about
the baseline.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch

from faze.base.errors import UserError
from faze.benchmark.processes import Job, TierProcesses, answer_requests, benchmark_processes, fork_servers
from faze.benchmark.weight_changes import (
    MOST,
    ROUNDING,
    Moved,
    compare,
    number_format_of,
    take_steps,
    tolerances_of,
)
from faze.config.parameters import Engine
from faze.engine.machine import lacks_memory
from faze.engine.parallel import World, join, share
from faze.training.loop import Training

STEPS = (12, 6, 3, 1)  # to compare, most first: 12 are enough to detect a fault in every tenth step
SEEDS = (1, 2)  # of the nudges of the first weights

Build = Callable[[Engine, World], Training]


@dataclass(frozen=True)
class Reference:
    """The baseline's first steps in a number format, and their repetitions from nudged first weights."""

    steps: int
    moved: Moved
    noise: Sequence[Moved]


def prove_tiers(engines: Mapping[str, Engine], build: Build, threads: int) -> dict[str, dict[str, Any]]:
    """Compare the first steps of every tier with those of the first tier, the baseline.

    Args:
        engines: switches of each tier.
        build: builds the training of a tier; picklable.
        threads: total number of CPU threads for all processes of a tier.

    Returns:
        Tier -> `float64` and `float32` (number `format`, `steps`, results of `compare`) or `not_compared` (why not),
        `switches`, and `failed` if the tier differs or failed.
    """
    jobs = {
        tier: Job(partial(answer_moves, engine=engine, build=build, threads=threads), engine)
        for tier, engine in engines.items()
    }
    first, *others = engines
    found: dict[str, dict[str, Any]] = {}
    with fork_servers(jobs.values()) as servers:
        references: dict[str, Reference | str] = {}  # or why the workload does not run in that number format
        with benchmark_processes(servers, {first: jobs[first]}) as [baseline]:
            found[first] = {"switches": baseline.description["switches"]}
            for tier in others:
                for number_format in {"float64", number_format_of(engines[tier])} - references.keys():
                    references[number_format] = _repeat(baseline, number_format)
        for tier in others:
            try:
                with benchmark_processes(servers, {tier: jobs[tier]}) as [process]:
                    found[tier] = _prove(process, engines[tier], references) | {
                        "switches": process.description["switches"]
                    }
            except UserError as error:
                found[tier] = {"failed": str(error), "switches": []}
    return found


def _repeat(baseline: TierProcesses, number_format: str) -> Reference | str:
    """Take as many steps as rounding leaves comparable, in all parts of the network or, after one step, in any.

    Returns:
        The steps, or the reason why nothing can be compared.
    """
    dtype, nudge = ("float64" if number_format == "float64" else "float32"), ROUNDING[number_format]
    for steps in STEPS:
        try:
            moved = _ask(baseline, dtype, steps)
            noise = [_ask(baseline, dtype, steps, nudge, seed) for seed in SEEDS]
        except UserError as error:
            if number_format != "float64":
                raise
            return str(error)
        tolerances = tolerances_of(moved, noise, number_format).values()
        if max(tolerances) < MOST or steps == 1 and min(tolerances) < MOST:
            return Reference(steps, moved, noise)
    return f"{number_format}: rounding alone changes the first step by more than can be tolerated"


def _prove(process: TierProcesses, engine: Engine, references: Mapping[str, Reference | str]) -> dict[str, Any]:
    compared: dict[str, dict] = {}
    formats = {"float64": "float64", "float32": number_format_of(engine)}
    for dtype, number_format in formats.items():
        if isinstance(reference := references[number_format], Reference):
            moved = _ask(process, dtype, reference.steps)
            found = compare(moved, reference.moved, reference.noise, number_format)
            compared[dtype] = {"format": number_format, "steps": reference.steps} | found
    failed = [f"{dtype} {each['failed']}" for dtype, each in compared.items() if "failed" in each]
    missing = [why for number_format in formats.values() if isinstance(why := references[number_format], str)]
    failed += [] if compared else missing  # a tier that cannot be compared is not shown to be the same
    without = {"not_compared": "; ".join(missing)} if missing else {}
    return compared | without | ({"failed": "; ".join(failed)} if failed else {})


def _ask(process: TierProcesses, dtype: str, steps: int, nudge: float = 0.0, seed: int = 0) -> Moved:
    moved = process.ask("move", dtype=dtype, steps=steps, nudge=nudge, seed=seed)[0]
    if "error" in moved:
        raise UserError(f"{process.name} in {dtype}: {moved['error']}")
    return Moved(**moved | {"weights": {part: torch.from_numpy(change) for part, change in moved["weights"].items()}})


def answer_moves(connection: Connection, *, engine: Engine, build: Build, threads: int) -> None:
    """Describe the tier's switches, then run its first steps on request, in one of the tier's processes."""
    with join(engine, share(threads, engine)) as world:

        def move(dtype: str, steps: int, nudge: float, seed: int) -> dict[str, Any]:
            chosen = engine.model_copy(update={"precision": "fp32", "tf32": False}) if dtype == "float64" else engine
            before = torch.get_default_dtype()
            torch.set_default_dtype(getattr(torch, dtype))
            try:
                training = build(chosen, world)
                seen = [number * training.schedule.batch for number in range(steps)]
                moved = take_steps(training, list(training.feed(range(steps))), seen, nudge=(nudge, seed))
                # Torch would send tensors as shared memory, which needs a common ancestor of the processes.
                return vars(moved) | {"weights": {part: change.numpy() for part, change in moved.weights.items()}}
            except (RuntimeError, MemoryError) as error:
                remedy = "; lower batch_size or the sizes of the network" if lacks_memory(error) else ""
                return {"error": str(error).strip().split("\n")[0] + remedy}
            finally:
                torch.set_default_dtype(before)

        switches = [asdict(switch) for switch in build(engine, world).switches]
        answer_requests(connection, {"switches": switches}, {"move": move})
