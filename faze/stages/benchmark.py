"""Measure speed and memory of every tier, in rounds of fresh processes on the first batches of its training.

No training or other benchmark of any checkout runs on the machine meanwhile.
"""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

from faze.base.files import whole_file
from faze.base.machine import machine_lock
from faze.benchmark.processes import Job
from faze.benchmark.roofline import count_work, count_workload
from faze.benchmark.rounds import measure_rounds
from faze.benchmark.rows import about_rounds, tier_rows
from faze.benchmark.tier_steps import measure_roofline, measure_tier, prepare, refuse_debugging
from faze.benchmark.tier_table import markdown_tables
from faze.config.parameters import DTED
from faze.config.stage_config import Resolved
from faze.engine import machine
from faze.engine.parallel import pick_device
from faze.training.workload_training import load_workload


def main(*, config: Resolved, data: Path | None = None, threads: int, out: Path) -> None:
    """Run the benchmark and print its tables.

    Args:
        data: store of normalised strips; workloads other than DT-ED make their own data
        threads: CPU threads for each tier
        out: benchmark.json to write
    """
    machine.check_torch()
    refuse_debugging()
    with machine_lock(exclusive=True):
        measured = measure_tiers(config, data, threads)
    rounds = about_rounds(config.benchmark.rounds)
    result = {"machine": machine.describe(), "threads": threads, **rounds, **measured}
    with whole_file(out) as temporary:
        temporary.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(markdown_tables(result), end="")


def measure_tiers(config: Resolved, data: Path | None, threads: int) -> dict[str, Any]:
    """Measure every tier of run.tiers, and the roofline of the device."""
    jobs = {}
    for tier, engine in config.engines.items():
        prepared = partial(prepare, config=config, engine=engine, data=data)
        steps = {"block_steps": config.benchmark.block_steps, "threads": threads}
        jobs[tier] = Job(partial(measure_tier, engine=engine, prepare=prepared, **steps), engine)
    device = pick_device(next(iter(config.engines.values())).device)
    roofline = Job(partial(measure_roofline, device=device, threads=threads))
    found = measure_rounds(jobs, config.benchmark, roofline=roofline, one_at_a_time=device.type == "cuda")
    if config.workload == DTED:
        work = count_work(config.model, config.loss, config.train)
        batch, images = config.train.global_batch, 2 * config.train.global_batch
    else:
        workload = load_workload(config.workload)
        work, batch, images = count_workload(workload), workload.batch_size, workload.batch_size
    rows = tier_rows(found, work=work, batch=batch, images=images)
    return {"work": dataclasses.asdict(work), "roof": found.rates.as_dict(), "tiers": rows}
