"""Tables of an evaluation: mean errors, their changes, differences between learners, speed and memory."""

import itertools
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.files import as_written
from faze.base.logged_run import LoggedRun
from faze.base.run_log import changed_switches
from faze.config.parameters import Evaluate
from faze.evaluation.runs import MEASURE_AGAIN, Ablation, same_steps, tier_switches
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
from faze.evaluation.wording import peaks_differ

CELL = ["dataset", "learner", "k"]  # errors of a cell are compared between tiers
RUN_CELL, TIER_CELL = ["tier", "seed", *CELL], ["tier", *CELL]
CHANGES = [
    *("tier", "baseline", *CELL, "baseline_deg", "tier_deg", "difference_deg", "low_deg", "high_deg", "margin_deg"),
    *("tost_p", "difference_p", "difference_p_holm", "identical", "decides", "verdict", "people", "seeds"),
]
LEARNER_PAIRS = [
    *("tier", "dataset", "learner", "other", "k", "learner_deg", "other_deg", "difference_deg", "low_deg", "high_deg"),
    *("difference_p", "difference_p_holm", "tost_p", "tost_p_holm", "verdict", "people", "seeds"),
]
# Optional columns of `performance`: over rounds of processes, shares of the roofline peaks, costs.
OPTIONAL = ("peak_gib_low", "peak_gib_high", "memory_low", "memory_high")
OPTIONAL += ("tflops", "share_of_matmul_roof", "gbytes_per_s", "share_of_copy_roof")
OPTIONAL += ("reserved_gib", "joules_per_step", "warmup_s", "pays_off_after_pairs")
NOT_FLOAT = ("tier", "same_as", "active", "inactive", "rounds", "speed_over", "memory_differs", "same_step")
NOT_FLOAT += ("unsteady_rounds", "comparisons")
_SWAPPED = {"learner": "other", "learner_deg": "other_deg", "low_deg": "high_deg"}


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
        evaluate: confidence, resamples and seed of the bootstrap.

    Returns:
        Columns mean_deg, low_deg, high_deg; reduction (relative to k = 0) with its interval; start_deg (error of a
        meta-model before its first adaptation step); people; seeds.
    """
    where = [key for key in keys if key not in ("learner", "k")]
    unadapted = {key: matrix(group) for key, group in persons[persons["k"] == 0].groupby(where)}
    bootstrap = {"confidence": evaluate.confidence, "resamples": evaluate.resamples, "seed": evaluate.seed}
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


def changes(persons: pd.DataFrame, ablation: Ablation, evaluate: Evaluate, given: Container[str] = ()) -> pd.DataFrame:
    """Compare each tier with the baseline, paired by person and seed.

    With three seeds or more, the noise variance is pooled over all tiers.

    Args:
        persons: errors of every test person (`runs.read_errors`).
        ablation: its first tier is the baseline.
        evaluate: margin and confidence; the level of the tests is 1 - confidence.
        given: tiers with given weights, which are compared, but not judged as changes of the baseline's training.

    Returns:
        One row per tier, data set, learner and k. low_deg and high_deg are the ends of the interval of the equivalence
        test. `decides` marks the comparisons on which the tier's verdict is based: the unadapted error, and the error
        of the first learner at the largest k.
    """
    first = ablation.tiers[0]
    baseline = dict(iter(persons[persons["tier"] == first].groupby(CELL)))
    trained = [tier for tier in ablation.tiers if tier not in given]
    noise = {cell: cell_noise(rows) for cell, rows in persons[persons["tier"].isin(trained)].groupby(CELL)}
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
            | {"decides": tier not in given and (k == 0 or (learner == ablation.learners[0] and k == largest_k))}
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
    """Compare every pair of learners for each tier, data set and k, paired by person and seed.

    Errors differ far more between people than between learners, so two learners may differ for every person although
    their intervals overlap.

    Args:
        persons: errors of every test person (`runs.read_errors`).
        learners: the learners to compare; their order determines which one comes first in a pair.
        evaluate: margin for learners, and confidence; the level of the tests is 1 - confidence.

    Returns:
        One row per tier, data set, pair and k. difference_deg is learner minus other: negative if the learner is
        better. low_deg and high_deg are the ends of this pair's interval at the given confidence. The p-values for a
        difference and for equivalence are included both raw and adjusted over all pairs and data sets of a tier and k
        (`statistics.holm`). The verdict (identical, equivalent, different, not shown) is based on the adjusted
        p-values.
    """
    alpha = 1 - evaluate.confidence
    adapted = persons[persons["k"] > 0]
    errors = {key: matrix(group) for key, group in adapted.groupby(["tier", "dataset", "k", "learner"], sort=False)}
    rows = []
    for tier, dataset, k in dict.fromkeys(key[:3] for key in errors):
        for learner, other in itertools.combinations(learners, 2):
            first, second = errors[tier, dataset, k, learner], errors[tier, dataset, k, other]
            # Half the level gives the two-sided interval; p-values do not depend on it.
            found = compare(first - second, margin=evaluate.learner_margin_deg, alpha=alpha / 2)
            rows.append(
                {"tier": tier, "dataset": dataset, "learner": learner, "other": other, "k": k}
                | {"learner_deg": first.mean(), "other_deg": second.mean()}
                | _columns(found)
            )
    pairs = pd.DataFrame(rows, columns=[*LEARNER_PAIRS, "identical"])
    for test in ("difference_p", "tost_p"):
        pairs[f"{test}_holm"] = pairs.groupby(["tier", "k"])[test].transform(holm).astype(float)
    found = [pairs["identical"].astype(bool), pairs["tost_p_holm"] < alpha, pairs["difference_p_holm"] < alpha]
    pairs["verdict"] = np.select(found, ["identical", "equivalent", "different"], "not shown").astype(object)
    return pairs[LEARNER_PAIRS]


def against(pairs: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Select the pairs with `reference` and make it the `other`: a difference is negative if `learner` is better."""
    swapped = pairs.rename(columns=_SWAPPED | {new: old for old, new in _SWAPPED.items()})
    swapped[["difference_deg", "low_deg", "high_deg"]] *= -1
    both = pd.concat([pairs, swapped], ignore_index=True)
    return both[both["other"] == reference]


class Crossing(NamedTuple):
    """A crossing of the curves of two learners."""

    learner: str
    other: str
    below: int  # k on either side
    above: int
    shown: bool  # whether a difference is shown on both sides


def crossings(pairs: pd.DataFrame) -> list[Crossing]:
    """Find the last crossing of each pair's curves; `pairs` contains one tier and one data set at every k.

    A crossing is shown if the pair is judged different at two values of k, with opposite signs; it is between the
    nearest such values. Otherwise, the crossing is where the order of the means changes, which may be due to chance.
    """
    found = []
    for (learner, other), curve in pairs.groupby(["learner", "other"], sort=False):
        curve = curve[curve["difference_deg"] != 0].sort_values("k")
        for shown in (True, False):
            points = curve[curve["verdict"] == "different"] if shown else curve
            signs, shots = np.sign(points["difference_deg"].to_numpy()), points["k"].to_numpy()
            sign_changes = np.flatnonzero(signs[1:] != signs[:-1])
            if len(sign_changes):
                last = sign_changes[-1]
                found.append(Crossing(learner, other, int(shots[last]), int(shots[last + 1]), shown))
                break
    return found


def performance(ablation: Ablation, benchmark: Mapping[str, Any], trainings: Mapping[str, LoggedRun]) -> pd.DataFrame:
    """Tabulate the speed, memory and switches of each tier.

    Args:
        ablation: its first tier is the baseline.
        benchmark: the measurements of the benchmark (`runs.read_benchmark`).
        trainings: the run log of one training run per trained tier.

    Returns:
        One row per measured tier. speed_ratio and memory_ratio are relative to the baseline: above 1 if the tier is
        faster or uses less memory. memory_differs: whether the ranges of peak memory over rounds do not overlap.
        same_as: an earlier tier with an identical training run. same_step: the reason why the tier's step is the same
        as the baseline's, if it is. unsteady_rounds: rounds that did not become steady during warm-up.

    Raises:
        UserError: benchmark.json is damaged.
    """
    rows, same, first = [], same_steps(trainings), ablation.tiers[0]
    switches = tier_switches(ablation, benchmark, trainings)
    with as_written(ablation.paths.benchmark, MEASURE_AGAIN):
        baseline = benchmark["tiers"][first]
        for tier in switches:
            measured = benchmark["tiers"][tier]
            speed, (low, high) = measured["speedup"], measured["step_ms_quartiles"]
            changed = changed_switches(switches[tier], () if tier == first else switches[first])
            active = [f"{s['switch']} {s['wanted']} ({s['acted']})" for s in changed if not s["reason"]]
            inactive = [f"{s['switch']} {s['wanted']}: {s['reason']}" for s in changed if s["reason"]]
            row = {
                "tier": tier,
                "same_as": same.get(tier, ""),
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


def other_benchmarks(ablation: Ablation, benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """Select the leave-one-out and paper-width measurements from benchmark.json; each is empty if not measured.

    Raises:
        UserError: the file is damaged.
    """
    with as_written(ablation.paths.benchmark, MEASURE_AGAIN):
        left_out, wide = {}, {}
        if measured := benchmark.get("leave_one_out"):
            rows = {tier: _time_and_memory(row, measured["full"]) for tier, row in measured["left_out"].items()}
            left_out = {"of": measured["of"], "without": rows}
        if measured := benchmark.get("paper_width"):
            of_tiers = measured["tiers"]
            full = next(iter(of_tiers.values()), {})
            rows = {tier: _time_and_memory(of_tiers[tier], full) for tier in of_tiers}
            wide = {name: measured[name] for name in ("model", "global_batch", "rounds")} | {"tiers": rows}
            wide |= measured["speed_interval"]
        return {"leave_one_out": left_out, "paper_width": wide}


def _time_and_memory(row: Mapping[str, Any], full: Mapping[str, Any]) -> dict[str, Any]:
    """Select the time and memory of a row or, if not measured, the reason and the tier with the same step."""
    if "same" in row:
        return {name: row[name] for name in ("same", "as") if name in row}
    names = ("step_ms", "speedup", "peak_gib", "peak_gib_low", "peak_gib_high", "memory_ratio")
    return {name: row[name] for name in names if name in row} | {"memory_differs": peaks_differ(row, full)}
