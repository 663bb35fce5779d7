"""Measure, in interleaved blocks, how the time of a step grows with batch size, image size and processes.

    python benchmarks/scaling.py --configfile config/width.yaml --batches 4 8 16 --heights 32 64 --processes 1 2

Sizes: step = a + b x pixels x pairs, fitted by least squares in each block; intervals are t intervals over the blocks.
Processes: several processes each compute a share of one batch, and exchange gradients. The compute time is that of a
single process with one share of the batch and of the threads. The rest of a step is communication: exchange, waiting,
and contention. Strips are noise.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from faze.base.locks import machine_exclusive
from faze.benchmark.processes import Job, benchmark_processes, fork_servers
from faze.benchmark.rounds import RooflineRates, measure
from faze.benchmark.rows import mean_interval, ratio_interval
from faze.benchmark.tier_steps import measure_tier, prepare
from faze.config.check import build
from faze.config.parameters import Benchmark, Engine, Model
from faze.config.stage_config import build_config, resolve
from faze.config.tiers import resolve_tier
from faze.config.validation import read_config
from faze.config.yaml_files import DEFAULTS, merge
from faze.engine import machine
from faze.model.dted import DTED

ASPECT = 4  # width over height of a strip


@dataclass(frozen=True)
class Case:
    """One measured combination of engine, batch size, image height and threads."""

    name: str
    engine: Engine
    pairs: int
    height: int
    threads: int


def size_cases(engine: Engine, batches: Sequence[int], heights: Sequence[int], threads: int) -> list[Case]:
    return [Case(f"{n}x{h}", engine, n, h, threads) for h in heights for n in batches]


def process_cases(engine: Engine, processes: Sequence[int], pairs: int, height: int) -> list[Case]:
    """For each number of processes, return a case with all of them, and one with a single process and one share."""
    cases = []
    for count in processes:
        together = {"parallel": "ddp", "processes": count} if count > 1 else {"parallel": "single"}
        cases.append(Case(f"together{count}", build(Engine, asdict(engine) | together), pairs, height, count))
        if count > 1:
            alone = build(Engine, asdict(engine) | {"parallel": "single"})
            cases.append(Case(f"alone{count}", alone, pairs // count, height, 1))
    return cases


def time_cases(cases: Sequence[Case], values: Mapping[str, Any], benchmark: Benchmark) -> dict[str, list[float]]:
    """Return the milliseconds per step for every case and block."""
    jobs = {case.name: case_job(case, values) for case in cases}
    with fork_servers(jobs.values()) as servers, benchmark_processes(servers, jobs) as tiers:
        results = measure(tiers, benchmark, RooflineRates())
    return {name: result.blocks_ms for name, result in zip(jobs, results, strict=True)}


def case_job(case: Case, values: Mapping[str, Any]) -> Job:
    """Return the job that measures a case."""
    config = build_config(resolved(case, values), "benchmark", DEFAULTS)
    prepared = partial(prepare, config=config, engine=case.engine, data=None)
    block_steps = config.benchmark.block_steps
    measure = partial(measure_tier, engine=case.engine, prepare=prepared, block_steps=block_steps, threads=case.threads)
    return Job(measure, case.engine)


def resolved(case: Case, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the benchmark's configuration for a case, as flat keys."""
    changes = {
        "tiers": {case.name: asdict(case.engine)},
        "run": {"tiers": [case.name], "seeds": [0]},
        "train": {"global_batch": case.pairs},
        "loss": {"chunk_pairs": case.pairs // max(case.engine.processes, 1)},
        "model": {"image_height_px": case.height, "image_width_px": ASPECT * case.height},
        "benchmark": {"leave_one_out": False, "paper_width": []},
    }
    return resolve(merge(values, changes) | {"tiers": changes["tiers"]}, "benchmark")


def fit_sizes(cases: Sequence[Case], blocks_ms: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return a (ms) and b (ns per pixel of one image of a pair) with intervals, and the share of variance explained."""
    work = np.array([case.pairs * ASPECT * case.height**2 for case in cases], dtype=float)  # pixels x pairs
    times = np.array([blocks_ms[case.name] for case in cases])  # cases x blocks
    a, b = np.linalg.lstsq(np.stack([np.ones_like(work), work], axis=1), times, rcond=None)[0]
    medians = np.median(times, axis=1)
    residuals = medians - (np.median(a) + np.median(b) * work)
    explained = float(1 - (residuals**2).sum() / ((medians - medians.mean()) ** 2).sum())
    return {"a_ms": mean_interval(a), "b_ns_per_pixel_pair": mean_interval(1e6 * b), "explained": explained}


def communication(
    processes: Sequence[int], blocks_ms: Mapping[str, Sequence[float]], gradient_bytes: int
) -> list[dict[str, Any]]:
    """Return compute and communication times by number of processes p; each sends 2 (p - 1) / p times all gradients."""
    rows = []
    for count in processes:
        together = np.asarray(blocks_ms[f"together{count}"])
        row: dict[str, Any] = {
            "processes": count,
            "step_ms": float(np.median(together)),
            "speedup": ratio_interval(blocks_ms[f"together{processes[0]}"], together),
        }
        if count > 1:
            alone = np.asarray(blocks_ms[f"alone{count}"])
            row |= {
                "compute_ms": float(np.median(alone)),
                "communication_ms": mean_interval(together - alone),
                "compute_share": ratio_interval(alone, together),
                "exchanged_mib": 2 * (count - 1) / count * gradient_bytes / 2**20,
            }
        rows.append(row)
    return rows


def print_result(result: Mapping[str, Any]) -> None:
    for name, taken in result["blocks_ms"].items():
        first, median, third = np.percentile(taken, [25, 50, 75])
        print(f"  {name:12s} {median:9.1f} ms ({first:.1f} to {third:.1f})")
    if sizes := result.get("sizes"):
        a, b = sizes["a_ms"], sizes["b_ns_per_pixel_pair"]
        print(f"  step = a + b x pixels x pairs, {sizes['explained']:.1%} of the variance of the medians:")
        print("  a = {mean:.4g} ms ({low:.4g} to {high:.4g})".format(**a))
        print("  b = {mean:.4g} ns ({low:.4g} to {high:.4g})".format(**b))
    for row in result.get("processes", []):
        text = "  {processes} processes: {step_ms:.4g} ms".format(**row)
        text += ", {ratio:.2f} times as fast ({low:.2f} to {high:.2f})".format(**row["speedup"])
        if "compute_ms" in row:
            text += f", compute {row['compute_ms']:.4g} ms, " + (
                "communication {mean:.4g} ms ({low:.4g} to {high:.4g})".format(**row["communication_ms"])
            )
            text += f" for {row['exchanged_mib']:.3g} MiB"
        print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", type=Path, nargs="+", default=[], help="overrides, as for snakemake")
    parser.add_argument("--tier", default="baseline")
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--heights", type=int, nargs="+", default=[32, 64], help="pixels, multiples of 32")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="divisors of the largest batch")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of a step of the sizes")
    parser.add_argument("--out", type=Path, help="JSON to write")
    args = parser.parse_args()
    values = read_config(args.configfile)
    engine = resolve_tier(values, args.tier)
    benchmark = build(Benchmark, values["benchmark"])
    benchmark = replace(benchmark, blocks=benchmark.blocks * benchmark.rounds)  # of one round
    result: dict[str, Any] = {"machine": machine.describe(), "tier": args.tier, "blocks_ms": {}}
    with machine_exclusive():
        single = build(Engine, asdict(engine) | {"parallel": "single"})
        sizes = size_cases(single, args.batches, args.heights, args.threads)
        result["blocks_ms"] |= time_cases(sizes, values, benchmark)
        result["sizes"] = fit_sizes(sizes, result["blocks_ms"])
        cases = process_cases(engine, args.processes, max(args.batches), max(args.heights))
        result["blocks_ms"] |= time_cases(cases, values, benchmark)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in DTED(build(Model, values["model"])).parameters())
    result["processes"] = communication(args.processes, result["blocks_ms"], 4 * parameters)
    print(", ".join(f"{name} {fact}" for name, fact in result["machine"].items()))
    print_result(result)
    if args.out:
        args.out.write_text(json.dumps(result, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
