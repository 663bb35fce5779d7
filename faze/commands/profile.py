"""Profile the time and memory of one tier's steps with torch's profiler.

    faze profile --tier recompute --configfile config/sizes/width.yaml

Writes trace.json.gz (for ui.perfetto.dev) and operations.txt (the slowest operations) to results/NAME/profile/TIER.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.profiler import profile, record_function

from faze.base.errors import UserError
from faze.base.machine import machine_lock
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved, resolve, resolve_tier
from faze.config.validation import nearest, read_config
from faze.engine.parallel import join, launch, share
from faze.training.train import build, load_workload

WARMUP_STEPS = 3  # at least; a graph is captured in the last warm-up step
STEPS = 3


def main(*, tier: str, configfile: list[Path] = (), threads: int) -> None:
    """Profile three steps of a tier on random samples; with several processes, only the first one reports."""
    config, engine = tier_config(configfile, tier)
    if launch(engine, ["profile", *sys.argv[2:]]):
        return
    with machine_lock(exclusive=False), join(engine, share(threads, engine)) as world:
        training = build(load_workload(config), engine, world, seed=0)
        warm_up, end = max(WARMUP_STEPS, training.step.settling_steps), training.workload.samples
        batches = training.feed(range(warm_up + STEPS), record_function)
        for batch in itertools.islice(batches, warm_up):
            training.take(batch, end)
        with profile(profile_memory=True, with_flops=True) as profiler:
            for batch in batches:
                training.take(batch, end, clock=record_function)
        world.wait()
        if world.rank == 0:
            table = profiler.key_averages().table(sort_by=f"self_{world.device.type}_time_total", row_limit=15)
            out = Path("results", config.name, "profile", tier)
            out.mkdir(parents=True, exist_ok=True)
            (out / "operations.txt").write_text(table, encoding="utf-8")
            profiler.export_chrome_trace(str(out / "trace.json.gz"))
            print(f"{table}\n{STEPS} steps; trace: {out / 'trace.json.gz'}")


def tier_config(files: Sequence[Path], tier: str, changes: Mapping[str, Any] | None = None) -> tuple[Resolved, Engine]:
    """Read the benchmark's configuration (defaults, then override files, then `changes`) and a tier's switches."""
    config = read_config(files, changes)
    if tier not in config.tiers:
        raise UserError(f"{tier} is not defined under tiers{nearest(tier, config.tiers)}")
    return Resolved(resolve(config, "benchmark")), resolve_tier(config, tier)
