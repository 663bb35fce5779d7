"""The units of work, the processes that do them, and what is compared with what."""

import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from faze.base.code_hash import module_hash
from faze.config.ladder import climb, leave_one_out
from faze.config.parameters import Engine
from faze.config.stage_config import flatten, resolve, to_lines
from faze.config.validation import validate
from faze.config.yaml_files import merge, read_yaml
from faze.data.store.strips import PersonStrips, write_strips
from faze.engine import machine

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
AGAINST = "against"  # what a unit compares itself with, among the engines of its configuration
PARTS = 8  # of the talk's step: one per GPU there, one after the other here
PEOPLE, ENTRIES = 16, 64  # strips enough that a chunk of 256 pairs hardly meets one twice

PAPER = {
    "name": "gpu",
    "data": {"min_entries": ENTRIES},
    "train": {"global_batch": 256},
    "loss": {"chunk_pairs": 256},
    "benchmark": {"warmup_steps": 5, "block_steps": 5, "rounds": 3, "paper_width": False},
}
TINY = {
    "name": "gpu",
    "tiers": {"baseline": {"device": "auto", "processes": 1}},  # one, as on one GPU: a chunk is not cut
    "model": {"growth": 4, "image_height_px": 32, "image_width_px": 128},
    "train": {"global_batch": 4},
    "loss": {"chunk_pairs": 4},
    "benchmark": {"warmup_steps": 1, "warmup_blocks": 3, "block_steps": 1, "blocks": 2, "rounds": 1},
}


@dataclasses.dataclass(frozen=True)
class Unit:
    """One piece of work."""

    kind: str  # check, tier, step or without
    rung: str
    engines: dict[str, Engine]  # the first is what the others are compared to

    @property
    def name(self) -> str:
        """As it is recorded."""
        return f"{self.kind}/{self.rung}"


def settings(tiny: bool) -> dict:
    """Read the configuration: the paper's with one chunk a step, or toy sizes."""
    paper = merge(read_yaml(ROOT / "config/config.yaml"), read_yaml(ROOT / "config/paper.yaml"))
    return validate(merge(merge(paper, PAPER), TINY if tiny else {}))


def identity(c: dict) -> str:
    """Hash of all that the results depend on: code, machine, sizes, ladder."""
    code = [module_hash(path) for path in sorted([*ROOT.glob("faze/**/*.py"), *HERE.glob("*.py")])]
    device = {name: fact for name, fact in machine.describe().items() if name != "commit"}
    whole = json.dumps([code, device, flatten(c)], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def plan(c: dict) -> Iterator[Unit]:
    """Plan all units, the most wanted first."""
    tiers = c["tiers"]
    engines = {rung: climb(tiers, rung) for rung in tiers}
    first, *rungs = tiers
    for rung in rungs:
        alone = dataclasses.replace(engines[first], **tiers[rung])
        yield Unit("check", rung, {AGAINST: engines[first], "alone": alone, "cumulative": engines[rung]})
    for rung in tiers:
        yield Unit("tier", rung, {AGAINST: engines[first], rung: engines[rung]})
        yield Unit("step", rung, {AGAINST: engines[first], rung: engines[rung]})
    for rung, engine in leave_one_out(tiers, rungs[-1]).items():
        yield Unit("without", rung, {AGAINST: engines[rungs[-1]], rung: engine})


def make_data(path: Path, c: dict) -> None:
    """Write strips of noise, once: what is measured does not depend on what they show."""
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


def run(unit: Unit, c: dict, out: Path, limit_s: float) -> dict | None:
    """Do a unit in processes of its own; None if the limit ended them, {'failed': why} if they ended otherwise."""
    answer, resolved = out / "answer.json", out / "unit.yaml"
    answer.unlink(missing_ok=True)
    resolved.write_text("\n".join(_resolve(unit, c)) + "\n", encoding="utf-8")
    given = ["--config", resolved, "--data", out / "strips.h5", "--out", answer]
    how = ["-m", "faze", "benchmark"] if unit.kind in ("tier", "without") else [HERE / "proof.py", unit.kind]
    words = out / "words.txt"
    code = _child([*how, *given], words, out / "caches", limit_s)
    if code == 0:
        return json.loads(answer.read_text(encoding="utf-8"))
    last = words.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    return None if code is None else {"failed": last or f"exit code {code}"}


def _resolve(unit: Unit, c: dict) -> list[str]:
    """Write a configuration of the stage `benchmark` with two engines: `against`, then the unit's own."""
    if unit.kind == "step":
        c = merge(c, {"train": {"global_batch": PARTS * c["train"]["global_batch"]}})
    flat = {key: value for key, value in resolve(c, "benchmark").items() if not key.startswith("engines.")}
    parts = {"accumulate": PARTS} if unit.kind == "step" else {}
    engines = {name: dataclasses.asdict(engine) | parts for name, engine in unit.engines.items()}
    return to_lines(flat | flatten({"engines": engines}))


def _child(arguments: Sequence[str | os.PathLike], words: Path, caches: Path, limit_s: float) -> int | None:
    """Run a process and return its exit code; None if it was stopped at the limit, with all that it had started.

    Args:
        arguments: of Python.
        words: file for what it says.
        caches: folder of compiled kernels, kept for the next process.
        limit_s: seconds that it may take.
    """
    kept = {f"{name}_CACHE_DIR": str(caches.absolute() / name.lower()) for name in ("TORCHINDUCTOR", "TRITON")}
    with words.open("w", encoding="utf-8") as said:
        streams = {"stdout": said, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = subprocess.Popen([sys.executable, *arguments], env=os.environ | kept, **streams)
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
