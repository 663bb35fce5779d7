"""A proof that an engine runs the same experiment as a reference, in separate processes.

check: the small run of the equivalence tests, in float64 without the number format, then in float32 with it.
step: the talk's step, in parts on one side and whole on the other, with the number format.
"""

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from moves import NUDGES, ROUNDING, Moved, compare, take_steps

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.benchmark.meters import MemoryPeak
from faze.benchmark.tier_steps import build_tier_steps, read_people
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved, load
from faze.engine.parallel import World, join
from faze.training.feed import build_feed
from faze.training.loop import build_step

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/shared"))
import trajectory

STEPS = {"check": 5, "step": 2}
THREADS = 1  # of the CPU, on which next to nothing is computed; more would wait for each other on a busy machine


@dataclass(frozen=True)
class Proof:
    """A proof to run, with the paths of its inputs and its output."""

    what: str  # check or step
    config: Path  # resolved, with two engines: the one to compare with, and the one to prove
    data: Path
    out: Path
    identity: str  # of code, machine and sizes
    tiny: bool = False  # two steps, whatever it is

    def run(self) -> None:
        """Run the proof and write its result; the first process reports for all."""
        config = load(self.config, "benchmark")
        against, engine = config.engines.values()
        rank = int(os.environ.get("RANK", 0))
        plain = dataclasses.replace(engine, precision="fp32", tf32=False)
        kinds = [("float64", plain), ("float32", engine)] if self.what == "check" else [("float32", engine)]
        wanted = {dtype: self._references(config, against, dtype, kind_of(e)) for dtype, e in kinds} if not rank else {}
        result: dict = {}
        with join(engine, THREADS) as world:
            for dtype, made in kinds:
                peak = MemoryPeak(world.device)
                found = self._move(config, made, world, dtype, settled=peak.settle)
                if not rank:
                    number_format = "float64" if dtype == "float64" else kind_of(made)
                    result[dtype] = compare(found, wanted[dtype][0], wanted[dtype][1:], number_format)
                    result[dtype] |= {"seconds": found.seconds} | peak.read()
            if not rank:  # before the process group ends, which may hang
                self._leave(result)

    def _leave(self, result: dict) -> None:
        failed = [f"{dtype} {r['failed']}" for dtype, r in result.items() if "failed" in r]
        with whole_file(self.out) as temporary:
            whole = result | ({"failed": "; ".join(failed)} if failed else {})
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
    ) -> Moved:
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, dtype))
        try:
            if self.what == "check":
                # A clipped gradient would hide that one is too long, as a loss scale would make it.
                clip_norm = 0.0 if dtype == "float64" else trajectory.TRAIN.clip_norm
                train = dataclasses.replace(trajectory.TRAIN, clip_norm=clip_norm)
                chosen = trajectory.setup(engine, world, train=train)
                if self.tiny:
                    chosen = dataclasses.replace(chosen, model=dataclasses.replace(chosen.model, growth=2))
                step, feed = build_step(chosen), build_feed(trajectory.people(), chosen)
                sections = train, trajectory.LOSS
            else:
                tier = build_tier_steps(config, engine, world, read_people(self.data, config, world.processes_here))
                step, feed, sections = tier.step, tier.feed, (config.train, config.loss)
            batches = list(feed(range(2 if self.tiny else STEPS[self.what])))
            return take_steps(step, batches, sections, world, nudge=nudge, settled=settled)
        finally:
            torch.set_default_dtype(before)


def kind_of(engine: Engine) -> str:
    """Return an engine's number format."""
    return "tf32" if engine.precision == "fp32" and engine.tf32 else engine.precision


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
