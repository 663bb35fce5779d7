"""The units of work, their processes, and their comparisons."""

import dataclasses
import functools
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import children
import numpy as np
import torch
from alone import LAST, OTHERWISE, SAME
from faze.config.workloads import BUILT_IN, DTED, SCORE
from proof import Proof

from faze.base.code_hash import module_hash, sources
from faze.base.run_log import read_events
from faze.config.parameters import Engine
from faze.config.stage_config import resolve, to_lines
from faze.config.tiers import resolve_tier, tier_bases
from faze.config.validation import validate
from faze.config.yaml_files import flatten, merge, read_yaml
from faze.data.store.strips import PersonStrips, write_strips
from faze.engine.parallel import count_processes
from faze.training.workload_training import load_workload, workload_code

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
BASELINE, AGAIN = "baseline", "baseline_again"  # the reference of a unit; its repetition shows the noise
CHUNK = 256  # pairs of a device's step: the talk's 2048 over 8 GPUs
PEOPLE, ENTRIES = 16, 64  # enough strips that a chunk of 256 pairs rarely contains one twice
ROUNDS = 3
# Tiers that are timed together, each group after the proofs of its tiers. fused_norm and graphs are not compiled, so
# that Triton's kernels act.
GROUPS = {
    "talk": ("amp", "ddp", "fused_sgd", "autotune"),
    "own": ("bf16", "channels_last", "fused_norm", "graphs"),
    "compiled": ("compile", "recompute", "resident"),
}
ONLY_DTED = ("fused_norm", "recompute", "resident")  # tiers that act on no other network
WORKLOAD_GROUPS = {group: tuple(t for t in tiers if t not in ONLY_DTED) for group, tiers in GROUPS.items()}
TINY_GROUPS = {"talk": ("fused_sgd",), "own": ("fused_norm",)}
# A unit that takes longer is stopped and recorded as failed, so that the next ones run.
LIMIT_S = {
    "start": 60.0,
    "check": 150.0,
    "time": 300.0,
    "people": 400.0,
    "train": 400.0,
    "step": 150.0,
    "switch": 150.0,
}
COMPILING_S = 240.0  # in addition
# Trainings to the end at the default's size, on rendered people, with their seeds.
TRAINED = {BASELINE: 0, AGAIN: 1, "autotune": 0, "graphs": 0, "compile": 0}
# In the proof of a whole step, the baseline computes at once what the others compute in several parts: as many as fit,
# at most the talk's 8. A pair in fp32 needs 94 MiB (measured on a CPU); the rest is for cuDNN.
MOST_PARTS, PAIR_GIB, SHARE = 8, 0.095, 0.8

PAPER = {
    "name": "gpu",
    "data": {"min_entries": ENTRIES},
    "loss": {"chunk_pairs": CHUNK},
    "benchmark": {"warmup_steps": 3, "warmup_blocks": 6, "block_steps": 3, "rounds": 1, "paper_width": []},
}
TINY_TRAINING = {
    "synthetic": {"gazecapture_train_people": 5, "gazecapture_val_people": 1, "frames_per_person": 80},
    "train": {"pairs": 64, "warmup_pairs": 32, "log_every_pairs": 32, "validate_every_pairs": 32},
}
TINY = {
    "tiers": {BASELINE: {"device": "auto", "processes": 1}},  # with ddp, each process imports torch
    "model": {"growth": 2, "image_height_px": 32, "image_width_px": 128},
    "loss": {"chunk_pairs": 4},
    "benchmark": {"warmup_steps": 1, "warmup_blocks": 3, "block_steps": 1, "blocks": 2, "rounds": 1},
}


@dataclasses.dataclass(frozen=True)
class Unit:
    """One piece of work."""

    kind: str  # start, check, time, people, train, step or switch
    subject: str  # name of the tier, the group and round, or the value of the switch
    engines: dict[str, Engine]  # the first is the reference of the others

    @property
    def name(self) -> str:
        """Return the name under which the unit is recorded."""
        return f"{self.kind}/{self.subject}"

    @property
    def limit_s(self) -> float:
        """Return the seconds that the unit may take."""
        compiles = any(engine.compile != "eager" for engine in self.engines.values())
        return LIMIT_S[self.kind] + compiles * COMPILING_S


def settings(tiny: bool, workload: str = DTED) -> dict:
    """Read the configuration: the paper's sizes with one chunk on each device, or toy sizes.

    Unless `tiny`, a case study is replaced by its variant with sizes for a GPU.
    """
    if f"{workload}_paper" in BUILT_IN and not tiny:
        workload = f"{workload}_paper"
    paper = merge(read_yaml(ROOT / "config/config.yaml"), read_yaml(ROOT / "config/sizes/paper.yaml"))
    config = merge(merge(paper, PAPER), TINY if tiny else {})
    groups = TINY_GROUPS if tiny else GROUPS if workload == DTED else WORKLOAD_GROUPS
    tiers = [*config["auto_tiers"]["cuda"], "resident on graphs"]
    sizes = {"train": {"global_batch": devices() * config["loss"]["chunk_pairs"]}}
    named = {"workload": workload}
    training = validate(merge(read_yaml(ROOT / "config/config.yaml"), (TINY_TRAINING if tiny else {}) | named))
    config = merge(merge(config, {"run": {"tiers": tiers}}), sizes | named)
    return validate(config) | {"groups": groups, "training": training}


def devices() -> int:
    """Count the devices on which a multi-process tier trains: the GPUs, or two processes on a CPU."""
    return torch.cuda.device_count() or 2


def plan(config: dict, *, ddp: bool = True) -> Iterator[Unit]:
    """Plan all units, the most important first.

    Args:
        config: the configuration, from `settings`.
        ddp: whether processes can communicate; if not, only the tier and the values that need it fail.
    """
    engines = {tier: resolve_tier(config, tier) for tier in tier_bases(config)}
    if not ddp or devices() == 1:
        # Beyond its own tier, ddp in one process adds nothing to a proof except NCCL's failures.
        alone = {"parallel": "single"}
        engines |= {tier: dataclasses.replace(e, **alone) for tier, e in engines.items() if tier != "ddp"}
    first, groups = engines.pop(BASELINE), config["groups"]
    single = dataclasses.replace(first, parallel="single")
    yield Unit("start", "ddp", {BASELINE: single, "ddp": dataclasses.replace(single, parallel="ddp", processes=1)})
    for group, tiers in groups.items():
        for tier in tiers:
            yield Unit("check", tier, {BASELINE: single, tier: engines[tier]})
        for number in range(1, (1 if groups is TINY_GROUPS else ROUNDS) + 1):
            timed = {BASELINE: first} | {tier: engines[tier] for tier in tiers} | {AGAIN: first}
            yield Unit("time", f"{group}-{number}", timed)
    timed = [tier for tiers in groups.values() for tier in tiers]
    idle = () if config["workload"] == DTED else ONLY_DTED
    for tier in [tier for tier in engines if tier not in (*timed, *idle)]:
        yield Unit("check", tier, {BASELINE: single, tier: engines[tier]})
    if config["workload"] == DTED:
        yield Unit("people", "gazecapture", {BASELINE: single})
    for tier in TRAINED:
        engine = engines.get(tier, single)
        yield Unit("train", tier, {BASELINE: single, tier: dataclasses.replace(engine, parallel="single")})
    if config["workload"] != DTED:  # the other units compare switches in DT-ED
        return
    for tier in timed:
        yield Unit("step", tier, {BASELINE: first, tier: engines[tier]})
    for name, change in SAME.items():
        yield Unit("switch", name, {BASELINE: single, name: dataclasses.replace(single, **change)})
    for name, change in OTHERWISE.items():
        reference = dataclasses.replace(single, device="cpu", **change)
        yield Unit("switch", name, {BASELINE: reference, name: dataclasses.replace(single, **change)})
    for name, change in LAST.items():
        yield Unit("switch", name, {BASELINE: single, name: dataclasses.replace(single, **change)})


@functools.cache
def own_code(kind: str, workload: str) -> tuple[str, ...]:
    """Return the hashes of the code that units of a kind run."""
    stages = {"time": ["benchmark"], "people": ["synthesise", "preprocess"], "train": ["train"]}
    own: list[str] = []
    if workload != DTED:
        stages |= {"check": ["prove_workload"], "train": ["train_workload"]}
        load_workload(workload)
        own = [workload_code(workload)]
    if kind in stages:
        return *own, *(line for stage in stages[kind] for line in sources(f"faze.stages.{stage}"))
    beside = [HERE / "proof.py", HERE / "operations.py", ROOT / "tests/shared/trajectory.py"]
    return *sources("faze.benchmark.tier_steps"), *sources("faze.benchmark.weight_changes"), *map(module_hash, beside)


def identity(unit: Unit, config: dict) -> str:
    """Hash everything on which a unit's result depends: the code that it runs, its sizes and its switches."""
    return _hashed([*own_code(unit.kind, config["workload"]), *_resolve(unit, config)])


def _hashed(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def make_data(path: Path, config: dict) -> None:
    """Write strips of noise, unless they exist: measurements do not depend on the strips' content."""
    if path.exists():
        return
    random = np.random.default_rng(0)
    shape = (ENTRIES, config["preprocess"]["height_px"], config["preprocess"]["width_px"], 3)
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


def run(
    unit: Unit, config: dict, out: Path, limit_s: float, *, unproved: Mapping[str, str], tiny: bool
) -> tuple[dict, bool]:
    """Run a unit in separate processes.

    Args:
        unit: the unit.
        config: the configuration.
        out: folder of its inputs and outputs.
        limit_s: time limit in seconds.
        unproved: tier -> why its steps are not shown to be right; such a tier is not timed.
        tiny: use fewer steps.

    Returns:
        The unit's answer, with the key `failed` if it failed; and whether it ended by itself.
    """
    tested = unit.engines if unit.kind in ("time", "train") else ()
    left_out = {tier: unproved[tier] for tier in tested if tier in unproved}
    kept = {tier: engine for tier, engine in unit.engines.items() if tier not in left_out}
    if left_out and kept.keys() <= {BASELINE, AGAIN}:
        return {"failed": "; ".join(f"{tier} is not proved: {why}" for tier, why in left_out.items())}, True
    answer, resolved, words, data = (out / n for n in ("answer.json", "unit.yaml", "words.txt", "strips.h5"))
    answer.unlink(missing_ok=True)
    resolved.write_text("\n".join(_resolve(dataclasses.replace(unit, engines=kept), config)) + "\n", encoding="utf-8")
    threads = ["--threads", "1"] if tiny else []
    if unit.kind in ("people", "train"):
        stages = render(config, out, tiny) if unit.kind == "people" else training(unit, config, out)
        for stage in stages:
            code = children.run(["-m", "faze", *stage], words, limit_s)
            if code != 0:
                break
        if code == 0:
            answer.write_text(json.dumps(_outcome(unit, out)), encoding="utf-8")
    elif unit.kind == "time":
        arguments = ["-m", "faze", "benchmark", "--config", resolved, "--data", data, "--out", answer]
        code = children.run([*arguments, *threads], words, limit_s)
    elif unit.kind == "check" and config["workload"] != DTED:
        proofs = out / "proofs.json"
        proofs.unlink(missing_ok=True)
        code = children.run(
            ["-m", "faze", "prove_workload", "--config", resolved, "--out", proofs, *threads], words, limit_s
        )
        if proofs.exists():
            proof = _proof(unit, json.loads(proofs.read_text(encoding="utf-8"))[unit.subject])
            answer.write_text(json.dumps(proof), encoding="utf-8")
    else:
        proof = Proof(unit.kind, resolved, data, answer, _hashed(own_code(unit.kind, DTED)), tiny)
        *_, engine = unit.engines.values()
        few, processes = unit.kind != "step", count_processes(engine)  # a small batch is for two devices at most
        code = children.prove(proof, words, min(processes, 2) if few else processes, limit_s, few=few)
    result = _result(answer, words, code, limit_s)
    reasons = [f"{tier} was not timed: {why}" for tier, why in left_out.items()]
    if reasons:
        result["failed"] = "; ".join([*filter(None, [result.get("failed")]), *reasons])
    return result, code is not None


def _proof(unit: Unit, found: dict) -> dict:
    """Return a proof of a workload with the changed switches that are inactive."""
    changed = flatten(dataclasses.asdict(unit.engines[unit.subject])).items()
    names = {name for name, value in changed if value != getattr(unit.engines[BASELINE], name)}
    inactive = {s["switch"]: s["reason"] for s in found["switches"] if s["reason"] and s["switch"] in names}
    return found | {"inactive": inactive}


def render(config: dict, out: Path, tiny: bool) -> Iterator[list]:
    """Yield the arguments of the stages that render and preprocess the people for the trainings."""
    threads = ["--threads", "1" if tiny else str(os.cpu_count())]
    configs = {stage: out / f"{stage}.yaml" for stage in ("synthesise", "preprocess")}
    for stage, dataset in (("synthesise", None), ("preprocess", "gazecapture")):
        lines = to_lines(resolve(config["training"], stage, dataset=dataset))
        configs[stage].write_text("\n".join(lines) + "\n", encoding="utf-8")
    raw, labels = out / "people", out / "people_supplementary.h5"
    folders = ["--gazecapture", raw, "--gazecapture-supplementary", labels, "--truth", out / "people_truth.h5"]
    yield ["synthesise", "--config", configs["synthesise"], *folders, *threads]
    read = ["--raw", raw, "--supplementary", labels]
    written = ["--out", out / "people.h5", "--rejects", out / "people_rejects.csv"]
    yield ["preprocess", "--config", configs["preprocess"], *read, *written, *threads]


def training(unit: Unit, config: dict, out: Path) -> Iterator[list]:
    """Yield the arguments of a training run from the start, whatever an earlier attempt has left."""
    folder = out / "trainings" / unit.subject
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    gaze = config["workload"] == DTED
    stage, data = ("train", ["--data", out / "people.h5"]) if gaze else ("train_workload", [])
    flat = resolve(config["training"], stage, BASELINE, TRAINED[unit.subject])
    engine = flatten({"engine": dataclasses.asdict(unit.engines[unit.subject])})
    (folder / "train.yaml").write_text("\n".join(to_lines(flat | engine)) + "\n", encoding="utf-8")
    written = ["--out", folder / "checkpoint.pt", "--run-log", folder / "run.jsonl"]
    yield [stage, "--config", folder / "train.yaml", *data, *written]


def _outcome(unit: Unit, out: Path) -> dict:
    """Return the last validation and the duration of a training."""
    if unit.kind == "people":
        return {"people": 1}
    events = list(read_events(out / "trainings" / unit.subject / "run.jsonl"))
    values = [event["values"] for event in events if event["event"] == "metrics"]
    scores = [each[name] for each in values for name in ("val/gaze_deg", SCORE) if name in each]
    return {"score": scores[-1], "seconds": events[-1]["time"] - events[0]["time"]}


def _result(answer: Path, words: Path, code: int | None, limit_s: float) -> dict:
    """Return the written answer, even if the processes did not end; else the reason for the failure."""
    if answer.exists():
        result = json.loads(answer.read_text(encoding="utf-8"))
        if code != 0:
            result["note"] = "did not end" if code is None else f"ended with exit code {code}"
        return result
    last = words.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    stopped = f"stopped after {limit_s:.0f} s" + (f": {last}" if last else "")
    return {"failed": stopped if code is None else last or f"exit code {code}"}


def _resolve(unit: Unit, config: dict) -> list[str]:
    """Return a configuration of the `benchmark` stage with the unit's engines."""
    engines = {name: dataclasses.asdict(engine) for name, engine in unit.engines.items()}
    if unit.kind in ("people", "train"):
        gaze, seed = config["workload"] == DTED, TRAINED.get(unit.subject, 0)
        flat = resolve(config["training"], "train" if gaze else "train_workload", BASELINE, seed)
        people = resolve(config["training"], "synthesise") if gaze else {}
        return to_lines(flat | people | flatten({"engines": engines}))
    if unit.kind == "step":
        parts = step_parts(config)
        config = merge(config, {"train": {"global_batch": parts * config["train"]["global_batch"]}})
        engines[unit.subject] |= {"accumulate": parts}
    proving = unit.kind == "check" and config["workload"] != DTED
    flat = resolve(config, "prove_workload" if proving else "benchmark")
    flat = {key: value for key, value in flat.items() if not key.startswith("engines.")}
    return to_lines(flat | flatten({"engines": engines}))


def step_parts(config: dict) -> int:
    """Return the number of parts of a proof's step: two on a CPU, else as many as fit into each GPU's memory."""
    if not torch.cuda.is_available():
        return 2
    fit = SHARE * torch.cuda.get_device_properties(0).total_memory / 2**30 / PAIR_GIB / config["loss"]["chunk_pairs"]
    return max(min(MOST_PARTS, 2 ** int(math.log2(max(fit, 1)))), 2)
