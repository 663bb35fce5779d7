"""One proof that a rung is the same experiment as the one it is compared with, in a process of its own.

    python proof.py check|step --config RESOLVED --data STRIPS --out ANSWER

check: the small training of the equivalence tests, on this device. step: one step of the talk's global batch.
"""

import argparse
import dataclasses
import json
import math
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from faze.base.files import whole_file
from faze.benchmark.memory_peak import MemoryPeak
from faze.benchmark.tier_steps import build_tier_steps, read_people
from faze.benchmark.timing import synchronize
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved, load
from faze.engine.parallel import join
from faze.training.loop import loss_weights

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/shared"))
import trajectory

EXACT, STEPS = 1e-10, 20  # float64: only the order of sums may differ
# Of the loss over the first five steps, from float32 weights; cuDNN's algorithms round 41 layers each in its own order.
TOLERANCE = {"fp32": 1e-5, "tf32": 5e-3, "fp16": 2e-2, "bf16": 5e-2}
LOSS_SCALE = 64.0  # the default, 65536, overflows fp16 here, and the first steps would be skipped


def kind_of(engine: Engine) -> str:
    """Its number format."""
    return "tf32" if engine.precision == "fp32" and engine.tf32 else engine.precision


def difference(found: Sequence[float], expected: Sequence[float]) -> float:
    """Largest relative one; not a number counts as infinite."""
    gaps = [abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True)]
    return math.inf if any(gap != gap for gap in gaps) else max(gaps)


def check(config: Resolved) -> dict:
    """Losses against the first engine's: in float64 without the number format, then in float32 with it."""
    against, *others = config.engines

    def losses(engine: Engine, dtype: torch.dtype, steps: int) -> list[float]:
        scale = LOSS_SCALE if engine.precision == "fp16" else None
        with join(engine, os.cpu_count() or 1) as world:
            return trajectory.train(engine, world, steps=steps, dtype=dtype, loss_scale=scale)

    def exact(engine: Engine) -> list[float]:
        return losses(dataclasses.replace(engine, precision="fp32", tf32=False), torch.float64, STEPS)

    expected = exact(config.engines[against]), losses(config.engines[against], torch.float32, 5)
    result: dict = {}
    for name in others:
        engine = config.engines[name]
        gaps = difference(exact(engine), expected[0]), difference(losses(engine, torch.float32, 5), expected[1])
        result[name] = {"float64": gaps[0], "float32": gaps[1], "tolerances": [EXACT, TOLERANCE[kind_of(engine)]]}
    wrong = [name for name, r in result.items() if not (r["float64"] <= EXACT and r["float32"] <= r["tolerances"][1])]
    return result | ({"failed": f"losses differ too much: {', '.join(wrong)}"} if wrong else {})


def one_step(config: Resolved, data: Path) -> dict:
    """The loss terms of one step of the whole global batch against the first engine's; a second one is timed."""
    (_, expected), (engine, found) = ((engine, _terms(config, engine, data)) for engine in config.engines.values())
    tolerance = TOLERANCE[kind_of(engine)]
    gap = difference([found["terms"][name] for name in expected["terms"]], list(expected["terms"].values()))
    result = {"difference": gap, "tolerance": tolerance, "seconds": found["seconds"], "peak_gib": found["peak_gib"]}
    return result | ({} if gap <= tolerance else {"failed": "the loss terms differ too much"})


def _terms(config: Resolved, engine: Engine, data: Path) -> dict:
    with join(engine, os.cpu_count() or 1) as world:
        people = read_people(data, config)
        peak = MemoryPeak(world.device)
        tier = build_tier_steps(config, engine, world, people)
        weights = loss_weights(config.train.pairs, config.loss, config.train.global_batch)
        terms, began = {}, 0.0
        for batch in tier.feed(range(2)):
            found = tier.step(batch, weights)
            synchronize(world.device)
            terms, began, seconds = terms or _read(found, weights), time.perf_counter(), time.perf_counter() - began
        return {"terms": terms, "seconds": seconds} | peak.read()


def _read(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> dict[str, float]:
    """The terms that count, and the loss."""
    return {name: float(term) for name, term in terms.items() if weights.get(name, 1.0)}


def stand_alone() -> None:
    """Tell this process what torchrun would tell the only one of a training."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {name: str(value) for name, value in (place | {"MASTER_PORT": port}).items()}


def main() -> None:
    """Prove, and leave the answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "step"])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    config = load(args.config, "benchmark")
    stand_alone()
    result = check(config) if args.what == "check" else one_step(config, args.data)
    with whole_file(args.out) as temporary:
        temporary.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
