"""Tables of an evaluation: mean errors, their changes, differences between learners, speed and memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.run_log import LoggedRun
from faze.config.parameters import Evaluate
from faze.evaluation.runs import Ablation, tier_switches
from faze.evaluation.statistics import (
    SEEDS_FOR_A_TIER,
    Comparison,
    NoiseVariance,
    bootstrap_mean,
    bootstrap_reduction,
    compare,
    holm,
    pool_noise,
)
from faze.evaluation.switches import changed_switches
from faze.evaluation.wording import peaks_differ

CELL = ["dataset", "learner", "k"]  # errors of a cell are compared between tiers
RUN_CELL, TIER_CELL = ["tier", "seed", *CELL], ["tier", *CELL]
SEED = 0  # of the bootstrap
CHANGES = [
    *("tier", "baseline", *CELL, "baseline_deg", "tier_deg", "difference_deg", "low_deg", "high_deg", "margin_deg"),
    *("tost_p", "difference_p", "difference_p_holm", "identical", "decides", "verdict", "people", "seeds"),
]
SIMPLE = "offset"  # the learner with which all others are compared
LEARNERS = [
    *("tier", "dataset", "learner", "k", "learner_deg", "offset_deg", "difference_deg", "low_deg", "high_deg"),
    *("difference_p", "difference_p_holm", "tost_p", "tost_p_holm", "verdict", "people", "seeds"),
]
# Optional columns of `performance`: over rounds of processes, shares of the roofline peaks, costs.
OPTIONAL = ("peak_gib_low", "peak_gib_high", "memory_low", "memory_high")
OPTIONAL += ("tflops", "share_of_matmul_roof", "gbytes_per_s", "share_of_copy_roof")
OPTIONAL += ("reserved_gib", "joules_per_step", "warmup_s", "pays_off_after_pairs")
NOT_FLOAT = ("tier", "active", "inactive", "rounds", "speed_over", "memory_differs", "same_step")
NOT_FLOAT += ("unsteady_rounds", "comparisons")


def matrix(persons: pd.DataFrame) -> NDArray:
    """Arrange the errors for one tier, data set, learner and k as (S, P), with people in alphabetical order."""
    (seeds, row), (people, column) = (np.unique(persons[key], return_inverse=True) for key in ("seed", "person"))
    errors = np.full((len(seeds), len(people)), np.nan)
    errors[row, column] = persons["error_deg"]  # pandas' pivot would take half of the evaluation's time
    return errors


def mean_errors(persons: pd.DataFrame, keys: list[str], evaluate: Evaluate) -> pd.DataFrame:
    """Compute the mean error of each run with an interval over people, or of each tier with one over people and seeds.

    Args:
        persons: errors of every test person (`runs.read_errors`).
        keys: RUN_CELL or TIER_CELL, the columns that identify a row.
        evaluate: confidence and resamples of the bootstrap.

    Returns:
        Columns mean_deg, low_deg, high_deg; reduction (relative to k = 0) with its interval; start_deg (error of a
        meta-model before its first adaptation step); people; seeds.
    """
    where = [key for key in keys if key not in ("learner", "k")]
    unadapted = {key: matrix(group) for key, group in persons[persons["k"] == 0].groupby(where)}
    bootstrap = {"confidence": evaluate.confidence, "resamples": evaluate.resamples, "seed": SEED}
    rows = []
    for key, group in persons.groupby(keys, sort=False):
        row = dict(zip(keys, key, strict=True))
        errors = matrix(group)  # (S, P)
        mean = bootstrap_mean(errors, **bootstrap)
        reduction = bootstrap_reduction(errors, unadapted[tuple(row[k] for k in where)], **bootstrap)
        rows.append(
            row
            | {"mean_deg": mean.mean, "low_deg": mean.low, "high_deg": mean.high}
            | {"reduction": reduction.mean, "reduction_low": reduction.low, "reduction_high": reduction.high}
            | {"start_deg": group["start_error_deg"].mean(), "people": errors.shape[1], "seeds": errors.shape[0]}
        )
    return pd.DataFrame(rows)


def changes(persons: pd.DataFrame, ablation: Ablation, evaluate: Evaluate) -> pd.DataFrame:
    """Compare each tier with the baseline, paired by person and seed.

    With three seeds or more, the noise variance is pooled over all tiers.

    Args:
        persons: errors of every test person (`runs.read_errors`).
        ablation: its first tier is the baseline.
        evaluate: margin and confidence; the level of the tests is 1 - confidence.

    Returns:
        One row per tier, data set, learner and k. low_deg and high_deg are the ends of the interval of the equivalence
        test. `decides` marks the comparisons on which the tier's verdict is based: the unadapted error, and the error
        of the first learner at the largest k.
    """
    first = ablation.tiers[0]
    baseline = dict(iter(persons[persons["tier"] == first].groupby(CELL)))
    noise = {cell: cell_noise(rows) for cell, rows in persons[persons["tier"].isin(ablation.tiers)].groupby(CELL)}
    largest_k, rows = persons["k"].max(), []
    for (tier, *cell), group in persons[persons["tier"] != first].groupby(TIER_CELL, sort=False):
        paired = baseline[tuple(cell)]
        errors, reference = matrix(group), matrix(paired[paired["seed"].isin(group["seed"])])  # a control has one seed
        levels = {"margin": evaluate.margin_deg, "alpha": 1 - evaluate.confidence}
        found = compare(errors - reference, **levels, noise=noise[tuple(cell)])
        _, learner, k = cell
        rows.append(
            {"tier": tier, "baseline": first}
            | dict(zip(CELL, cell, strict=True))
            | {"baseline_deg": reference.mean(), "tier_deg": errors.mean(), "margin_deg": evaluate.margin_deg}
            | {"decides": k == 0 or (learner == ablation.learners[0] and k == largest_k)}
            | _columns(found)
        )
    return _with_verdicts(pd.DataFrame(rows, columns=CHANGES), 1 - evaluate.confidence)


def _columns(found: Comparison) -> dict[str, Any]:
    return {
        "difference_deg": found.difference,
        "low_deg": found.low,
        "high_deg": found.high,
        "tost_p": found.tost_p,
        "difference_p": found.difference_p,
        "identical": found.identical,
        "people": found.people,
        "seeds": found.seeds,
    }


def cell_noise(persons: pd.DataFrame) -> NoiseVariance | None:
    """Pool the noise variance for one data set, learner and k over all tiers; None for too few seeds or people."""
    if persons["seed"].nunique() < SEEDS_FOR_A_TIER or persons["person"].nunique() < 2:
        return None
    return pool_noise(np.stack([matrix(of_tier) for _, of_tier in persons.groupby("tier")]))


def _with_verdicts(changes: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Add a verdict to each deciding change; the p-values of differences are adjusted over all these changes (Holm).

    With fewer than SEEDS_FOR_A_TIER seeds there is no verdict, since the p-values do not include the variation between
    training runs. Equivalence needs no adjustment: a tier is equivalent only if all of its deciding changes are.
    """
    judged = changes["decides"] & (changes["seeds"] >= SEEDS_FOR_A_TIER)
    changes["difference_p_holm"] = holm(changes["difference_p"].astype(float).where(judged))
    verdicts = {
        "identical": changes["identical"],
        "": ~changes["decides"],
        "not judged": ~judged,
        "equivalent": changes["tost_p"] < alpha,
        "different": changes["difference_p_holm"] < alpha,
    }
    found = np.select([rows.astype(bool) for rows in verdicts.values()], list(verdicts), "not shown")
    return changes.assign(verdict=found.astype(object))


def learner_differences(persons: pd.DataFrame, learners: Sequence[str], evaluate: Evaluate) -> pd.DataFrame:
    """Compare every learner with `offset` for each tier, data set and k, paired by person and seed.

    Errors differ far more between people than between learners, so two learners may differ for every person although
    their intervals overlap.

    Args:
        persons: errors of every test person (`runs.read_errors`).
        learners: the learners to compare.
        evaluate: margin for learners, and confidence; the level of the tests is 1 - confidence.

    Returns:
        One row per tier, data set, learner and k; none if `offset` is not among the learners. difference_deg is learner
        minus `offset`: negative if the learner is better. low_deg and high_deg are the ends of its interval at the
        given confidence. The p-values for a difference and for equivalence are included both raw and adjusted over all
        learners and data sets of a tier and k (`statistics.holm`). The verdict (identical, equivalent, different, not
        shown) is based on the adjusted p-values.
    """
    alpha = 1 - evaluate.confidence
    adapted = persons[persons["k"] > 0]
    errors = {key: matrix(group) for key, group in adapted.groupby(["tier", "dataset", "k", "learner"], sort=False)}
    rows = []
    for tier, dataset, k in dict.fromkeys(key[:3] for key in errors) if SIMPLE in learners else ():
        for learner in [learner for learner in learners if learner != SIMPLE]:
            own, offset = errors[tier, dataset, k, learner], errors[tier, dataset, k, SIMPLE]
            # Half the level gives the two-sided interval; p-values do not depend on it.
            found = compare(own - offset, margin=evaluate.learner_margin_deg, alpha=alpha / 2)
            rows.append(
                {"tier": tier, "dataset": dataset, "learner": learner, "k": k}
                | {"learner_deg": own.mean(), "offset_deg": offset.mean()}
                | _columns(found)
            )
    table = pd.DataFrame(rows, columns=[*LEARNERS, "identical"])
    for test in ("difference_p", "tost_p"):
        table[f"{test}_holm"] = table.groupby(["tier", "k"])[test].transform(holm).astype(float)
    found = [table["identical"].astype(bool), table["tost_p_holm"] < alpha, table["difference_p_holm"] < alpha]
    table["verdict"] = np.select(found, ["identical", "equivalent", "different"], "not shown").astype(object)
    return table[LEARNERS]


def performance(ablation: Ablation, benchmark: Mapping[str, Any], trainings: Mapping[str, LoggedRun]) -> pd.DataFrame:
    """Tabulate the speed, memory and switches of each tier.

    Args:
        ablation: its first tier is the baseline.
        benchmark: the measurements of the benchmark.
        trainings: the run log of one training run per trained tier.

    Returns:
        One row per measured tier. speed_ratio and memory_ratio are relative to the baseline: above 1 if the tier is
        faster or uses less memory. memory_differs: whether the ranges of peak memory over rounds do not overlap.
        same_step: the reason why the tier's step is the same as the baseline's, if it is. unsteady_rounds: rounds that
        did not become steady during warm-up.
    """
    rows, first = [], ablation.tiers[0]
    switches = tier_switches(ablation, benchmark, trainings)
    baseline = benchmark["tiers"][first]
    for tier in switches:
        measured = benchmark["tiers"][tier]
        speed, (low, high) = measured["speedup"], measured["step_ms_quartiles"]
        changed = changed_switches(switches[tier], () if tier == first else switches[first])
        active = [f"{s['switch']} {s['wanted']} ({s['acted']})" for s in changed if not s["reason"]]
        inactive = [f"{s['switch']} {s['wanted']}: {s['reason']}" for s in changed if s["reason"]]
        row = {
            "tier": tier,
            "step_ms": measured["step_ms"],
            "step_ms_q1": low,
            "step_ms_q3": high,
            "images_per_s": measured["images_per_s"],
            "speed_ratio": speed["ratio"],
            "speed_low": speed["low"],
            "speed_high": speed["high"],
            "peak_gib": measured["peak_gib"],
            "memory_ratio": measured["memory_ratio"],
            "active": "; ".join(active),
            "inactive": "; ".join(inactive),
            "rounds": benchmark["rounds"],
            "speed_confidence": benchmark["speed_interval"]["confidence"],
            "speed_over": benchmark["speed_interval"]["over"],
            "memory_differs": peaks_differ(measured, baseline),
            "same_step": measured["same_as_baseline"] or "",
            "unsteady_rounds": measured["unsteady_rounds"],
        }
        chosen = measured["simultaneous"]
        row |= {"comparisons": chosen["comparisons"]}
        row |= {f"speed_{end}_of_all": chosen["speedup"][end] for end in ("low", "high")}
        row |= {f"memory_{end}_of_all": chosen["memory"] and chosen["memory"][end] for end in ("low", "high")}
        row |= {f"{phase}_ms": value for phase, value in measured["phases_ms"].items()}
        rows.append(row | {name: measured.get(name) for name in OPTIONAL})
    table = pd.DataFrame(rows)
    return table.astype({name: float for name in table if name not in NOT_FLOAT})
