"""The verdict of an ablation: one sentence for each fact, filled in with statistics from the tables."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from faze.config.parameters import Evaluate
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.switches import tier_changes
from faze.evaluation.wording import counted, join, p_value, peak, saving, signed, title_of

VERDICTS = ("different", "not judged", "not shown", "equivalent", "identical")  # one comparison decides in this order

SINGLE = "No tier apart from {baseline} was trained, so no tier is judged (run.tiers)."
UNCOMPARED = "No tier apart from {baseline} was trained, so no error is compared."
SPEED = (
    "The fastest tier apart from {baseline} is {tier}. It is {finding} {baseline}: a step is {ratio:.2f} times as fast "
    "({level:g} % interval {low} to {high} over {over}{widened})."
)
MEMORY = (
    "The tier with the smallest peak memory apart from {baseline} is {tier}. Its peak is {finding} that of "
    "{baseline}{change}: {after}, compared with {before}, {source}."
)
WIDENED = ", widened because the tier was chosen among {comparisons}"
ERROR = {
    "identical": "{subject} of {tier} is identical to that of {baseline} in all {count}.",
    "equivalent": "{subject} of {tier} is shown to be unchanged: within ±{margin:g}° of {baseline} in all {count} "
    "({p}).",
    "different": "{subject} of {tier} is shown to differ from that of {baseline} in {number} of {count}; largest "
    "change: {largest}.",
    "not shown": "{subject} of {tier} is not shown to be unchanged: in {number} of {count}, neither equivalence within "
    "±{margin:g}° nor a difference is shown; largest change: {largest}.",
    "not judged": "{subject} of {tier} is not judged with fewer than {required} seeds; largest change: {largest}.",
}
NOISE = "Noise alone changes the error of {baseline} by up to {changes}."
REDIRECTION = (
    "Redirected strips of {tier} miss the requested gaze by {redirected}, strips that are not turned by {not_turned}, "
    "and real strips by {real}, as estimated by an independent network."
)
LEARNERS = (
    "Learners shown to be better than `offset`, which only subtracts a person's mean error, at k = {k}: {better}."
)
SCOPE = {
    True: "Intervals and verdicts are over people and {seeds}, so they describe the tiers.",
    False: "With {seeds}, intervals are over people only and describe these checkpoints; at least {required} seeds are "
    "required to describe a tier (run.seeds).",
}
SWITCHES = "These switches cannot take effect on this machine: {reasons}."


def overall(changes: pd.DataFrame) -> str:
    """Combine the verdicts of several changes: equivalence must be shown for all of them, a difference for only one."""
    return next(word for word in VERDICTS if word in set(changes["verdict"]))


def decisive(changes: pd.DataFrame, tier: str) -> pd.DataFrame:
    """Select the changes on which a tier's verdict is based."""
    return changes[(changes["tier"] == tier) & changes["decides"].astype(bool)]


def best(performance: pd.DataFrame, column: str) -> str:
    """Return the tier with the largest ratio in a column of the table `performance`, apart from the baseline.

    Tiers with the baseline's step are only considered if there are no others.
    """
    acting = performance.iloc[1:][performance["same_step"].iloc[1:] == ""]
    others = next(rows for rows in (acting, performance.iloc[1:], performance) if len(rows))
    return str(others.loc[others[column].idxmax(), "tier"])


def describe_speed(row: pd.Series, baseline: str) -> str:
    """Describe the speed of the fastest tier.

    Args:
        row: row of the tier in the table `performance`.
        baseline: name of the baseline tier.
    """
    finding = "faster than" if row["speed_low_of_all"] > 1 else "not shown to be faster than"
    if row["speed_high_of_all"] < 1:
        finding = "slower than"
    over = "blocks of one process, without the variation between processes"
    if row["speed_over"] == "rounds":
        over = f"{row['rounds']} rounds of new processes"
    high = f"{row['speed_high_of_all']:.2f}" if row["speed_high_of_all"] <= 999 else "more than 999"
    numbers = {"ratio": row["speed_ratio"], "low": f"{row['speed_low_of_all']:.2f}", "high": high}
    numbers |= {"widened": _widened(row)}
    level = 100 * row["speed_confidence"]
    return SPEED.format(tier=row["tier"], baseline=baseline, finding=finding, level=level, over=over, **numbers)


def _widened(row: pd.Series) -> str:
    return WIDENED.format(comparisons=row["comparisons"]) if row["comparisons"] > 1 else ""


def describe_memory(row: pd.Series, baseline: pd.Series) -> str:
    """Describe the peak memory of the leanest tier. A change is shown only if the ranges over rounds do not overlap.

    Args:
        row: row of the tier in the table `performance`.
        baseline: row of the baseline.
    """
    several = row["rounds"] > 1 and not math.isnan(row["peak_gib_low"])
    source = f"medians (minimum to maximum) of {row['rounds']} rounds" if several else "one process each"
    finding, change = "not shown to differ from", ""
    if row["memory_differs"]:
        less = row["memory_ratio"] > 1
        finding, change = "lower than" if less else "higher than", saving(row["memory_ratio"])
        if not math.isnan(row["memory_low_of_all"]):
            ends = (row["memory_low_of_all"], row["memory_high_of_all"])
            low, high = sorted(end if less else 1 / end for end in ends)
            change += f", {100 * row['speed_confidence']:g} % interval {low:.2f} to {high:.2f}{_widened(row)}"
        change = f" ({change})"
    texts = {"finding": finding, "change": change, "after": peak(row), "before": peak(baseline), "source": source}
    return MEMORY.format(tier=row["tier"], baseline=baseline["tier"], **texts)


def describe_errors(changes: pd.DataFrame, subject: str, baseline: str, confidence: float) -> str:
    """Describe whether an error is shown to be unchanged: a sentence for each verdict, about all tiers that have it.

    Args:
        changes: changes on which the tiers' verdicts are based.
        subject: subject of the sentences.
        baseline: name of the baseline tier.
        confidence: 1 - level of the tests.
    """
    verdicts = {tier: overall(rows) for tier, rows in changes.groupby("tier", sort=False)}
    found = {word: [tier for tier in verdicts if verdicts[tier] == word] for word in VERDICTS}
    return " ".join(
        _describe_error(changes[changes["tier"].isin(tiers)], subject, join(tiers), baseline, confidence)
        for tiers in found.values()
        if tiers
    )


def _describe_error(changes: pd.DataFrame, subject: str, tier: str, baseline: str, confidence: float) -> str:
    """Describe the changes of tiers with the same verdict; the arguments are those of `describe_errors`."""
    verdict = overall(changes)
    some = changes[changes["verdict"] == verdict]
    largest = some.loc[some["difference_deg"].abs().idxmax()]
    change = f"{signed(largest['difference_deg'])}° ({_condition(largest)}"
    if not math.isnan(largest["low_deg"]):
        level = round(100 * (2 * confidence - 1), 1)
        change += f", {level:g} % interval {signed(largest['low_deg'])} to {signed(largest['high_deg'])}"
    return ERROR[verdict].format(
        subject=subject,
        tier=tier,
        baseline=baseline,
        margin=changes["margin_deg"].iloc[0],
        count=counted(len(changes), "comparison"),
        number=len(some),
        p=p_value(changes["tost_p"].max()),
        largest=f"{change})",
        required=SEEDS_FOR_A_TIER,
    )


def _condition(row: Mapping[str, Any]) -> str:
    detail = row["factor"] if "factor" in row else f"k = {row['k']}"
    return f"{title_of(row['dataset'])}, {detail}"


def describe_noise(controls: pd.DataFrame, baseline: str) -> str:
    """Describe the largest change of each noise control; return "" if there are no controls.

    Args:
        controls: changes of the controls under the conditions on which a verdict is based.
        baseline: name of the baseline tier.
    """
    changes = []
    for control, rows in controls.groupby("tier", sort=False):
        largest = rows.loc[rows["difference_deg"].abs().idxmax()]
        changes.append(f"{abs(largest['difference_deg']):.2f}° ({control}, {_condition(largest)})")
    return NOISE.format(baseline=baseline, changes=join(changes)) if changes else ""


def describe_redirection(means: pd.DataFrame, changes: pd.DataFrame, baseline: str, confidence: float) -> str:
    """Describe the gaze error of the baseline's redirected strips and of controls, and whether tiers change it.

    Args:
        means: the table `redirected`.
        changes: the table `redirection_changes`.
        baseline: name of the baseline tier.
        confidence: 1 - level of the tests.
    """
    errors = means[(means["tier"] == baseline) & (means["number"] == "gaze_error_deg")]
    errors = errors.set_index(["variant", "dataset"])
    by_variant = {
        variant: join([f"{deg:.1f}° on {title_of(dataset)}" for dataset, deg in errors.loc[variant]["mean"].items()])
        for variant in ("redirected", "not_turned", "real")
    }
    sentences = [REDIRECTION.format(tier=baseline, **by_variant)]
    if not changes.empty:
        sentences.append(describe_errors(changes, "The redirection error", baseline, confidence))
    return " ".join(sentences)


def describe_learners(compared: pd.DataFrame, k: int) -> str:
    """Describe which learners are shown to be better than `offset`; return "" if there is nothing to compare.

    Args:
        compared: rows of one tier in the table `learners`.
        k: number of calibration samples.
    """
    better = []
    for dataset, rows in compared[compared["k"] == k].groupby("dataset", sort=False):
        shown = rows[(rows["verdict"] == "different") & (rows["difference_deg"] < 0)]
        names = [f"`{row['learner']}` by {-row['difference_deg']:.2f}°" for _, row in shown.iterrows()]
        better.append(f"{join(names) if names else 'none'} on {title_of(dataset)}")
    return LEARNERS.format(k=k, better="; ".join(better)) if better else ""


def describe_scope(seeds: int) -> str:
    """Describe whether a verdict concerns tiers or individual checkpoints."""
    return SCOPE[seeds >= SEEDS_FOR_A_TIER].format(seeds=counted(seeds, "seed"), required=SEEDS_FOR_A_TIER)


def describe_switches(changed: Iterable[Mapping[str, str]]) -> str:
    """Describe the switches of tiers that are inactive, and why; return "" if all are active."""
    inactive = {f"{switch['switch']} {switch['wanted']}": switch["reason"] for switch in changed if switch["reason"]}
    reasons = "; ".join(f"{switch} ({reason})" for switch, reason in inactive.items())
    return SWITCHES.format(reasons=reasons) if inactive else ""


def describe(
    tables: Mapping[str, pd.DataFrame],
    switches: Mapping[str, Sequence[Mapping[str, str]]],
    controls: Sequence[str],
    seeds: int,
    evaluate: Evaluate,
) -> dict[str, str]:
    """Write sentences about the fastest tier, the one with the smallest memory, and the errors of all tiers.

    Args:
        tables: performance, changes, redirected, redirection_changes and learners, by name.
        switches: switches of each measured tier, the baseline first.
        controls: noise controls.
        seeds: number of seeds.
        evaluate: margin and confidence.

    Returns:
        Sentences by topic, in the order of the page; "" if there is nothing to report.
    """
    baseline, *others = switches
    measured = tables["performance"].set_index("tier", drop=False)
    changes, confidence = tables["changes"], evaluate.confidence
    conditions = changes["decides"].astype(bool) & changes["tier"].isin(controls)
    compared, turned = tables["learners"], tables["redirection_changes"]
    turned = turned[turned["tier"].isin(others)] if len(turned) else turned
    sentences = {
        "speed": "",
        "memory": "",
        "error": SINGLE.format(baseline=baseline),
        "scope": "",
        "noise": describe_noise(changes[conditions], baseline),
        "redirection": describe_redirection(tables["redirected"], turned, baseline, confidence),
        "learners": describe_learners(compared[compared["tier"] == baseline], compared["k"].max()),
        "switches": "",
    }
    if others:
        changed = [switch for tier, (_, own) in tier_changes(switches).items() if tier != baseline for switch in own]
        of_tiers = changes[changes["tier"].isin(others) & changes["decides"].astype(bool)]
        sentences["speed"] = describe_speed(measured.loc[best(measured, "speed_ratio")], baseline)
        sentences["memory"] = describe_memory(measured.loc[best(measured, "memory_ratio")], measured.loc[baseline])
        error = describe_errors(of_tiers, "The gaze error", baseline, confidence)
        sentences["error"] = error or UNCOMPARED.format(baseline=baseline)
        sentences["scope"] = describe_scope(seeds)
        sentences["switches"] = describe_switches(changed)
    return sentences
