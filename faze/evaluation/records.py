"""Records of tiers: everything needed to compare a tier with the same tier of another code, values or machine."""

import subprocess
from collections.abc import Mapping
from typing import Any

import pandas as pd

from faze.base import code_hash
from faze.base.result_paths import ResultPaths
from faze.base.run_log import SCORE, read_run
from faze.config.parameters import DTED
from faze.config.stage_config import Resolved
from faze.evaluation.runs import read_errors
from faze.evaluation.statistics import compare

STAGES = ("train", "encode", "meta_train", "adapt", "benchmark")  # their code determines the numbers in a record
SPEED = ("step_ms", "speedup", "peaks_gib", "memory_ratio")
COLUMNS = ["metric", "person", "seed", "error"]  # metrics are named as in MLflow
NO_ERRORS = pd.DataFrame(columns=COLUMNS)
Record = Mapping[str, Any]


def make_record(
    paths: ResultPaths, config: Resolved, measured: Mapping[str, Any], tier: str, trained: bool
) -> dict[str, Any]:
    """Return a tier's record, given the contents of benchmark.json or tier_TIER.json.

    A record contains the fields of a run log's start event, for the measurement; `sources` (path@hash); `speed` and
    `baseline` (SPEED of the two); and `errors` (see `final_errors`).
    """
    own = {key: value for key, value in config.flat.items() if key.startswith("fewshot.")}
    sources = {line for stage in STAGES for line in code_hash.sources(f"faze.stages.{stage}")}
    baseline, row = next(iter(measured["tiers"].values())), measured["tiers"][tier]
    start = {"stage": "measure", "name": config.name, "tier": tier, "seed": config.run.seeds[0], "fingerprint": ""}
    return start | {
        "time": measured["time"],
        "machine": measured["machine"],
        "config": measured["values"][tier] | (own if config.workload == DTED else {}),
        "config_hash": measured["states"][tier],
        "sources": sorted(sources | set(measured["own_code"])),
        "speed": {key: row[key] for key in SPEED},
        "baseline": {key: baseline[key] for key in SPEED},
        "errors": (final_errors(paths, config, tier) if trained else NO_ERRORS).to_dict("list"),
    }


def final_errors(paths: ResultPaths, config: Resolved, tier: str) -> pd.DataFrame:
    """Return the COLUMNS of a trained tier: the errors that decide the verdict or, without people, a class's scores."""
    seeds, rows = config.run.seeds, []
    if config.workload != DTED:
        for seed in seeds:
            scores = [value.value for value in read_run(paths.run_log(tier, seed)).values if value.metric == SCORE]
            rows.append(("score/final", "", seed, scores[-1]))
        return pd.DataFrame(rows, columns=COLUMNS)
    found = read_errors(paths, [(tier, seed) for seed in seeds], config.fewshot.learners[:1])
    found = found[found["k"].isin([0, max(config.fewshot.shots)])]
    metrics = [f"error/{row.dataset}_k{row.k}_deg".replace("_k0_", "_") for row in found.itertuples()]
    return found.assign(metric=metrics, error=found["error_deg"])[COLUMNS]


def compare_errors(before: Mapping[str, list], after: Mapping[str, list], confidence: float = 0.95) -> pd.DataFrame:
    """Compare errors of the same people and seeds; return the means and results of `compare` for each metric."""
    if not before["error"] or not after["error"]:
        return pd.DataFrame()
    keys, rows = COLUMNS[:-1], []
    both = pd.DataFrame(after).merge(pd.DataFrame(before), on=keys, suffixes=("", "_before"))
    for metric, of in both.assign(change=both["error"] - both["error_before"]).groupby("metric", sort=False):
        changes = of.pivot(index="seed", columns="person", values="change").dropna(axis=1)
        if len(changes.columns) == 1:
            changes = changes.T  # the interval is then over seeds
        tested = compare(changes, margin=0.0, alpha=(1 - confidence) / 2)
        rows.append({"metric": metric, "before": of["error_before"].mean(), "after": of["error"].mean()} | tested)
    return pd.DataFrame(rows)


def list_changes(before: Record, after: Record) -> list[str]:
    """List the modules, with their commits, the values and the properties of the machine that differ."""
    commits = [record["machine"]["commit"] for record in (before, after)]
    modules = [dict(line.split("@") for line in record["sources"]) for record in (before, after)]
    changed = [f"code: {path}: {describe_commits(path, *commits)}" for path, _, _ in _differences(*modules)]
    for key in ("config", "machine"):
        changed += [f"{key}: {name}: {old} → {new}" for name, old, new in _differences(before[key], after[key])]
    return changed


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(key, before.get(key), after.get(key)) for key in before | after if before.get(key) != after.get(key)]


def describe_commits(path: str, before: str, after: str) -> str:
    """List the commits of faze's checkout that changed a file after the commit `before` and until `after`."""
    span = f"{before.rstrip('+')}..{after.rstrip('+')}"
    git = ["git", "-C", str(code_hash.ROOT), "log", "--format=%h %s", span, "--", path]
    found = subprocess.run(git, capture_output=True, text=True, check=False).stdout.splitlines()
    return "; ".join(found) or "not committed"
