"""Prove that a tier's training is the same experiment as the baseline's, before the tier is trained or timed."""

import contextlib
import json
import os
import sys
from pathlib import Path

from faze.base.files import whole_file
from faze.base.machine import machine_lock
from faze.benchmark.proof import prove_tier, sketch_first_steps, take_steps
from faze.config.parameters import DTED
from faze.config.stage_config import Resolved
from faze.engine.parallel import World, join, launch, pick_device
from faze.training.check import describe, load_class, named


def main(*, config: Resolved, data: Path | None = None, out: Path) -> None:
    """Write a tier's proof; for the baseline, check the workload and sketch its steps. Only DT-ED needs `data`."""
    proof = {"number": 0.0, "formats": []}
    with machine_lock(exclusive=False):
        if config.engine != config.baseline:
            try:
                out.unlink(missing_ok=True)  # processes that fail later write it
                if launch(config.engine, ["prove", *sys.argv[2:]]):
                    return
                with join(config.engine, config.train.threads) as world:
                    proof = prove_tier(config, data, world)
            except Exception as error:  # a user's class can raise anything
                proof = {"number": None, "failed": f"cannot run: {describe(error)}", "formats": []}
                if "RANK" in os.environ:  # torchrun ends the other processes
                    with contextlib.suppress(FileExistsError), out.open("x") as file:
                        json.dump(proof, file)
                    sys.exit(1)
                if out.exists():
                    proof = json.loads(out.read_bytes())
        else:
            if config.workload != DTED:
                workload = load_class(config.workload, checked=True)
                with named(config.workload):
                    engine = config.baseline.model_copy(update={"parallel": "single"})
                    take_steps(workload, engine, World(0, 1, pick_device(engine.device)), 0, "fp32", True)
            proof["first_steps"] = sketch_first_steps(config, data)
    if os.environ.get("RANK", "0") == "0":
        with whole_file(out) as temporary:
            temporary.write_text(json.dumps(proof), encoding="utf-8")
        verdict = "another experiment: " if "failed" in proof and proof["number"] is not None else ""
        print(f"{config.tier}: {verdict}{proof.get('failed', 'the same experiment')}")
