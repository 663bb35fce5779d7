"""Measure every tier's speed and memory on the first batches of its training run, in rounds of fresh processes.

During the benchmark, no training run or other benchmark, from any checkout, can run on the same machine.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import joblib

from faze.base import code_hash
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.machine import machine_lock
from faze.benchmark.rounds import TierProcesses, measure_rounds, read_rounds
from faze.benchmark.states import find_previous, keep_state, start_previous
from faze.benchmark.table import compare, peak_shares, tabulate
from faze.benchmark.tier_process import measure_roofline, measure_tier
from faze.config.parameters import TRAINING
from faze.config.stage_config import Resolved, flatten
from faze.data.strips import SPLITS, read_store
from faze.engine import machine
from faze.engine.parallel import end_with_parent, pick_device
from faze.engine.switches import number_format

PREVIOUS = "previous state"  # the name in rounds; names of tiers contain no spaces


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
    if tier:
        end_with_parent()
    if roofline:
        measure_roofline(config, data, threads, roofline)
    elif tier:
        measure_tier(config, tier, data, threads)
    else:
        if config.stage == "benchmark":
            write(out.with_name("proofs.json"), {path.stem: json.loads(path.read_bytes()) for path in proofs})
        with machine_lock(exclusive=True):
            run(config, data, threads, out)


def run(config: Resolved, data: Path | None, threads: int, out: Path) -> None:
    """Measure the rounds and then the roofline or, for a single tier, measure its previous state in the same rounds."""
    baseline, engines = next(iter(config.engines)), config.engines
    is_cpu = pick_device(engines[baseline].device).type == "cpu"
    about = {"machine": machine.describe(), "threads": threads}
    own_code = code_hash.sources(config.workload.split(":")[0], Path.cwd())
    shared = {key: value for key, value in config.flat.items() if key.split(".")[0] in (*TRAINING, "workload")}
    values = {tier: shared | flatten(engine.model_dump(), "engine.") for tier, engine in engines.items()}
    # Rounds are combined only if these and the values are the same.
    facts = [about | {"machine": about["machine"] | {"commit": ""}}, read_store(data).digest(*SPLITS) if data else ""]
    facts += [code_hash.sources("faze.stages.benchmark"), own_code]
    states = {tier: joblib.hash((facts, tier, values[tier])) for tier in engines}
    about |= {"time": time.time(), "states": states, "values": values, "own_code": own_code}
    kept, copies = out.with_name("rounds.jsonl"), out.with_name("states")
    keep_state(copies, config, own_code, states)
    single = config.tier if config.stage == "measure" else ""
    previous, hashed = find_previous(copies, single, states[single]) if single else (None, "")

    def start(name: str) -> TierProcesses:
        if name == PREVIOUS:
            return start_previous(previous, name, single, sys.argv[2:])
        return TierProcesses(name, engines[name], [*sys.argv[1:], "--tier", name])

    def measure(states: Mapping[str, str]) -> dict:
        for _ in measure_rounds(config.benchmark, states, start, kept, single, not is_cpu):
            rounds = [rows for rows in read_rounds(kept, states).values() if single in rows or not single]
            result = about | tabulate(rounds, engines, is_cpu)
            if beside := [row for row in rounds if {PREVIOUS, single} <= row.keys()]:
                before, after = ([row[name] for row in beside] for name in (PREVIOUS, single))
                rows = {"before": compare(before, before, 1), "after": compare(after, before, 1)}
                result["change"] = rows | {"state": hashed}
            write(out, result)
        return result

    if single:
        try:
            measure(states | {PREVIOUS: hashed} if previous else states)
        except UserError as error:
            if not previous:
                raise
            write(out, measure(states) | {"previous_failed": str(error)})
        return
    result = measure(states)
    formats = sorted({number_format(row["switches"]) for row in result["tiers"].values()})
    one = engines[baseline].model_copy(update={"parallel": "single"})
    words = [*sys.argv[1:], "--tier", baseline, "--roofline", *formats]
    with TierProcesses(baseline, one, words) as processes:
        [found] = processes.receive()
    for row in result["tiers"].values():
        row |= peak_shares(row, **found)
    write(out, found | result)


def write(path: Path, result: dict) -> None:
    """Write a result as JSON, and print its tiers, if any."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(result, indent=1), encoding="utf-8")
    for tier, row in result.get("tiers", {}).items():
        speed = "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**row["speedup"])
        print(f"{tier}: {row['step_ms']:.4g} ms, speed {speed}, {row['peak_gib']:.3f} GiB", flush=True)
