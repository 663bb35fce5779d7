"""How the time of a step grows with batch, image and processes, in interleaved blocks.

    python benchmarks/scaling.py --configfile config/width.yaml --batches 4 8 16 --heights 32 64 --processes 1 2

Sizes: step = a + b x pixels x pairs, fitted by least squares in each block; intervals are t intervals over the blocks.
Processes: the talk trains one batch on several devices, each computing its share and exchanging gradients. Compute time
is that of the share alone in one process with its share of the threads; what a step of all takes longer is
communication: exchange, waiting, and whatever else they share. Strips are noise.
"""

import argparse
import json
import os
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.locks import machine_exclusive
from faze.benchmark.interleave import RooflineRates, measure
from faze.benchmark.intervals import mean_interval, ratio_interval
from faze.benchmark.processes import fork_servers, measuring_command, measuring_processes
from faze.config.check import build
from faze.config.parameters import Benchmark, Engine, Model
from faze.config.stage_config import resolve, to_lines
from faze.config.tiers import resolve_tier
from faze.config.validation import read_config
from faze.config.yaml_files import merge
from faze.engine import machine
from faze.model.dted import DTED

ASPECT = 4  # width over height of a strip


@dataclass(frozen=True)
class Case:
    """One point of a scaling."""

    name: str
    engine: Engine
    pairs: int
    height: int
    threads: int


def size_cases(engine: Engine, batches: Sequence[int], heights: Sequence[int], threads: int) -> list[Case]:
    return [Case(f"{n}x{h}", engine, n, h, threads) for h in heights for n in batches]


def process_cases(engine: Engine, processes: Sequence[int], pairs: int, height: int) -> list[Case]:
    """For each number of processes, all together and one of them alone with its share of the batch; a thread each."""
    cases = []
    for count in processes:
        together = {"parallel": "ddp", "processes": count} if count > 1 else {"parallel": "single"}
        cases.append(Case(f"together{count}", build(Engine, asdict(engine) | together), pairs, height, count))
        if count > 1:
            alone = build(Engine, asdict(engine) | {"parallel": "single"})
            cases.append(Case(f"alone{count}", alone, pairs // count, height, 1))
    return cases


def time_cases(cases: Sequence[Case], values: Mapping[str, Any], benchmark: Benchmark) -> dict[str, list[float]]:
    """Milliseconds per step of every case and block."""
    with tempfile.TemporaryDirectory(prefix="faze") as folder:
        commands = {}
        for case in cases:
            path = Path(folder) / f"{case.name}.yaml"
            path.write_text("\n".join(to_lines(resolved(case, values))) + "\n", encoding="utf-8")
            args = Namespace(config=path, data=None, threads=case.threads)
            commands[case.name] = measuring_command(args, "--tier", case.name, engine=case.engine)
        with fork_servers(commands.values()) as servers, measuring_processes(servers, commands) as tiers:
            results = measure(tiers, benchmark, RooflineRates())
    return {name: result.blocks_ms for name, result in zip(commands, results, strict=True)}


def resolved(case: Case, values: Mapping[str, Any]) -> dict[str, Any]:
    """The file of a case's measuring process."""
    chunk = case.pairs // max(case.engine.processes, 1)
    changes = {
        "tiers": {case.name: asdict(case.engine)},
        "run": {"tiers": [case.name], "seeds": [0]},
        "train": {"global_batch": case.pairs},
        "loss": {"chunk_pairs": chunk},
        "model": {"image_height_px": case.height, "image_width_px": ASPECT * case.height},
        "benchmark": {"leave_one_out": False, "paper_width": False},
    }
    merged = merge(values, changes)
    merged["tiers"] = changes["tiers"]
    return resolve(merged, "benchmark")


def fit_sizes(cases: Sequence[Case], blocks_ms: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """A (ms) and b (ns per pixel of a pair's one image) with intervals, and the share of variance they explain."""
    work = np.array([case.pairs * ASPECT * case.height**2 for case in cases], dtype=float)  # pixels x pairs
    times = np.array([blocks_ms[case.name] for case in cases])  # cases x blocks
    a, b = np.linalg.lstsq(np.stack([np.ones_like(work), work], axis=1), times, rcond=None)[0]
    medians = np.median(times, axis=1)
    return {
        "a_ms": mean_interval(a),
        "b_ns_per_pixel_pair": mean_interval(1e6 * b),
        "explained": _explained(medians, np.median(a) + np.median(b) * work),
    }


def _explained(found: NDArray[np.float64], fitted: NDArray[np.float64]) -> float:
    return float(1 - ((found - fitted) ** 2).sum() / ((found - found.mean()) ** 2).sum())


def communication(
    processes: Sequence[int], blocks_ms: Mapping[str, Sequence[float]], gradient_bytes: int
) -> list[dict[str, Any]]:
    """Compute and communication time for each number of processes; a ring moves 2 (p - 1) / p gradients per process."""
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
        words = "  {processes} processes: {step_ms:.4g} ms".format(**row)
        words += ", {ratio:.2f} times as fast ({low:.2f} to {high:.2f})".format(**row["speedup"])
        if "compute_ms" in row:
            words += f", compute {row['compute_ms']:.4g} ms, " + (
                "communication {mean:.4g} ms ({low:.4g} to {high:.4g})".format(**row["communication_ms"])
            )
            words += f" for {row['exchanged_mib']:.3g} MiB"
        print(words)


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
    engine = resolve_tier(values["tiers"], args.tier)
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
