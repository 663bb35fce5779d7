"""Measure speed and memory of every tier, in rounds of fresh processes on the first batches of its training.

No training or other benchmark of any checkout runs on the machine meanwhile.
"""

import hashlib
import json
import sys
from pathlib import Path

from faze.base import code_hash
from faze.base.files import whole_file
from faze.base.machine import machine_lock
from faze.benchmark.rounds import TierProcesses, measure_rounds, read_rounds
from faze.benchmark.table import peak_shares, tabulate
from faze.benchmark.tier_process import measure_roofline, measure_tier
from faze.config.stage_config import Resolved
from faze.engine import machine
from faze.engine.parallel import end_with_parent, pick_device
from faze.engine.switches import number_format


def main(
    *,
    config: Resolved,
    data: Path | None = None,
    threads: int,
    out: Path,
    tier: str | None = None,
    roofline: list[str] = (),
) -> None:
    """Run the benchmark; a killed one continues with the next round.

    Args:
        data: store of normalised strips; workloads other than DT-ED make their own data
        threads: CPU threads for each tier
        out: benchmark.json to write, after each round
        tier, roofline: measure only this tier, or the roofline with these number formats, on behalf of a benchmark
    """
    machine.check_torch()
    if tier:
        end_with_parent()
    if roofline:
        measure_roofline(config, data, threads, roofline)
    elif tier:
        measure_tier(config, tier, data, threads)
    else:
        with machine_lock(exclusive=True):
            run(config, data, threads, out)


def run(config: Resolved, data: Path | None, threads: int, out: Path) -> None:
    """Measure the rounds, which a file beside the output keeps, then the roofline."""
    baseline, engines = next(iter(config.engines)), config.engines
    is_cpu = pick_device(engines[baseline].device).type == "cpu"
    kept, identity = out.with_name("rounds.jsonl"), identify(config, data)
    about = {"machine": machine.describe(), "threads": threads}

    def start(tier: str) -> TierProcesses:
        return TierProcesses(tier, engines[tier], sys.argv[1:])

    def write(result: dict) -> None:
        with whole_file(out) as temporary:
            temporary.write_text(json.dumps(about | result, indent=1), encoding="utf-8")
        for tier, row in result["tiers"].items():
            speed = "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**row["speedup"])
            print(f"{tier}: {row['step_ms']:.4g} ms, speed {speed}, {row['peak_gib']:.3f} GiB", flush=True)

    for _ in measure_rounds(config, start, kept, identity, one_at_a_time=not is_cpu):
        write(tabulate(list(read_rounds(kept, identity).values()), engines, is_cpu))
    result = tabulate(list(read_rounds(kept, identity).values()), engines, is_cpu)
    formats = sorted({number_format(row["switches"]) for row in result["tiers"].values()})
    single = engines[baseline].model_copy(update={"parallel": "single"})
    with TierProcesses(baseline, single, [*sys.argv[1:], "--roofline", *formats]) as processes:
        [found] = processes.receive()
    for row in result["tiers"].values():
        row |= peak_shares(row, **found)
    write(found | result)
    kept.unlink()


def identify(config: Resolved, data: Path | None) -> str:
    """Hash what the results depend on: code, configuration, data and machine."""
    module = config.workload.partition(":")[0]
    code = [*code_hash.sources("faze.stages.benchmark"), *code_hash.sources(module, Path.cwd())]
    stored = [data.stat().st_size, data.stat().st_mtime_ns] if data else []
    facts = {name: fact for name, fact in machine.describe().items() if name != "commit"}
    return hashlib.sha256(repr([config.hash, code, stored, facts]).encode()).hexdigest()[:12]
