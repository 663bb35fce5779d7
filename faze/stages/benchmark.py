"""Rule `benchmark`: speed and memory of every tier, in rounds of fresh processes on the first batches of its training.

It needs exclusive use of the machine: the rule reserves all cores, and the stage refuses to start while another
benchmark or a training run of any checkout or user is running on the machine.
"""

import dataclasses
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from faze.base import cgroup
from faze.base.command_line import CONFIG, argument, command, needed, threads
from faze.base.errors import UserError
from faze.base.files import whole_file, write_json
from faze.base.locks import machine_exclusive, output_lock
from faze.benchmark.processes import Job
from faze.benchmark.roofline import count_work, count_workload
from faze.benchmark.rounds import measure_rounds
from faze.benchmark.rows import (
    about_rounds,
    leave_one_out_rows,
    paper_width_rows,
    same_steps,
    tier_rows,
    without_tier,
)
from faze.benchmark.tier_steps import measure_roofline, measure_tier, prepare, refuse_debugging
from faze.benchmark.tier_table import markdown_tables
from faze.config.check import build
from faze.config.parameters import Engine, Model
from faze.config.stage_config import Resolved, load
from faze.config.workloads import DTED
from faze.config.yaml_files import DEFAULTS, PAPER, read_yaml
from faze.engine import machine
from faze.engine.parallel import pick_device
from faze.training.workload_training import load_workload

PAPER_WIDTH_PAIRS = 8  # of a step, if its chunks allow so few
PAPER_WIDTH_ROUNDS = 3  # at most


@command(
    __doc__,
    CONFIG,
    argument("--data", type=Path, help="store of normalised strips; workloads other than DT-ED make their own data"),
    threads("CPU threads for each tier"),
    needed("--out", "benchmark.json to write"),
)
def main(args: Namespace) -> None:
    """Run the benchmark and print its tables."""
    config = load(args.config, "benchmark")
    machine.check_torch()
    refuse_debugging()
    if config.workload == DTED and args.data is None:
        raise UserError("the benchmark of DT-ED needs --data, the store of normalised strips")
    with machine_exclusive(), output_lock(args.out):
        rounds = about_rounds(config.benchmark.rounds)
        before = cgroup.throttling()
        result = {"machine": machine.describe(), "threads": args.threads, **rounds, **measure_tiers(config, args)}
        if config.leave_one_out:
            result["leave_one_out"] = measure_leave_one_out(config, args)
        if wide := at_paper_width(config):
            result["paper_width"] = measure_paper_width(wide, args)
        stopped = cgroup.throttled_since(before)
        result["cpu_throttling"] = None if stopped is None else dataclasses.asdict(stopped)
        with whole_file(args.out) as temporary:
            write_json(temporary, result)
    print(markdown_tables(result), end="")


def measure_tiers(config: Resolved, args: Namespace) -> dict[str, Any]:
    """Measure every tier of run.tiers, and the roofline of the device."""
    device = baseline_device(config)
    found = measure_rounds(
        {tier: tier_job(config, engine, args) for tier, engine in config.engines.items()},
        config.benchmark,
        roofline=Job(partial(measure_roofline, device=device, threads=args.threads)),
        one_at_a_time=device.type == "cuda",
    )
    if config.workload == DTED:
        work = count_work(config.model, config.loss, config.train)
        batch, images = config.train.global_batch, 2 * config.train.global_batch
    else:
        workload = load_workload(config.workload)
        work, batch, images = count_workload(workload), workload.batch_size, workload.batch_size
    rows = tier_rows(found, work=work, batch=batch, images=images)
    return {"work": dataclasses.asdict(work), "roof": found.rates.as_dict(), "tiers": rows}


def measure_leave_one_out(config: Resolved, args: Namespace) -> dict[str, Any]:
    """Measure the top tier without each of the other tiers' changes in turn, in separate rounds."""
    *_, top = config.leave_one_out
    jobs = {top: tier_job(config, config.engines[top], args)}
    for tier, engine in config.leave_one_out.items():
        jobs[without_tier(top, tier)] = tier_job(config, engine, args)
    found = measure_rounds(
        jobs,
        config.benchmark,
        one_at_a_time=baseline_device(config).type == "cuda",
        leave_out=partial(same_steps, as_first=True),
    )
    return leave_one_out_rows(found)


def measure_paper_width(wide: Resolved, args: Namespace) -> dict[str, Any]:
    """Measure the tiers of benchmark.paper_width, one at a time: few machines have the memory for several at once.

    Args:
        wide: configuration at the paper's width.
        args: arguments of the stage.
    """
    first, *_ = wide.engines
    chosen = [first, *wide.benchmark.paper_width]
    jobs = {tier: tier_job(wide, engine, args) for tier, engine in wide.engines.items() if tier in chosen}
    found = measure_rounds(jobs, wide.benchmark, one_at_a_time=True, leave_out=same_steps)
    sizes = {"model": dataclasses.asdict(wide.model), "global_batch": wide.train.global_batch}
    return sizes | about_rounds(wide.benchmark.rounds) | {"tiers": paper_width_rows(found)}


def tier_job(config: Resolved, engine: Engine, args: Namespace) -> Job:
    """Return the job that measures steps with a tier's switches."""
    prepared = partial(prepare, config=config, engine=engine, data=args.data)
    block_steps = config.benchmark.block_steps
    measure = partial(measure_tier, engine=engine, prepare=prepared, block_steps=block_steps, threads=args.threads)
    return Job(measure, engine)


def baseline_device(config: Resolved) -> torch.device:
    """Return the device of the baseline."""
    return pick_device(next(iter(config.engines.values())).device)


def at_paper_width(config: Resolved) -> Resolved | None:
    """Return the configuration at the paper's width: a small batch, and few steps of about a second each.

    At the small default width, most memory is not used for activations. The model is that of config/paper.yaml. The
    batch keeps its number of chunks, since whole chunks are distributed over processes and accumulation steps.

    Returns:
        None for workloads other than DT-ED, or if benchmark.paper_width contains none of the tiers, the width is the
        same, or the stored strips are too small.
    """
    if config.workload != DTED:
        return None
    paper = build(Model, read_yaml(DEFAULTS, PAPER)["model"])
    kept = {name: getattr(config.model, name) for name in ("normalize_axis", "backprop_gaze")}
    model = dataclasses.replace(paper, **kept)
    aspect = config.model.image_width_px * model.image_height_px == config.model.image_height_px * model.image_width_px
    fits = aspect and config.preprocess.width_px % model.image_width_px == 0
    if not config.engines.keys() & config.benchmark.paper_width or not fits or model == config.model:
        return None
    chunks = config.train.global_batch // config.loss.chunk_pairs
    chunk_pairs = max(1, PAPER_WIDTH_PAIRS // chunks)
    changed = {
        "model": model,
        "loss": dataclasses.replace(config.loss, chunk_pairs=chunk_pairs),
        "train": dataclasses.replace(config.train, global_batch=chunks * chunk_pairs),
        "benchmark": dataclasses.replace(
            config.benchmark,
            rounds=min(PAPER_WIDTH_ROUNDS, config.benchmark.rounds),
            blocks=2,
            block_steps=1,
            warmup_steps=1,
            warmup_blocks=0,
        ),
    }
    return dataclasses.replace(config, sections={**config.sections, **changed})
