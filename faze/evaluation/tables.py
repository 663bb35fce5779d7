"""The tables of an evaluation: errors with intervals, changes against the baseline with verdicts, speed and memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.benchmark_file import left_out_rows, peaks_differ, rounds_of
from faze.base.files import as_written
from faze.base.logged_run import LoggedRun
from faze.base.run_log import changed_switches
from faze.config.parameters import Evaluate
from faze.evaluation.runs import MEASURE_AGAIN, Ablation, same_steps
from faze.evaluation.statistics import (
    SEEDS_FOR_A_TIER,
    Chance,
    bootstrap_mean,
    bootstrap_reduction,
    compare,
    holm,
    pooled_chance,
)

CELL = ["dataset", "learner", "k"]  # what is compared between tiers
RUN_CELL, TIER_CELL = ["tier", "seed", *CELL], ["tier", *CELL]
LIMITS = ("tflops", "share_of_matmul_roof", "gbytes_per_s", "share_of_copy_roof")  # how near the device's roof
COSTS = ("reserved_gib", "joules_per_step", "warmup_s", "pays_off_after_pairs")  # where the device tells them
# Columns of `performance` that are no numbers, or whole ones.
WORDS = (
    "tier",
    "same_as",
    "active",
    "inactive",
    "rounds",
    "speed_over",
    "memory_differs",
    "same_step",
    "unsteady_rounds",
)
SPREADS = ("peak_gib_low", "peak_gib_high", "memory_low", "memory_high")  # over rounds; older files have none

CHANGES = [
    *("tier", "baseline", *CELL, "baseline_deg", "tier_deg", "difference_deg", "low_deg", "high_deg"),
    *(
        "margin_deg",
        "tost_p",
        "difference_p",
        "difference_p_holm",
        "identical",
        "decides",
        "verdict",
        "people",
        "seeds",
    ),
]


def matrix(persons: pd.DataFrame) -> NDArray:
    """Arrange the errors of one tier, data set, learner and k as (S, P), people in alphabetical order."""
    (seeds, row), (people, column) = (np.unique(persons[key], return_inverse=True) for key in ("seed", "person"))
    errors = np.full((len(seeds), len(people)), np.nan)
    errors[row, column] = persons["error_deg"]  # pandas' pivot takes half of the evaluation's time
    return errors


def mean_errors(persons: pd.DataFrame, keys: list[str], evaluate: Evaluate) -> pd.DataFrame:
    """Average the errors of each run, with an interval over people, or of each tier, over its seeds too.

    Args:
        persons: errors of every test person (`runs.read_errors`).
        keys: RUN_CELL or TIER_CELL, one row for each.
        evaluate: confidence, resamples and seed of the bootstrap.

    Returns:
        Columns mean_deg, low_deg, high_deg; reduction (share by which the error falls from k = 0) with its interval;
        start_deg (a meta-model's own error before any step); people; seeds.
    """
    where = [key for key in keys if key not in ("learner", "k")]
    unadapted = {key: matrix(group) for key, group in persons[persons["k"] == 0].groupby(where)}
    bootstrap = {"confidence": evaluate.confidence, "resamples": evaluate.resamples, "seed": evaluate.seed}
    rows = []
    for key, group in persons.groupby(keys, sort=False):
        row = dict(zip(keys, key, strict=True))
        errors = matrix(group)  # (S, P)
        mean = bootstrap_mean(errors, **bootstrap)
        fall = bootstrap_reduction(errors, unadapted[tuple(row[k] for k in where)], **bootstrap)
        rows.append(
            row
            | {"mean_deg": mean.mean, "low_deg": mean.low, "high_deg": mean.high}
            | {"reduction": fall.mean, "reduction_low": fall.low, "reduction_high": fall.high}
            | {"start_deg": group["start_error_deg"].mean(), "people": errors.shape[1], "seeds": errors.shape[0]}
        )
    return pd.DataFrame(rows)


def changes(persons: pd.DataFrame, ablation: Ablation, evaluate: Evaluate) -> pd.DataFrame:
    """Compare each tier with the baseline, paired by person and seed, and judge the changes that decide.

    What chance does is learnt from all tiers together, from three seeds on.

    Args:
        persons: errors of every test person (`runs.read_errors`).
        ablation: its first tier is the baseline.
        evaluate: margin and confidence; the level of the tests is 1 - confidence.

    Returns:
        One row per tier, data set, learner and k; low_deg and high_deg are the interval of the equivalence test.
        `decides`: the verdict on the tier rests on it: unadapted, and the first learner at the largest k.
    """
    baseline = dict(iter(persons[persons["tier"] == ablation.tiers[0]].groupby(CELL)))
    chance = {cell: chance_of(rows) for cell, rows in persons[persons["tier"].isin(ablation.tiers)].groupby(CELL)}
    largest_k, rows = persons["k"].max(), []
    for (tier, *cell), group in persons.groupby(["tier", *CELL], sort=False):
        if tier == ablation.tiers[0]:
            continue
        paired = baseline[tuple(cell)]
        errors, reference = matrix(group), matrix(paired[paired["seed"].isin(group["seed"])])  # a control has one seed
        of_cell = {"margin": evaluate.margin_deg, "alpha": 1 - evaluate.confidence, "chance": chance[tuple(cell)]}
        result = compare(errors - reference, **of_cell)
        _, learner, k = cell
        rows.append(
            {"tier": tier, "baseline": ablation.tiers[0]}
            | dict(zip(CELL, cell, strict=True))
            | {"baseline_deg": reference.mean(), "tier_deg": errors.mean(), "difference_deg": result.difference}
            | {"low_deg": result.low, "high_deg": result.high, "margin_deg": evaluate.margin_deg}
            | {"tost_p": result.tost_p, "difference_p": result.difference_p, "identical": result.identical}
            | {"decides": k == 0 or (learner == ablation.learners[0] and k == largest_k)}
            | {"people": result.people, "seeds": result.seeds}
        )
    return _judged(pd.DataFrame(rows, columns=CHANGES), 1 - evaluate.confidence)


def chance_of(persons: pd.DataFrame) -> Chance | None:
    """Learn what chance does from all tiers' errors of one data set, learner and k; None from too few seeds."""
    if persons["seed"].nunique() < SEEDS_FOR_A_TIER or persons["person"].nunique() < 2:
        return None
    return pooled_chance(np.stack([matrix(of_tier) for _, of_tier in persons.groupby("tier")]))


def _judged(changes: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Give each change that decides a verdict: no difference by chance in 1 - alpha of ablations (`statistics.holm`).

    Below SEEDS_FOR_A_TIER seeds there is none: what chance does between trainings is in no p-value. Equivalence needs
    no adjustment, since a tier is equivalent only if each of its changes is.
    """
    judged = changes["decides"] & (changes["seeds"] >= SEEDS_FOR_A_TIER)
    changes["difference_p_holm"] = holm(changes["difference_p"].astype(float).where(judged))
    words = {
        "identical": changes["identical"],
        "": ~changes["decides"],
        "not judged": ~judged,
        "equivalent": changes["tost_p"] < alpha,
        "different": changes["difference_p_holm"] < alpha,
    }
    changes["verdict"] = np.select([found.astype(bool) for found in words.values()], list(words), "not shown").astype(
        object
    )
    return changes


def performance(ablation: Ablation, benchmark: Mapping[str, Any], trainings: Mapping[str, LoggedRun]) -> pd.DataFrame:
    """Tabulate speed and memory of each tier, and which of its switches act.

    Args:
        ablation: whose tiers.
        benchmark: its measurements (`runs.read_benchmark`).
        trainings: the run log of one training per tier: its switches are those that made the errors.

    Returns:
        One row per tier; same_as is the tier whose training is this one's too, since what tells them apart cannot act;
        speed_ratio and memory_ratio are how many times faster and smaller than the baseline it is;
        memory_differs where more than the spread over rounds parts them; same_step why it does the baseline's step.
    """
    with as_written(ablation.paths.benchmark, MEASURE_AGAIN):
        return _performance(ablation, benchmark, trainings)


def _performance(ablation: Ablation, benchmark: Mapping[str, Any], trainings: Mapping[str, LoggedRun]) -> pd.DataFrame:
    rows, same = [], same_steps(trainings)
    for tier in ablation.tiers:
        measured = benchmark["tiers"][tier]
        low, high = measured["step_ms_quartiles"]
        speed = measured["speedup"]
        baseline = () if tier == ablation.tiers[0] else trainings[ablation.tiers[0]].switches
        asked = changed_switches(trainings[tier].switches, baseline)
        rows.append(
            {
                "tier": tier,
                "same_as": same[tier],
                "step_ms": measured["step_ms"],
                "step_ms_q1": low,
                "step_ms_q3": high,
                "images_per_s": measured["images_per_s"],
                "speed_ratio": speed["ratio"],
                "speed_low": speed["low"],
                "speed_high": speed["high"],
                "peak_gib": measured["peak_gib"],
                "memory_ratio": measured["memory_ratio"],
                "active": "; ".join(f"{s['switch']} {s['wanted']} ({s['acted']})" for s in asked if not s["reason"]),
                "inactive": "; ".join(f"{s['switch']} {s['wanted']}: {s['reason']}" for s in asked if s["reason"]),
            }
            | _of_rounds(benchmark, measured, benchmark["tiers"][ablation.tiers[0]])
            | {f"{phase}_ms": value for phase, value in measured["phases_ms"].items()}
            | {name: measured.get(name) for name in (*SPREADS, *LIMITS, *COSTS)}
        )
    table = pd.DataFrame(rows)
    return table.astype({name: float for name in table if name not in WORDS})


def _of_rounds(benchmark: Mapping[str, Any], tier: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Say what the rounds of fresh processes tell of a tier, and how far its intervals can be trusted."""
    about = rounds_of(benchmark)
    return {
        "rounds": about["rounds"],
        "speed_confidence": about["confidence"],
        "speed_over": about["over"],
        "memory_differs": peaks_differ(tier, baseline),
        "same_step": tier.get("same_as_baseline") or "",
        "unsteady_rounds": tier.get("unsteady_rounds", 0 if tier.get("warmup_steady", True) else 1),
    }


def measured_besides(ablation: Ablation, benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Pick what benchmark.json tells besides each tier's own speed: the leave-one-outs, and the paper's width.

    Raises:
        UserError: the file is not as it was written.
    """
    with as_written(ablation.paths.benchmark, MEASURE_AGAIN):
        return {"leave_one_out": leave_one_out(benchmark), "paper_width": paper_width(ablation, benchmark)}


def leave_one_out(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Pick from benchmark.json how the topmost tier does without each rung's change; blocks are left out."""
    measured = benchmark.get("leave_one_out")
    if not measured:
        return {}
    rows = {rung: _against(row, measured["full"]) for rung, row in left_out_rows(measured).items()}
    return {"of": measured["of"], "without": rows}


def paper_width(ablation: Ablation, benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Pick from benchmark.json what was measured of the tiers at the paper's width; empty where nothing was."""
    measured = benchmark.get("paper_width")
    if not measured:
        return {}
    full = next(iter(measured["tiers"].values()), {})
    rows = {tier: _against(measured["tiers"][tier], full) for tier in ablation.tiers if tier in measured["tiers"]}
    return {"model": measured["model"], "global_batch": measured["global_batch"], **rounds_of(measured), "tiers": rows}


def _against(row: Mapping[str, Any], full: Mapping[str, Any]) -> dict[str, Any]:
    """Pick time and memory of a row, or why it was not measured: the same step as another."""
    if "same" in row:
        return {name: row[name] for name in ("same", "as") if name in row}
    named = ("step_ms", "speedup", "peak_gib", "peak_gib_low", "peak_gib_high", "memory_ratio")
    return {name: row[name] for name in named if name in row} | {"memory_differs": peaks_differ(row, full)}
