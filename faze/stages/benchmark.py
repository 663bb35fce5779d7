"""Measure every tier's speed and memory on the first batches of its training run, in rounds of fresh processes.

During the benchmark, no training run or other benchmark, from any checkout, can run on the same machine.
"""

import json
import sys
from pathlib import Path

import joblib

from faze.base import code_hash
from faze.base.files import whole_file
from faze.base.machine import machine_lock
from faze.benchmark.rounds import TierProcesses, measure_rounds, read_rounds
from faze.benchmark.table import peak_shares, tabulate
from faze.benchmark.tier_process import measure_roofline, measure_tier
from faze.config.stage_config import Resolved
from faze.data.strips import SPLITS, read_store
from faze.engine import machine
from faze.engine.parallel import end_with_parent, pick_device
from faze.engine.switches import number_format


def main(
    *,
    config: Resolved,
    data: Path | None = None,
    proofs: list[Path] = (),
    threads: int,
    out: Path,
    tier: str | None = None,
    roofline: list[str] = (),
) -> None:
    """Combine the proofs into proofs.json, and run the benchmark; a killed benchmark resumes with the next round.

    Args:
        data: store of normalised strips, for DT-ED
        proofs: TIER.json of each tier, from the prove stage
        tier, roofline: what this process measures, if a benchmark started it: a tier, or the roofline in number formats
    """
    machine.check_torch()
    if tier:
        end_with_parent()
    if roofline:
        measure_roofline(config, data, threads, roofline)
    elif tier:
        measure_tier(config, tier, data, threads)
    else:
        write(out.with_name("proofs.json"), {path.stem: json.loads(path.read_bytes()) for path in proofs})
        with machine_lock(exclusive=True):
            run(config, data, threads, out)


def run(config: Resolved, data: Path | None, threads: int, out: Path) -> None:
    """Measure the rounds and then the roofline; finished rounds are stored in a file next to the output."""
    baseline, engines = next(iter(config.engines)), config.engines
    is_cpu = pick_device(engines[baseline].device).type == "cpu"
    about = {"machine": machine.describe(), "threads": threads}
    # A benchmark of other code or data, or on another machine, does not resume these rounds.
    code = [*code_hash.sources("faze.stages.benchmark"), *code_hash.sources(config.workload.split(":")[0], Path.cwd())]
    stored, facts = read_store(data).digest(*SPLITS) if data else "", about["machine"] | {"commit": ""}
    kept, identity = out.with_name("rounds.jsonl"), joblib.hash((config.hash, code, stored, facts))

    def start(tier: str) -> TierProcesses:
        return TierProcesses(tier, engines[tier], sys.argv[1:])

    def results() -> dict:
        return about | tabulate(list(read_rounds(kept, identity).values()), engines, is_cpu)

    for _ in measure_rounds(config, start, kept, identity, one_at_a_time=not is_cpu):
        write(out, results())
    result = results()
    formats = sorted({number_format(row["switches"]) for row in result["tiers"].values()})
    single = engines[baseline].model_copy(update={"parallel": "single"})
    with TierProcesses(baseline, single, [*sys.argv[1:], "--roofline", *formats]) as processes:
        [found] = processes.receive()
    for row in result["tiers"].values():
        row |= peak_shares(row, **found)
    write(out, found | result)
    kept.unlink()


def write(path: Path, result: dict) -> None:
    """Write a result as JSON, and print its tiers, if any."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(result, indent=1), encoding="utf-8")
    for tier, row in result.get("tiers", {}).items():
        speed = "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**row["speedup"])
        print(f"{tier}: {row['step_ms']:.4g} ms, speed {speed}, {row['peak_gib']:.3f} GiB", flush=True)
