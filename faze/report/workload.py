"""The training of a workload as a page shows it: the score of every run, compared with the baseline."""

import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from faze.base import code_hash
from faze.base.result_paths import ResultPaths
from faze.base.run_log import SCORE, read_run
from faze.config.stage_config import Resolved
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.wording import signed
from faze.report.formats import interval, number
from faze.report.results import Rows, cards

ABOUT = ("score", "higher_is_better", "published", "published_speed", "published_memory")


def summarize(paths: ResultPaths, config: Resolved, rows: Rows) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Read the run logs of a workload's trainings.

    Returns:
        The summary, whose `runs` are for MLflow; and the table `training` with the columns tier, seed, samples and score,
        and `scores` with each trained tier's mean score and change, with intervals; no tables if nothing was trained.
    """
    run, about, curves = config.run, describe(config.workload), []
    summary = {"about": about, "pixel_sources": {}, "confidence": config.evaluate.confidence, "cards": cards(rows)}
    runs = [(tier, seed) for tier in run.tiers for seed in run.seeds] + [(c, run.seeds[0]) for c in run.controls]
    for tier, seed in runs:
        if (log := paths.run_log(tier, seed)).exists():
            values = [value for value in read_run(log).values if value.metric == SCORE]
            curves += [(tier, seed, value.step, value.value) for value in values]
    if not curves:
        return summary | {"tiers": [], "seeds": [], "runs": []}, {}
    training = pd.DataFrame(curves, columns=["tier", "seed", "samples", "score"])
    final = training.groupby(["tier", "seed"], sort=False)["score"].last()
    scores = compare(final.loc[list(run.tiers)], config.evaluate.confidence)
    summary["noise"] = {c: final[c, run.seeds[0]] - final[run.tiers[0], run.seeds[0]] for c in run.controls}
    summary["cards"].append(score_card(scores, about, summary["noise"]))
    summary |= {"tiers": list(run.tiers), "seeds": list(run.seeds), "controls": list(run.controls)}
    return summary | {"runs": metrics(final, rows)}, {"training": training, "scores": scores}


def describe(name: str) -> dict[str, Any]:
    """Describe a class of the user's, MODULE:CLASS: its attributes ABOUT, and the first sentence of its docstring."""
    sys.path[:0] = [str(Path.cwd()), str(code_hash.ROOT)]
    module, _, kind = name.partition(":")
    workload = getattr(importlib.import_module(module), kind)
    sentence = (inspect.getdoc(workload) or "").split("\n")[0].partition(". ")[0].rstrip(".") + "."
    return {"path": name, "summary": sentence} | {attribute: getattr(workload, attribute) for attribute in ABOUT}


def compare(final: pd.Series, confidence: float) -> pd.DataFrame:
    """Return, by tier, mean, low and high of the score and of its change from the baseline with the same seeds.

    Args:
        final: final scores of trained tiers, by tier and seed.
        confidence: level of the t intervals over seeds, which are nan for fewer than SEEDS_FOR_A_TIER.
    """
    rows = {tier: {} for tier in final.index.unique("tier")}
    first = final.loc[next(iter(rows))]
    for tier, row in rows.items():
        for name, values in {"score": final.loc[tier], "change": final.loc[tier] - first}.items():
            half = np.nan
            if len(values) >= SEEDS_FOR_A_TIER:
                half = stats.t.ppf((1 + confidence) / 2, len(values) - 1) * stats.sem(values)
            mean = values.mean()
            row |= {f"{name}_mean": mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
    return pd.DataFrame.from_dict(rows, "index")


def score_card(scores: pd.DataFrame, about: Mapping[str, Any], noise: Mapping[str, float]) -> dict[str, str]:
    """Return a card with the baseline's score, the largest change and the noise."""
    first, changed = scores.iloc[0], scores.iloc[1:]
    parts = [f"{about['score']} ({'higher' if about['higher_is_better'] else 'lower'} is better)"]
    if len(changed):
        tier = changed["change_mean"].abs().idxmax()
        parts.append(f"largest change {signed(changed['change_mean'][tier])} ({tier})")
    parts += [f"noise alone changes it by {signed(change)} ({control})" for control, change in noise.items()]
    return {"title": f"Score of {scores.index[0]}", "value": number(first["score_mean"]), "note": "; ".join(parts)}


def metrics(final: pd.Series, rows: Rows) -> Sequence[dict[str, Any]]:
    """Return the metrics of each run for MLflow; noise controls have no benchmark."""
    measured, runs = {row["tier"]: row for row in rows}, []
    for (tier, seed), score in final.items():
        found = {"score/final": score}
        if row := measured.get(tier):
            found |= {"speed/step_ms": row["step_ms"], "speed/speedup": row["speed_ratio"]}
            found |= {"memory/peak_gib": row["peak_gib"], "proof/same": float(row["same"])}
        runs.append({"tier": tier, "seed": seed, "metrics": found, "curves": {}})
    return runs
