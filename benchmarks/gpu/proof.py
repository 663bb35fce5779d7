"""A proof that an engine runs the same experiment as a reference, in separate processes.

start: the processes of the engine meet and add up a number.
check, switch: the small run of the equivalence tests, in float64 without the number format, then in float32 with it. In
low precision, also each operation of a step by itself.
step: the talk's step, in parts on one side and whole on the other, with the number format.
"""

import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from operations import OperationErrors

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.benchmark.meters import MemoryPeak
from faze.benchmark.tier_steps import build_tier_steps, read_people
from faze.benchmark.weight_changes import ROUNDING, Moved, compare, number_format_of, set_scale, take_steps
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved, load
from faze.engine.parallel import World, join, pick_device
from faze.engine.switches import Switch
from faze.training.dted_training import build_step, build_training, loss_weights
from faze.training.feed import build_feed
from faze.training.loop import Training

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/shared"))
import trajectory

STEPS = {"check": 5, "switch": 5, "step": 2}
LOW = {"fp16": torch.float16, "bf16": torch.bfloat16}
RATE = 1e-4  # learning rate of the first step, of all weights: a higher one makes more of what rounding begins
NUDGES = (0, 1, 2)  # seeds of the nudges of the reference; 0 does not nudge
THREADS = 1  # of the CPU, on which next to nothing is computed; more would wait for each other on a busy machine


@dataclass(frozen=True)
class Proof:
    """A proof to run, with the paths of its inputs and its output."""

    what: str  # start, check, switch or step
    config: Path  # resolved, with two engines: the one to compare with, and the one to prove
    data: Path
    out: Path
    identity: str  # of code, machine and sizes
    tiny: bool = False  # two steps, whatever it is

    def run(self) -> None:
        """Run the proof and write its result; the first process reports for all."""
        config = load(self.config)
        against, engine = config.engines.values()
        rank = int(os.environ.get("RANK", 0))
        if self.what == "start":
            self._start(engine)
            return
        plain = dataclasses.replace(engine, precision="fp32", tf32=False)
        kinds = [("float32", engine)] if self.what == "step" else [("float64", plain), ("float32", engine)]
        wanted = (
            {dtype: self._references(config, against, dtype, number_format_of(e)) for dtype, e in kinds}
            if not rank
            else {}
        )
        result: dict = {}
        reports: list[Switch] = []  # of the last engine: `engine` itself
        with join(engine, THREADS) as world:
            for dtype, made in kinds:
                peak = MemoryPeak(world.device)
                reports.clear()
                found = self._move(config, made, world, dtype, settled=peak.settle, reports=reports)
                if not rank:
                    number_format = "float64" if dtype == "float64" else number_format_of(made)
                    result[dtype] = compare(found, wanted[dtype][0], wanted[dtype][1:], number_format)
                    result[dtype] |= {"seconds": found.seconds} | peak.read()
            if not rank:  # before the process group ends, which may hang
                if self.what != "step" and engine.precision in LOW:
                    result["operations"] = self._check_operations(engine)
                changed = [name for name in vars(engine) if getattr(engine, name) != getattr(against, name)]
                self._leave(result, inactive={s.switch: s.reason for s in reports if s.reason and s.switch in changed})

    def _start(self, engine: Engine) -> None:
        began = time.perf_counter()
        with join(engine, THREADS) as world:
            total = float(world.sum(torch.ones((), device=world.device)))
            if not world.rank:
                found = {"seconds": time.perf_counter() - began, "processes": world.size}
                self._leave({"ddp": found | ({} if total == world.size else {"failed": f"the sum is {total}"})})

    def _check_operations(self, engine: Engine) -> dict:
        """Check each operation of a step in low precision; graphs and compiled code hide theirs, so these are off."""
        eager = dataclasses.replace(engine, parallel="single", graphs=False, compile="eager")
        chosen = trajectory.setup(eager, dataclasses.replace(trajectory.ALONE, device=pick_device(engine.device)))
        step, feed = build_step(chosen), build_feed(trajectory.people(), chosen)
        (batch,) = feed(range(1))
        set_scale(step)
        with OperationErrors(LOW[engine.precision]) as errors:
            step(batch, loss_weights(0, trajectory.LOSS, chosen.train.global_batch))
        return errors.summary()

    def _leave(self, result: dict, **more: object) -> None:
        failed = [f"{part} {r['failed']}" for part, r in result.items() if "failed" in r]
        with whole_file(self.out) as temporary:
            whole = result | more | ({"failed": "; ".join(failed)} if failed else {})
            temporary.write_text(json.dumps(whole), encoding="utf-8")

    def _references(self, config: Resolved, against: Engine, dtype: str, number_format: str) -> Sequence[Moved]:
        """Return the reference for a comparison and its noise, stored in files since most units share them."""
        share = ROUNDING["float64" if dtype == "float64" else number_format]
        found = [self._reference(config, against, dtype, (0.0, 0))]
        found += [self._reference(config, against, dtype, (share, seed)) for seed in NUDGES]
        return found

    def _reference(self, config: Resolved, engine: Engine, dtype: str, nudge: tuple[float, int]) -> Moved:
        sizes = {key: value for key, value in config.flat.items() if not key.startswith("engines.")}
        facts = [self.what, self.identity, self.tiny, sizes, dataclasses.asdict(engine), dtype, nudge]
        name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
        path = self.out.parent / "caches" / "references" / f"{name}.pt"
        if not path.exists():
            with join(engine, THREADS) as world:
                moved = self._move(config, engine, world, dtype, nudge=nudge)
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as temporary:
                torch.save(dataclasses.asdict(moved), temporary)
        return Moved(**torch.load(path, weights_only=True))

    def _move(
        self,
        config: Resolved,
        engine: Engine,
        world: World,
        dtype: str,
        *,
        nudge: tuple[float, int] = (0.0, 0),
        settled: Callable[[], None] = lambda: None,
        reports: list[Switch] | None = None,
    ) -> Moved:
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            if self.what != "step":
                # A clipped gradient would hide that one is too long, as a loss scale would make it.
                clip_norm = 0.0 if dtype == "float64" else trajectory.TRAIN.clip_norm
                train = dataclasses.replace(trajectory.TRAIN, clip_norm=clip_norm)
                chosen = trajectory.setup(engine, world, train=train)
                if self.tiny:
                    chosen = dataclasses.replace(chosen, model=dataclasses.replace(chosen.model, growth=2))
                feed = build_feed(trajectory.people(), chosen)
                training, ramp = build_training(chosen, build_step(chosen), feed, None), trajectory.LOSS.ramp_pairs
            else:
                people = read_people(self.data, config, world.processes_here)
                training, ramp = build_tier_steps(config, engine, world, people), config.loss.ramp_pairs
            if reports is not None:
                reports += training.switches
            return move(training, 2 if self.tiny else STEPS[self.what], ramp, nudge=nudge, settled=settled)
        finally:
            torch.set_default_dtype(before)


def move(training: Training, steps: int, ramp_pairs: int, **how: Any) -> Moved:
    """Train for a few steps at rising rates and loss weights, the last of which are those after `ramp_pairs` pairs."""
    batches, groups = list(training.feed(range(steps))), len(training.step.groups)
    seen = [ramp_pairs * (1 + number) // steps for number in range(steps)]
    return take_steps(training, batches, seen, rates=lambda number: [RATE * (1 + number)] * groups, **how)


def perform(proof: Proof, words: Path, place: Mapping[str, str]) -> None:
    """Run a proof in this process, which has just been forked.

    Args:
        proof: the proof to run.
        words: file for its output.
        place: torchrun's variables for the process, and others that it needs.
    """
    os.setsid()  # with all that it starts, it can be ended
    os.environ |= place
    with words.open("a", encoding="utf-8") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    try:
        proof.run()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
