"""The results on the report page: benchmark, proofs and, if anything was trained, the tables of the evaluation."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from faze.base.result_paths import ResultPaths
from faze.base.run_log import SCORE, read_run
from faze.base.tier_colors import BASELINE, tier_colors
from faze.config.parameters import WITHOUT_CODES
from faze.config.stage_config import Resolved
from faze.evaluation import UNADAPTED
from faze.evaluation.performance import performance, tier_changes
from faze.evaluation.runs import list_runs
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.summary import speed_and_memory
from faze.evaluation.wording import join, signed

TALK = {"name": "talk", "speed": 2.07, "memory": 1.6, "error": 1.0}  # the baseline's value divided by the last tier's
NOT_TRAINED = {"tiers": [], "seeds": [], "pixel_sources": {}}
ABOUT = ("score", "higher_is_better", "published", "published_speed", "published_memory")  # attributes of a workload
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Results:
    """Everything that the report page shows; `tables` is empty if nothing was trained."""

    rows: Rows  # one per measured tier, the baseline first (`tier_rows`)
    benchmark: Mapping[str, Any]
    summary: Mapping[str, Any]  # of the evaluation, or NOT_TRAINED
    tables: Mapping[str, pd.DataFrame]
    published: Mapping[str, Any]  # ratios to show next to ours, with the keys of TALK
    tiers: Sequence[str]  # only trained ones
    datasets: Sequence[str]  # gaze data sets in the order of the configuration

    @property
    def decisive(self) -> Sequence[tuple[str, int]]:
        """The (learner, k) pairs whose errors decide the verdict: unadapted, and the first learner at the largest k."""
        return (UNADAPTED, 0), (self.summary["learners"][0], self.summary["largest_k"])

    def first_learner(self, tier: str) -> str:
        """Return the first learner that works with a tier; networks of other projects have no codes."""
        given = tier in self.summary["networks"]
        return next(name for name in self.summary["learners"] if not given or name in WITHOUT_CODES)

    @property
    def colors(self) -> Mapping[str, str]:
        """The colour of each tier and control; a trained tier has the same colour in MLflow."""
        untrained = [row["tier"] for row in self.rows if row["tier"] not in self.tiers]
        return tier_colors([*self.tiers, *self.summary.get("networks", ()), *untrained]) | dict.fromkeys(
            self.summary.get("controls", ()), BASELINE
        )

    def cell(self, table: str, dataset: str, learner: str, k: int) -> pd.DataFrame:
        """Select the rows for a data set, learner and k, indexed by tier; tiers come before noise controls."""
        rows = self.tables[table]
        return rows[(rows["dataset"] == dataset) & (rows["learner"] == learner) & (rows["k"] == k)].set_index("tier")

    def curve(self, tier: str, dataset: str, learner: str) -> pd.DataFrame:
        """Select the errors of one tier and learner as a function of k, starting at k = 0."""
        rows = self.tables["tiers"]
        rows = rows[(rows["tier"] == tier) & (rows["dataset"] == dataset)]
        return rows[rows["learner"].isin([UNADAPTED, learner])].sort_values("k")


def tier_rows(benchmark: Mapping[str, Any], proofs: Mapping[str, Any]) -> Rows:
    """Return each measured tier's speed, memory, changes from the tier named in `before`, and proof ({} if none)."""
    changes = tier_changes({tier: row["switches"] for tier, row in benchmark["tiers"].items()})
    rows = []
    for speed in performance(benchmark).to_dict("records"):
        proof, (before, changed) = proofs.get(speed["tier"], {}), changes[speed["tier"]]
        rows.append(speed | {"before": before, "changed": changed, "proof": proof, "same": "failed" not in proof})
    return rows


def cards(rows: Rows) -> list[dict[str, str]]:
    """Return the cards that need no training: proofs, and speed and memory of tiers whose proof did not fail."""
    found = speed_and_memory(pd.DataFrame([row for row in rows if row["same"]]))
    proved = [row for row in rows[1:] if row["proof"]]
    failed = [row["tier"] for row in proved if not row["same"]]
    if proved:
        note = f"another experiment: {join(failed)}" if failed else "all tiers whose first steps were compared"
        found.append(("Same experiment", f"{len(proved) - len(failed)} of {len(rows) - 1}", note))
    return [{"title": title, "value": value, "note": note} for title, value, note in found]


def read_evaluation(paths: ResultPaths, rows: Rows) -> tuple[Mapping[str, Any], dict[str, pd.DataFrame]]:
    """Read the summary and tables of a DT-ED evaluation; if there is none, return cards but no tables."""
    if not (path := paths.evaluation / "summary.json").exists():
        return NOT_TRAINED | {"cards": cards(rows)}, {}
    summary = json.loads(path.read_text(encoding="utf-8"))
    return summary, {path.stem: read_csv(path) for path in paths.evaluation.glob("*.csv")}


def read_csv(path: Path) -> pd.DataFrame:
    """Read a table that a stage wrote. Only empty cells count as missing, since a person may be called NA."""
    return pd.read_csv(path, dtype={"person": str, "tier": str}, keep_default_na=False, na_values=[""])


def read_trainings(paths: ResultPaths, config: Resolved, rows: Rows) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Read a workload's run logs, if any; return its summary and the tables `training` and `scores` (see `compare`)."""
    run, confidence, curves = config.run, config.evaluate.confidence, []
    for tier, seed in list_runs(run):
        values = read_run(log).values if (log := paths.run_log(tier, seed)).exists() else ()
        curves += [(tier, seed, value.step, value.value) for value in values if value.metric == SCORE]
    summary = NOT_TRAINED | {"about": describe(config.workload), "cards": cards(rows), "runs": []}
    if not curves:
        return summary, {}
    training = pd.DataFrame(curves, columns=["tier", "seed", "samples", "score"])
    final = training.groupby(["tier", "seed"], sort=False)["score"].last()
    scores = compare(final, confidence)
    summary["cards"].append(score_card(scores, summary["about"], run.controls))
    summary |= {name: list(getattr(run, name)) for name in ("tiers", "seeds", "controls")}
    return summary | {"confidence": confidence, "runs": metrics(final, rows)}, {"training": training, "scores": scores}


def describe(name: str) -> dict[str, Any]:
    """Describe a user's class (MODULE:CLASS) by the attributes in ABOUT and the first sentence of its docstring."""
    from faze.training.check import load_class  # imports torch, which the page of DT-ED does not need

    workload = load_class(name)
    first = (inspect.getdoc(workload) or "").split("\n")[0].partition(". ")[0].rstrip(".")
    return {"path": name, "summary": first and f"{first}."} | {each: getattr(workload, each) for each in ABOUT}


def compare(final: pd.Series, confidence: float) -> pd.DataFrame:
    """Return each tier's mean score, mean change from the first tier (paired by seed), and t intervals over seeds."""
    first = final.index[0][0]
    values = pd.DataFrame({"score": final, "change": final.sub(final[first], level="seed")})
    values.loc[[first], "change"] = np.nan
    tiers = values.groupby("tier", sort=False)
    count, mean = tiers.count(), tiers.mean()
    half = (stats.t.ppf((1 + confidence) / 2, count - 1) * tiers.sem()).where(count >= SEEDS_FOR_A_TIER)
    parts = {"mean": mean, "low": mean - half, "high": mean + half}
    return pd.concat([part.add_suffix(f"_{name}") for name, part in parts.items()], axis=1)


def score_card(scores: pd.DataFrame, about: Mapping[str, Any], controls: Sequence[str]) -> dict[str, str]:
    """Return a card with the baseline's score and the changes that noise alone causes."""
    notes = [f"{about['score']}, {'higher' if about['higher_is_better'] else 'lower'} is better"]
    notes += [f"noise alone changes it by {signed(scores['change_mean'][name])} ({name})" for name in controls]
    value = f"{scores['score_mean'].iloc[0]:.2f}"
    return {"title": f"Score of {scores.index[0]}", "value": value, "note": "; ".join(notes)}


def metrics(final: pd.Series, rows: Rows) -> list[dict[str, Any]]:
    """Return each run's metrics for MLflow; noise controls have no benchmark results."""
    measured, runs = {row["tier"]: row for row in rows}, []
    for (tier, seed), score in final.items():
        found = {"score/final": score}
        if row := measured.get(tier):
            found |= {"speed/step_ms": row["step_ms"], "speed/speedup": row["speed_ratio"]}
            found |= {"memory/peak_gib": row["peak_gib"], "proof/same": float(row["same"])}
        runs.append({"tier": tier, "seed": seed, "metrics": found, "curves": {}})
    return runs
