"""Rounds of the benchmark: each starts fresh processes for every tier, in random order, and times them in turn.

Processes that do the same work differ in memory layout, allocator state and memory peak. With fresh processes in each
round, the measured variation includes these differences. Finished rounds are saved to a file, so that a killed
benchmark resumes with the next round and later measurements add rounds. See docs/explanation/measurement.md.
"""

import contextlib
import json
import math
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from faze.base.errors import UserError
from faze.base.machine import LAUNCHER
from faze.benchmark.tier_process import PIPE
from faze.config.parameters import Benchmark, Engine
from faze.engine.parallel import rank_environments
from faze.native.allocator_retention import VARIABLE, with_allocator_retention

STEADY_SHARE = 0.1  # share by which the slowest of three blocks may take longer than the fastest one


class TierProcesses(contextlib.AbstractContextManager):
    """The processes of a tier, controlled as one; exiting the context ends them."""

    def __init__(self, tier: str, engine: Engine, command: Sequence[str], **variables: str) -> None:
        """Start `faze COMMAND` with additional environment variables."""
        self.tier, self._processes, self._answers = tier, [], []
        common = {LAUNCHER: str(os.getpid())} | variables
        if engine.allocator == "keep":  # glibc reads this when a process starts
            common[VARIABLE] = with_allocator_retention(os.environ.get(VARIABLE, ""))
        for rank in rank_environments(engine):
            ours, theirs = os.pipe()
            variables = os.environ | common | rank | {PIPE: str(theirs)}
            words = [sys.executable, "-m", "faze", *command]
            self._processes.append(subprocess.Popen(words, stdin=subprocess.PIPE, env=variables, pass_fds=[theirs]))
            os.close(theirs)
            self._answers.append(os.fdopen(ours))

    def __exit__(self, error: object, *_: object) -> None:
        for process in self._processes:
            process.stdin.close()
            if error:
                process.kill()
            process.wait()

    def ask(self, request: str, *arguments: object) -> list[Any]:
        """Send all processes the same request; return their answers in rank order."""
        for process in self._processes:
            process.stdin.write(json.dumps([request, *arguments]).encode() + b"\n")
            process.stdin.flush()
        return self.receive()

    def receive(self) -> list[Any]:
        """Return the next answer from every process; raise a UserError if one has exited instead."""
        found: dict[Any, Any] = {}
        while waiting := [pipe for pipe in self._answers if pipe not in found]:
            for pipe in wait(waiting):  # detects an exit even while others wait for that process
                if not (line := pipe.readline()):
                    raise UserError(f"{self.tier}: its process exited early; see its output above")
                found[pipe] = json.loads(line)
        return [found[pipe] for pipe in self._answers]


def measure_rounds(
    benchmark: Benchmark,
    states: Mapping[str, str],
    start: Callable[[str], TierProcesses],
    kept: Path,
    label: str,
    one_at_a_time: bool,
) -> Iterator[None]:
    """Measure every tier in each round; yield whenever results have been added to the file `kept`.

    The keys of `states` are tiers; a state is a hash of everything that may change a tier's speed. Rounds in the file
    with the same label and states are continued or, if complete, followed by as many more. With `one_at_a_time`, each
    tier has the device memory to itself. If a tier cannot run, a UserError is raised after all others were measured.
    """
    tiers, failed, done = list(states), {}, read_rounds(kept, states)
    complete = sum(run == label and set(tiers) == rows.keys() for (run, _), rows in done.items())
    first = complete - complete % benchmark.rounds
    random = np.random.default_rng(first)
    for number in range(first, first + benchmark.rounds):
        drawn, finished = random.permutation(tiers).tolist(), done[label, number]
        order = drawn if number else tiers  # the baseline first, in case the benchmark is stopped early
        for group in [[tier] for tier in order] if one_at_a_time else [order]:
            if finished.keys() >= set(group) or failed.keys() & set(group):
                continue
            try:
                found = measure_group(group, start, benchmark)
            except UserError as error:
                failed |= dict.fromkeys(group, str(error))
                continue
            rows = {states[tier]: row for tier, row in found.items()}
            with kept.open("a", encoding="utf-8") as file:  # the leading newline ends a line that a kill cut off
                file.write("\n" + json.dumps({"run": label, "round": number, "rows": rows}))
            yield
    if failed:
        raise UserError("; ".join(sorted(set(failed.values()))))


def read_rounds(kept: Path, states: Mapping[str, str]) -> dict[tuple[str, int], dict[str, dict]]:
    """Return the rounds measured so far, by label and number, with a row for each tier that was in the given state."""
    rounds: dict[tuple[str, int], dict[str, dict]] = defaultdict(dict)
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):  # a line that a kill cut off
            record = json.loads(line)
            rows = {tier: record["rows"].get(state) for tier, state in states.items()}
            rounds[record["run"], record["round"]] |= {tier: row for tier, row in rows.items() if row}
    return rounds


def measure_group(names: Sequence[str], start: Callable[[str], TierProcesses], benchmark: Benchmark) -> dict[str, dict]:
    """Warm up each tier, time blocks of all tiers in turn (in alternating order), then read memory and phases."""
    others, began = other_seconds(), time.perf_counter()
    with contextlib.ExitStack() as stack:
        tiers = [stack.enter_context(start(name)) for name in names]
        found = {tier.tier: tier.receive()[0] for tier in tiers}
        for tier in tiers:
            found[tier.tier] |= warm_up(tier, found[tier.tier], benchmark)
            tier.ask("settle")
        blocks: dict[str, list[dict]] = {name: [] for name in names}
        for number in range(benchmark.blocks):
            for tier in tiers if number % 2 == 0 else reversed(tiers):
                blocks[tier.tier].append(time_block(tier, found[tier.tier]["block_steps"]))
        for tier in tiers:
            row, memory, timed = found[tier.tier], tier.ask("memory"), blocks[tier.tier]
            joules = sum(block["joules"] for block in timed) / row["block_steps"] / len(timed)
            row |= {"blocks_ms": [1e3 * block["seconds"] / row["block_steps"] for block in timed]}
            row |= {"joules_per_step": None if math.isnan(joules) else joules}
            row |= {name: sum(each[name] for each in memory) for name in memory[0]}
            row["phases_ms"] = tier.ask("phases", row["block_steps"])[0]
    other_cores = (other_seconds() - others) / (time.perf_counter() - began)
    return {name: row | {"other_cores": other_cores} for name, row in found.items()}


def warm_up(tier: TierProcesses, about: dict[str, Any], benchmark: Benchmark) -> dict[str, Any]:
    """Run at most warmup_blocks blocks, until the last three take about the same time; choose the block length."""
    first, steps = about["settling_steps"] + benchmark.warmup_steps, benchmark.block_steps
    seconds, steady = [time_block(tier, first)["seconds"]], False
    while not steady and len(seconds) <= benchmark.warmup_blocks:
        seconds.append(time_block(tier, steps)["seconds"])
        last = seconds[1:][-3:]
        steady = len(last) == 3 and max(last) <= min(last) * (1 + STEADY_SHARE)
    found = {"warmup_s": sum(seconds), "warmup_steps": first + (len(seconds) - 1) * steps, "warmup_steady": steady}
    return found | {"block_steps": max(steps, math.ceil(steps * about["least_s"] / seconds[-1]))}


def time_block(tier: TierProcesses, steps: int) -> dict[str, Any]:
    """Time a block of steps; return the slowest process's seconds and the total joules of all processes."""
    answers = tier.ask("block", steps)
    seconds, joules = ([each[name] for each in answers] for name in ("seconds", "joules"))
    return {"seconds": max(seconds), "joules": sum(joules)}


def other_seconds() -> float:
    """Return the busy seconds of all cores, including stolen time but not this process and its ended children."""
    ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split()[1:9]]
    idle = ticks[3] + ticks[4]  # including time spent waiting for disks
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])
