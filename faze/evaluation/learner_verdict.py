"""Which learners differ and which do not, in plain words; above all whether any beats the one that learns nothing."""

from collections.abc import Sequence

import pandas as pd

from faze.evaluation.learner_pairs import Crossing, against, crossings
from faze.evaluation.verdict import join, signed

SIMPLE = "offset"  # what every learner must beat to matter
SAME = ("identical", "equivalent")


def describe_learners(pairs: pd.DataFrame, errors: pd.DataFrame, largest_k: int, margin_deg: float) -> list[str]:
    """Sentences about one tier and data set.

    Args:
        pairs: of `learners.learner_differences`, at every k.
        errors: rows of the tiers' errors (tables.tier_errors).
        largest_k: at which the learners are judged.
        margin_deg: differences smaller than this count as none.

    Returns:
        The errors; whether any learner beats `offset`; the other pairs; where curves cross. None without a pair.
    """
    at_k = pairs[pairs["k"] == largest_k]
    if at_k.empty:
        return []
    sentences = [_describe_errors(errors, largest_k)]
    if SIMPLE in {*at_k["learner"], *at_k["other"]}:
        sentences += [describe_simple(at_k), *_describe_rest(against(at_k, SIMPLE), margin_deg)]
    others = at_k[(at_k["learner"] != SIMPLE) & (at_k["other"] != SIMPLE)]
    return [*sentences, *_describe_pairs(others, margin_deg), *_describe_crossings(crossings(pairs))]


def _describe_errors(errors: pd.DataFrame, largest_k: int) -> str:
    start = errors[errors["k"] == 0]["mean_deg"].iloc[0]
    ranked = errors[errors["k"] == largest_k].sort_values("mean_deg")
    told = [f"`{learner}` {deg:.2f}°" for learner, deg in zip(ranked["learner"], ranked["mean_deg"], strict=True)]
    return f"Mean error after {samples(largest_k)}, smallest first: {join(told)}; unadapted {start:.2f}°."


def describe_simple(at_k: pd.DataFrame) -> str:
    """Whether any learner is shown to beat `offset`, and by how much; or that `offset` wins.

    Args:
        at_k: pairs of one tier, data set and k, with `offset` among them.
    """
    found = against(at_k, SIMPLE)
    different = found["verdict"] == "different"
    better, worse = found[different & (found["difference_deg"] < 0)], found[different & (found["difference_deg"] > 0)]
    if len(better) == 1:
        learner, by = _by(better).split(" ", 1)
        return f"{learner} beats `{SIMPLE}`, the simple baseline that learns nothing, {by}."
    if len(better):
        return f"{len(better)} learners beat `{SIMPLE}`, the simple baseline that learns nothing: {_by(better)}."
    simple = f"`{SIMPLE}`, which learns nothing and only subtracts a person's mean offset"
    if len(worse) == len(found):
        return f"{simple}, wins: it beats every other learner, namely {_by(worse)}."
    if (found["difference_deg"] > 0).all():
        return f"{simple}, has the smallest error: no learner is shown to beat it."
    return f"No learner is shown to beat {simple}."


def _describe_rest(found: pd.DataFrame, margin_deg: float) -> list[str]:
    """The learners that neither beat `offset` nor all lose to it."""
    different = found["verdict"] == "different"
    worse = found[different & (found["difference_deg"] > 0)]
    sentences = []
    if 0 < len(worse) < len(found):
        sentences.append(f"`{SIMPLE}` beats {_by(worse)}.")
    if len(same := found[found["verdict"].isin(SAME)]):
        names = join([f"`{learner}`" for learner in same["learner"]])
        sentences.append(f"Shown to be as good as `{SIMPLE}` to within ±{margin_deg:g}°: {names}.")
    if len(undecided := found[found["verdict"] == "not shown"]):
        told = join([_signed(row) for _, row in undecided.iterrows()])
        sentences.append(f"Not shown to be better than `{SIMPLE}`, worse or as good: {told}.")
    return sentences


def _describe_pairs(pairs: pd.DataFrame, margin_deg: float) -> list[str]:
    """The pairs without `offset`, by verdict."""
    told: dict[str, list[str]] = {"different": [], "same": [], "not shown": []}
    for _, row in pairs.iterrows():
        word = "same" if row["verdict"] in SAME else row["verdict"]
        better, worse = (row["learner"], row["other"])[:: 1 if row["difference_deg"] < 0 else -1]
        by = f" by {abs(row['difference_deg']):.2f}°" if word == "different" else ""
        told[word].append(f"`{better}` beats `{worse}`{by}" if by else f"`{row['learner']}` from `{row['other']}`")
    sentences = []
    if told["different"]:
        sentences.append(f"Shown to differ: {join(told['different'])}.")
    if told["same"]:
        sentences.append(f"Shown not to differ by more than {margin_deg:g}°: {join(told['same'])}.")
    if told["not shown"]:
        sentences.append(f"Neither a difference nor its absence is shown: {join(told['not shown'])}.")
    return sentences


def _describe_crossings(found: Sequence[Crossing]) -> list[str]:
    sentences = [
        f"The curves of `{c.learner}` and `{c.other}` cross between k = {c.below} and k = {c.above}: "
        f"with fewer samples `{c.other if c.better_above == c.learner else c.learner}` is better, with more "
        f"`{c.better_above}`."
        for c in found
        if c.shown
    ]
    unsure = [f"`{c.learner}` and `{c.other}` ({c.below} to {c.above})" for c in found if not c.shown]
    if unsure:
        sentences.append(f"Means that change places without a difference shown on both sides: {join(unsure)}.")
    return sentences


def describe_other_tiers(pairs: pd.DataFrame, tiers: Sequence[str], largest_k: int) -> str:
    """Whether the other tiers judge every pair as the first does; empty with one tier or learner."""
    at_k = pairs[pairs["k"] == largest_k]
    if at_k.empty or len(tiers) < 2:
        return ""
    words = at_k.pivot(index=["dataset", "learner", "other"], columns="tier", values="verdict")
    signs = at_k.assign(better=at_k["difference_deg"] < 0)
    signs = signs.pivot(index=["dataset", "learner", "other"], columns="tier", values="better")
    first = tiers[0]
    otherwise = [
        tier
        for tier in tiers[1:]
        if ((words[tier] != words[first]) | ((words[tier] == "different") & (signs[tier] != signs[first]))).any()
    ]
    if not otherwise:
        return "Every other tier judges every pair the same way."
    return f"Some pair is judged otherwise in {join(otherwise)}; every tier's pairs stand in evaluation/learners.csv."


def samples(k: int) -> str:
    """1 sample, 9 samples."""
    return f"{k} sample" + ("" if k == 1 else "s")


def _by(rows: pd.DataFrame) -> str:
    """`maml` by 0.50° (0.31 to 0.69) and `none` by ..."""
    told = []
    for _, row in rows.iterrows():
        low, high = sorted((abs(row["low_deg"]), abs(row["high_deg"])))
        told.append(f"`{row['learner']}` by {abs(row['difference_deg']):.2f}° ({low:.2f} to {high:.2f})")
    return join(told)


def _signed(row: pd.Series) -> str:
    """`maml` (−0.05°, −0.20 to +0.10)."""
    interval = f", {signed(row['low_deg'])} to {signed(row['high_deg'])}" if row["people"] > 1 else ""
    return f"`{row['learner']}` ({signed(row['difference_deg'])}°{interval})"
