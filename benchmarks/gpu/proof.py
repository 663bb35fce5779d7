"""One proof that a rung is the same experiment as the one it is compared with, in a process of its own.

    python proof.py check|step --config RESOLVED --data STRIPS --out ANSWER

check: the small training of the equivalence tests, on this device. step: one step of the talk's global batch.
"""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from faze.config import Resolved, load
from faze.engine.parallel import join, pick_device
from faze.files import whole_file
from faze.sections import Engine

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/equivalence"))
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
    """Losses against the other engine's: in float64 without the number format, then in float32 with it."""
    against, engine = config.engines.values()
    device = pick_device(engine.device)

    def losses(engine: Engine, dtype: torch.dtype, steps: int) -> list[float]:
        scale = LOSS_SCALE if engine.precision == "fp16" else None
        return trajectory.losses(engine, steps=steps, dtype=dtype, loss_scale=scale, device=device)

    plain = [dataclasses.replace(e, precision="fp32", tf32=False) for e in (engine, against)]
    exact = difference(*(losses(e, torch.float64, STEPS) for e in plain))
    near = difference(*(losses(e, torch.float32, 5) for e in (engine, against)))
    tolerance = TOLERANCE[kind_of(engine)]
    result = {"float64": exact, "float64_tolerance": EXACT, "float32": near, "float32_tolerance": tolerance}
    wrong = [name for name in ("float64", "float32") if not result[name] <= result[f"{name}_tolerance"]]
    return result | ({"failed": f"losses differ too much in {', '.join(wrong)}"} if wrong else {})


def one_step(config: Resolved, data: Path) -> dict:
    """The loss terms of one step of the whole global batch against the other engine's; a second one is timed."""
    (_, expected), (engine, found) = ((e, _terms(config, e, data)) for e in config.engines.values())
    tolerance = TOLERANCE[kind_of(engine)]
    gap = difference([found["terms"][name] for name in expected["terms"]], list(expected["terms"].values()))
    result = {"difference": gap, "tolerance": tolerance, "seconds": found["seconds"], "peak_gib": found["peak_gib"]}
    return result | ({} if gap <= tolerance else {"failed": "the loss terms differ too much"})


def _terms(config: Resolved, engine: Engine, data: Path) -> dict:
    size = {"height": config.model.image_height_px, "width": config.model.image_width_px}
    people, _ = load_people(data, "train", min_entries=2, **size, memory_gib=config.data.memory_gib)
    with join(engine, os.cpu_count() or 1) as world:
        peak = MemoryPeak(world.device)
        sections = {"model": config.model, "loss": config.loss, "train": config.train}
        step = build_step(**sections, engine_switches=engine, world=world, seed=0)
        batches = PairBatches(people, seed=0, global_batch=config.train.global_batch)
        weights = loss_weights(config.train.pairs, config.loss, config.train.global_batch)
        terms = step(to_device(batches[0], world.device, config.model), weights)
        terms = {name: float(term) for name, term in terms.items() if weights.get(name, 1.0)}
        began = time.perf_counter()
        step(to_device(batches[1], world.device, config.model), weights)
        synchronize(world.device)
        return {"terms": terms, "seconds": time.perf_counter() - began} | peak.read()


def main() -> None:
    """Prove, and leave the answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "step"])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    config = load(args.config, "benchmark")
    result = check(config) if args.what == "check" else one_step(config, args.data)
    with whole_file(args.out) as temporary:
        temporary.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
