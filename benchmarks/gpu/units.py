"""The units of work, their processes, and their comparisons."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path

import children
import numpy as np
import torch
from alone import LAST, OTHERWISE, SAME
from proof import Proof

from faze.base.code_hash import module_hash
from faze.config.parameters import Engine
from faze.config.stage_config import resolve, to_lines
from faze.config.tiers import leave_one_out, resolve_tier
from faze.config.validation import validate
from faze.config.yaml_files import flatten, merge, read_yaml
from faze.data.store.strips import PersonStrips, write_strips
from faze.engine import machine
from faze.engine.parallel import count_processes

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
AGAINST = "against"  # what a unit compares itself with, among the engines of its configuration
CHUNK = 256  # pairs of a device's step: the talk's 2048 over 8 GPUs
PEOPLE, ENTRIES = 16, 64  # strips enough that a chunk of 256 pairs hardly meets one twice
# In the proof of a whole step the baseline takes in one part what the others take in several: so many as fit, up to the
# talk's 8. A pair in fp32 takes 94 MiB (measured on a CPU); the rest is for what cuDNN wants.
MOST_PARTS, PAIR_GIB, SHARE = 8, 0.095, 0.8

PAPER = {
    "name": "gpu",
    "data": {"min_entries": ENTRIES},
    "loss": {"chunk_pairs": CHUNK},
    "benchmark": {"warmup_steps": 5, "block_steps": 5, "rounds": 3, "paper_width": False},
}
TINY = {
    "tiers": {"baseline": {"device": "auto", "processes": 1}},  # with ddp, each process imports torch
    "model": {"growth": 2, "image_height_px": 32, "image_width_px": 128},
    "loss": {"chunk_pairs": 4},
    "benchmark": {"warmup_steps": 1, "warmup_blocks": 3, "block_steps": 1, "blocks": 2, "rounds": 1},
}
MEASURED_TINY = ("resident",)  # tiers whose speed is measured


@dataclasses.dataclass(frozen=True)
class Unit:
    """One piece of work."""

    kind: str  # switch, check, tier, step or without
    subject: str  # name of the tier, or value of the switch
    engines: dict[str, Engine]  # the first is what the others are compared to

    @property
    def name(self) -> str:
        """Return the name under which the unit is recorded."""
        return f"{self.kind}/{self.subject}"


def settings(tiny: bool) -> dict:
    """Read the configuration: the paper's sizes with one chunk on each device, or toy sizes."""
    paper = merge(read_yaml(ROOT / "config/config.yaml"), read_yaml(ROOT / "config/paper.yaml"))
    c = merge(merge(paper, PAPER), TINY if tiny else {})
    everything = {"run": {"tiers": list(MEASURED_TINY) if tiny else list(c["tiers"])}}
    sizes = {"train": {"global_batch": devices() * c["loss"]["chunk_pairs"]}}
    return validate(merge(merge(c, everything), sizes))


def devices() -> int:
    """Count the devices on which a multi-process tier trains: the GPUs, or two processes on a CPU."""
    return torch.cuda.device_count() or 2


def identity(c: dict) -> str:
    """Hash everything on which the results depend: code, machine, sizes, tiers."""
    paths = [*ROOT.glob("faze/**/*.py"), *HERE.glob("*.py"), ROOT / "tests/shared/trajectory.py"]
    device = {name: fact for name, fact in machine.describe().items() if name != "commit"}
    whole = json.dumps([list(map(module_hash, sorted(paths))), device, flatten(c)], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def plan(c: dict) -> Iterator[Unit]:
    """Plan all units, the most important first."""
    tiers, measured = c["tiers"], c["run"]["tiers"]
    engines = {tier: resolve_tier(tiers, tier) for tier in tiers}
    first, *others = tiers
    baseline = dataclasses.replace(engines[first], parallel="single")
    on_cpu = dataclasses.replace(baseline, device="cpu")
    for name, change in SAME.items():
        yield Unit("switch", name, {AGAINST: baseline, name: dataclasses.replace(baseline, **change)})
    for name, change in OTHERWISE.items():
        against, engine = (dataclasses.replace(place, **change) for place in (on_cpu, baseline))
        yield Unit("switch", name, {AGAINST: against, name: engine})
    for tier in others:
        yield Unit("check", tier, {AGAINST: baseline, tier: engines[tier]})
    for tier in measured:
        yield Unit("tier", tier, {AGAINST: engines[first], tier: engines[tier]})
        yield Unit("step", tier, {AGAINST: engines[first], tier: engines[tier]})
    for tier, engine in leave_one_out(tiers, measured[-1]).items():
        if tier in measured:
            yield Unit("without", tier, {AGAINST: engines[measured[-1]], tier: engine})
    for name, change in LAST.items():
        yield Unit("switch", name, {AGAINST: baseline, name: dataclasses.replace(baseline, **change)})


def make_data(path: Path, c: dict) -> None:
    """Write strips of noise, unless they exist: measurements do not depend on the strips' content."""
    if path.exists():
        return
    random = np.random.default_rng(0)
    shape = (ENTRIES, c["preprocess"]["height_px"], c["preprocess"]["width_px"], 3)
    names = [f"{entry}.jpg" for entry in range(ENTRIES)]
    write_strips(
        path,
        "gazecapture",
        (
            PersonStrips(
                f"{person:05d}",
                "train",
                names,
                random.integers(0, 256, shape, dtype=np.uint8),
                random.normal(0, 0.2, (ENTRIES, 4)).astype(np.float32),
            )
            for person in range(PEOPLE)
        ),
    )


def run(unit: Unit, c: dict, out: Path, limit_s: float, *, made_by: str, tiny: bool) -> dict | None:
    """Run a unit in separate processes.

    Args:
        unit: the unit.
        c: the configuration.
        out: folder of its inputs and outputs.
        limit_s: time limit in seconds.
        made_by: identity of code, machine and sizes.
        tiny: use fewer steps.

    Returns:
        The unit's answer; None if it was stopped at the limit; {'failed': reason} if it failed.
    """
    answer, resolved, words, data = (out / n for n in ("answer.json", "unit.yaml", "words.txt", "strips.h5"))
    answer.unlink(missing_ok=True)
    resolved.write_text("\n".join(_resolve(unit, c)) + "\n", encoding="utf-8")
    if unit.kind in ("tier", "without"):
        arguments = ["-m", "faze", "benchmark", "--config", resolved, "--data", data, "--out", answer]
        arguments += ["--threads", "1"] if tiny else []
        code = children.run(arguments, words, limit_s)
    else:
        what = "step" if unit.kind == "step" else "check"
        proof = Proof(what, resolved, data, answer, made_by, tiny)
        *_, engine = unit.engines.values()
        few, processes = what == "check", count_processes(engine)  # the check's batch is for two devices at most
        code = children.prove(proof, words, min(processes, 2) if few else processes, limit_s, few=few)
    if code == 0:
        return json.loads(answer.read_text(encoding="utf-8"))
    last = words.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    return None if code is None else {"failed": last or f"exit code {code}"}


def _resolve(unit: Unit, c: dict) -> list[str]:
    """Return a configuration of the `benchmark` stage with two engines: `against`, then the unit's own."""
    engines = {name: dataclasses.asdict(engine) for name, engine in unit.engines.items()}
    if unit.kind == "step":
        parts = step_parts(c)
        c = merge(c, {"train": {"global_batch": parts * c["train"]["global_batch"]}})
        engines[unit.subject] |= {"accumulate": parts}
    flat = {key: value for key, value in resolve(c, "benchmark").items() if not key.startswith("engines.")}
    return to_lines(flat | flatten({"engines": engines}))


def step_parts(c: dict) -> int:
    """Return the number of parts of a proof's step: two on a CPU, else as many as fit into each GPU's memory."""
    if not torch.cuda.is_available():
        return 2
    fit = SHARE * torch.cuda.get_device_properties(0).total_memory / 2**30 / PAIR_GIB / c["loss"]["chunk_pairs"]
    return max(min(MOST_PARTS, 2 ** int(math.log2(max(fit, 1)))), 2)
