"""The verdict of an ablation: a word for each tier, and a sentence for each fact in the tables."""

from collections.abc import Mapping, Sequence

import pandas as pd

from faze.config.parameters import Evaluate
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.wording import counted, join, p_value, signed, title_of

VERDICTS = ("different", "not judged", "not shown", "equivalent", "identical")  # one comparison decides in this order
ERROR = {
    "identical": "is identical to that of {baseline} in all {count}.",
    "equivalent": "is shown to be unchanged: within ±{margin:g}° of {baseline} in all {count} ({p}).",
    "different": "is shown to differ from that of {baseline} in {number} of {count}; largest change: {largest}.",
    "not shown": "is not shown to be unchanged: in {number} of {count}, neither equivalence within ±{margin:g}° nor a "
    "difference is shown; largest change: {largest}.",
    "not judged": f"is not judged with fewer than {SEEDS_FOR_A_TIER} seeds; largest change: {{largest}}.",
}


def overall(changes: pd.DataFrame) -> str:
    """Combine the verdicts of several changes: equivalence must be shown for all of them, a difference for only one."""
    return next(word for word in VERDICTS if word in set(changes["verdict"]))


def tier_verdicts(changes: pd.DataFrame) -> dict[str, str]:
    """Return the verdict of each tier, given the changes on which they are based."""
    return {tier: overall(rows) for tier, rows in changes.groupby("tier", sort=False)}


def best(performance: pd.DataFrame, column: str) -> pd.Series:
    """Return the row of the tier with the largest ratio in a column, apart from the baseline.

    Tiers with the baseline's step are only considered if there are no others.
    """
    others = performance.iloc[1:] if len(performance) > 1 else performance
    acting = others[others["same_step"] == ""]
    return others.loc[(acting if len(acting) else others)[column].idxmax()]


def describe_errors(changes: pd.DataFrame, subject: str, baseline: str, evaluate: Evaluate) -> str:
    """Describe whether an error is shown to be unchanged: a sentence for each verdict, about all tiers that have it."""
    verdicts, sentences = tier_verdicts(changes), []
    for word in [word for word in VERDICTS if word in verdicts.values()]:
        tiers = [tier for tier in verdicts if verdicts[tier] == word]
        rows = changes[changes["tier"].isin(tiers)]
        decisive = rows[rows["verdict"] == word]
        text = ERROR[word].format(
            baseline=baseline,
            margin=evaluate.margin_deg,
            count=counted(len(rows), "comparison"),
            number=len(decisive),
            p=p_value(rows["tost_p"].max()),
            largest=_largest(decisive, evaluate),
        )
        sentences.append(f"{subject} of {join(tiers)} {text}")
    return " ".join(sentences)


def _largest(changes: pd.DataFrame, evaluate: Evaluate) -> str:
    """Describe the largest change, such as +0.28° (MPIIGaze, k = 0, 90 % interval +0.10 to +0.46)."""
    row = changes.loc[changes["difference_deg"].abs().idxmax()]
    detail = row["factor"] if "factor" in row else f"k = {row['k']}"
    interval = ""
    if pd.notna(row["low_deg"]):
        level = round(100 * (2 * evaluate.confidence - 1), 1)
        interval = f", {level:g} % interval {signed(row['low_deg'])} to {signed(row['high_deg'])}"
    return f"{signed(row['difference_deg'])}° ({title_of(row['dataset'])}, {detail}{interval})"


def describe_redirection(means: pd.DataFrame, baseline: str) -> str:
    """Describe the gaze error of the baseline's redirected strips and of their controls."""
    errors = means[(means["tier"] == baseline) & (means["number"] == "gaze_error_deg")]
    by_variant = {}
    for variant, rows in errors.groupby("variant"):
        by_variant[variant] = join([f"{row['mean']:.1f}° on {title_of(row['dataset'])}" for _, row in rows.iterrows()])
    return (
        "Redirected strips of {baseline} miss the requested gaze by {redirected}, strips that are not turned by "
        "{not_turned}, and real strips by {real}, as estimated by an independent network."
    ).format(baseline=baseline, **by_variant)


def describe_learners(compared: pd.DataFrame) -> str:
    """Describe which learners are shown to be better than `offset`, given comparisons of one tier at one k."""
    better = []
    for dataset, rows in compared.groupby("dataset", sort=False):
        shown = rows[(rows["verdict"] == "different") & (rows["difference_deg"] < 0)]
        names = [f"`{row['learner']}` by {-row['difference_deg']:.2f}°" for _, row in shown.iterrows()]
        better.append(f"{join(names or ['none'])} on {title_of(dataset)}")
    beginning = "Learners shown to be better than `offset`, which only subtracts a person's mean error, at k ="
    return f"{beginning} {compared['k'].iloc[0]}: {'; '.join(better)}."


def describe(
    tables: Mapping[str, pd.DataFrame], tiers: Sequence[str], controls: Sequence[str], seeds: int, evaluate: Evaluate
) -> dict[str, str]:
    """Write sentences by topic, in the order of the page, about trained tiers (the baseline first) and controls."""
    baseline, changes, turned, compared = tiers[0], *(tables[n] for n in ("changes", "redirection_changes", "learners"))
    deciding, turned = changes[changes["decides"].astype(bool)], turned[turned["tier"].isin(tiers)]
    of_tiers, noise = deciding[deciding["tier"].isin(tiers)], deciding[deciding["tier"].isin(controls)]
    found = {"error": f"No tier apart from {baseline} was trained, so no error is compared (run.tiers)."}
    if len(of_tiers):
        found["error"] = describe_errors(of_tiers, "The gaze error", baseline, evaluate)
        found["scope"] = f"Intervals and verdicts are over people and {seeds} seeds, so they describe the tiers."
    if len(of_tiers) and seeds < SEEDS_FOR_A_TIER:
        found["scope"] = (
            f"With {counted(seeds, 'seed')}, intervals are over people only and describe these checkpoints; at least "
            f"{SEEDS_FOR_A_TIER} seeds are required to describe a tier (run.seeds)."
        )
    if len(noise):
        largest = [f"{_largest(rows, evaluate)} in the control `{name}`" for name, rows in noise.groupby("tier")]
        found["noise"] = f"Noise alone changes the error of {baseline} by up to {join(largest)}."
    redirection = [describe_redirection(tables["redirected"], baseline)]
    redirection += [describe_errors(turned, "The redirection error", baseline, evaluate)] if len(turned) else []
    found["redirection"] = " ".join(redirection)
    compared = compared[(compared["tier"] == baseline) & (compared["k"] == compared["k"].max())]
    if len(compared):
        found["learners"] = describe_learners(compared)
    return found
