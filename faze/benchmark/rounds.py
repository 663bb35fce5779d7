"""Rounds of the benchmark: each starts fresh processes for every tier, in random order, and times them in turn.

Processes that do the same work differ in memory layout, allocator state and memory peak. With fresh processes in each
round, the measured variation includes these differences. Finished rounds are kept in a file, so that a killed benchmark
continues with the next one. See docs/explanation/measurement.md.
"""

import contextlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faze.base.errors import UserError
from faze.benchmark.tier_process import TierProcesses
from faze.config.parameters import Benchmark
from faze.config.stage_config import Resolved

STEADY_SHARE = 0.1  # the slowest of three blocks over their fastest, minus 1

Round = dict[str, dict[str, Any]]  # tier -> its measurements
Start = Callable[[str], TierProcesses]  # starts the processes of a tier


def measure_rounds(config: Resolved, start: Start, kept: Path, identity: str, one_at_a_time: bool) -> Iterator[None]:
    """Measure every tier in each round; yield whenever results have been added to the file `kept`.

    Results in it with another identity are ignored. One at a time, each tier has the device's whole memory; a tier that
    cannot run raises UserError after all others have been measured.
    """
    random, tiers, failed = np.random.default_rng(0), list(config.engines), {}
    for number in range(config.benchmark.rounds):
        drawn, done = random.permutation(tiers).tolist(), read_rounds(kept, identity)[number]
        order = drawn if number else tiers  # a benchmark that is stopped early has its baseline
        for group in [[tier] for tier in order] if one_at_a_time else [order]:
            if done.keys() >= set(group) or failed.keys() & set(group):
                continue
            try:
                found = measure_group(group, start, config.benchmark)
            except UserError as error:
                failed |= dict.fromkeys(group, str(error))
                continue
            with kept.open("a", encoding="utf-8") as file:  # a line that a kill cut off ends before the next begins
                file.write("\n" + json.dumps({"identity": identity, "round": number, "tiers": found}))
            yield
    if failed:
        raise UserError("; ".join(sorted(set(failed.values()))))


def read_rounds(kept: Path, identity: str) -> dict[int, Round]:
    """Return the rounds measured so far, by number; the last one may lack tiers."""
    rounds: dict[int, Round] = defaultdict(dict)
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):  # cut off
            record = json.loads(line)
            if record["identity"] == identity:
                rounds[record["round"]] |= record["tiers"]
    return rounds


def measure_group(names: Sequence[str], start: Start, benchmark: Benchmark) -> Round:
    """Warm up each tier; then time blocks of all of them in turn, in alternating order; then read memory and phases."""
    with contextlib.ExitStack() as stack:
        tiers = [stack.enter_context(start(name)) for name in names]
        found = {tier.tier: tier.receive()[0] for tier in tiers}
        for tier in tiers:
            found[tier.tier] |= warm_up(tier, found[tier.tier], benchmark)
            tier.ask("settle")
        blocks: dict[str, list[list[dict]]] = {name: [] for name in names}
        for number in range(benchmark.blocks):
            for tier in tiers if number % 2 == 0 else reversed(tiers):
                blocks[tier.tier].append(tier.ask("block", found[tier.tier]["block_steps"]))
        for tier in tiers:
            row, memory = found[tier.tier], tier.ask("memory")
            row |= summarize(blocks[tier.tier], row["block_steps"])
            row |= {name: sum(each[name] for each in memory) for name in memory[0]}
            row["phases_ms"] = tier.ask("phases", row["block_steps"])[0]
    return found


def warm_up(tier: TierProcesses, about: dict[str, Any], benchmark: Benchmark) -> dict[str, Any]:
    """Run blocks until the last three take about the same time, but no more than warmup_blocks; choose their length."""
    first, steps = about["settling_steps"] + benchmark.warmup_steps, benchmark.block_steps
    seconds, steady = [duration(tier.ask("block", first))], False
    while not steady and len(seconds) <= benchmark.warmup_blocks:
        seconds.append(duration(tier.ask("block", steps)))
        last = seconds[1:][-3:]
        steady = len(last) == 3 and max(last) <= min(last) * (1 + STEADY_SHARE)
    found = {"warmup_s": sum(seconds), "warmup_steps": first + (len(seconds) - 1) * steps, "warmup_steady": steady}
    return found | {"block_steps": max(steps, math.ceil(steps * about["least_s"] / seconds[-1]))}


def summarize(blocks: Sequence[Sequence[dict]], steps: int) -> dict[str, Any]:
    """Combine the answers of a tier's processes to each block."""
    answers = [each for block in blocks for each in block]
    joules = sum(each["joules"] for each in answers) / len(blocks) / steps
    others_s = sum(block[0]["machine_s"] for block in blocks) - sum(each["own_s"] for each in answers)
    return {
        "blocks_ms": [1e3 * duration(block) / steps for block in blocks],
        "joules_per_step": None if math.isnan(joules) else joules,
        "throttled": sorted({why for each in answers for why in each["throttled"]}),
        "other_cores": others_s / sum(map(duration, blocks)),
    }


def duration(answers: Sequence[dict]) -> float:
    """Return the seconds of a block: those of the slowest process."""
    return max(each["seconds"] for each in answers)
