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
from faze.report.results import NOT_TRAINED, Rows, cards

ABOUT = ("score", "higher_is_better", "published", "published_speed", "published_memory")


def summarize(paths: ResultPaths, config: Resolved, rows: Rows) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Read the run logs of a workload's trainings, as far as there are any.

    Returns:
        The summary, with metrics of all `runs` for MLflow; and the tables `training` (tier, seed, samples, score) and
        `scores` (`compare`).
    """
    run, confidence, curves = config.run, config.evaluate.confidence, []
    runs = [(tier, seed) for tier in run.tiers for seed in run.seeds] + [(c, run.seeds[0]) for c in run.controls]
    for tier, seed in runs:
        values = read_run(log).values if (log := paths.run_log(tier, seed)).exists() else ()
        curves += [(tier, seed, value.step, value.value) for value in values if value.metric == SCORE]
    summary = NOT_TRAINED | {"about": describe(config.workload), "cards": cards(rows), "runs": []}
    if not curves:
        return summary, {}
    training = pd.DataFrame(curves, columns=["tier", "seed", "samples", "score"])
    final = training.groupby(["tier", "seed"], sort=False)["score"].last()
    scores = compare(final, run.tiers, confidence)
    summary["cards"].append(score_card(scores, summary["about"], run.controls))
    summary |= {name: list(getattr(run, name)) for name in ("tiers", "seeds", "controls")}
    return summary | {"confidence": confidence, "runs": metrics(final, rows)}, {"training": training, "scores": scores}


def describe(name: str) -> dict[str, Any]:
    """Describe a class of the user's, MODULE:CLASS: its attributes ABOUT, and the first sentence of its docstring."""
    sys.path[:0] = [str(Path.cwd()), str(code_hash.ROOT)]
    module, _, kind = name.partition(":")
    workload = getattr(importlib.import_module(module), kind)
    sentence = (inspect.getdoc(workload) or "").split("\n")[0].partition(". ")[0].rstrip(".") + "."
    return {"path": name, "summary": sentence} | {attribute: getattr(workload, attribute) for attribute in ABOUT}


def published(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the published ratios of a similar training, with the keys of TALK; {} if there are none."""
    ratios = {name: about[f"published_{name}"] for name in ("speed", "memory")}
    return {"name": "published"} | ratios if any(ratios.values()) else {}


def compare(final: pd.Series, tiers: Sequence[str], confidence: float) -> pd.DataFrame:
    """Return mean, low and high of each tier's final score, and of its change from the first tier with the same seeds.

    The t intervals over seeds are nan for fewer than SEEDS_FOR_A_TIER. Noise controls have a change only.
    """
    rows = {}
    for tier in final.index.unique("tier"):
        values = {"score": final[tier]} if tier in tiers else {}
        values |= {"change": (final[tier] - final[tiers[0]]).dropna()} if tier != tiers[0] else {}
        rows[tier] = {}
        for name, found in values.items():
            mean, half = found.mean(), np.nan
            if len(found) >= SEEDS_FOR_A_TIER:
                half = stats.t.ppf((1 + confidence) / 2, len(found) - 1) * stats.sem(found)
            rows[tier] |= {f"{name}_mean": mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
    return pd.DataFrame.from_dict(rows, "index").rename_axis("tier")


def score_card(scores: pd.DataFrame, about: Mapping[str, Any], controls: Sequence[str]) -> dict[str, str]:
    """Return a card with the baseline's score, the largest change and the noise."""
    notes = [f"{about['score']}, {'higher' if about['higher_is_better'] else 'lower'} is better"]
    changes = scores["change_mean"].drop(list(controls)).abs() if len(scores) > 1 else scores[:0]
    largest = [changes.idxmax()] if changes.any() else []
    notes += [f"largest change {signed(scores['change_mean'][tier])} ({tier})" for tier in largest]
    notes += [f"noise alone changes it by {signed(scores['change_mean'][name])} ({name})" for name in controls]
    value = f"{scores['score_mean'].iloc[0]:.2f}"
    return {"title": f"Score of {scores.index[0]}", "value": value, "note": "; ".join(notes)}


def metrics(final: pd.Series, rows: Rows) -> list[dict[str, Any]]:
    """Return the metrics of each run for MLflow; noise controls have no benchmark."""
    measured, runs = {row["tier"]: row for row in rows}, []
    for (tier, seed), score in final.items():
        found = {"score/final": score}
        if row := measured.get(tier):
            found |= {"speed/step_ms": row["step_ms"], "speed/speedup": row["speed_ratio"]}
            found |= {"memory/peak_gib": row["peak_gib"], "proof/same": float(row["same"])}
        runs.append({"tier": tier, "seed": seed, "metrics": found, "curves": {}})
    return runs
