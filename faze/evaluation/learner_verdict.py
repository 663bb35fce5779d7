"""Which learners differ and which do not, in plain words; above all whether any beats the one that learns nothing."""

from collections.abc import Sequence

import pandas as pd

from faze.evaluation.learner_pairs import Crossing, against, crossings
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.wording import NAMES, counted, join, signed

SIMPLE = "offset"  # what every learner must beat to matter
TOLD_SIMPLE = f"`{SIMPLE}`, which learns nothing and only subtracts a person's mean offset,"


def describe_headline(pairs: pd.DataFrame, tier: str, largest_k: int, confidence: float) -> str:
    """Say whether any learner beats `offset` in a tier at the largest k, by data set; nothing without `offset`."""
    at_k = pairs[(pairs["tier"] == tier) & (pairs["k"] == largest_k)]
    at_k = at_k[(at_k["learner"] == SIMPLE) | (at_k["other"] == SIMPLE)]
    told = [f"On {NAMES[d]}: {describe_simple(rows)}" for d, rows in at_k.groupby("dataset", sort=False)]
    over = "people and seeds" if (at_k["seeds"] >= SEEDS_FOR_A_TIER).any() else "people"
    brackets = f"in brackets {100 * confidence:g} % intervals over {over}"
    return f"Few-shot learners after {counted(largest_k, 'sample')} ({brackets}). {' '.join(told)}" if told else ""


def describe_advice(val: pd.DataFrame) -> str:
    """Say which learner to take at which k, by the val people alone; nothing without them.

    Args:
        val: columns learner, k (0: unadapted), error_deg.
    """
    if val.empty:
        return ""
    unadapted, taken = val.loc[val["k"] == 0, "error_deg"].mean(), {}
    for k, rows in val[val["k"] > 0].groupby("k"):
        best = rows.loc[rows["error_deg"].idxmin()]
        name = best["learner"] if best["error_deg"] < unadapted else ""
        taken.setdefault(name, []).append((k, best["error_deg"]))
    parts = []
    for learner, cells in taken.items():
        at = f"k = {join([str(k) for k, _ in cells])}"
        degrees = f"{join([f'{deg:.2f}°' for _, deg in cells])} instead of {unadapted:.2f}° unadapted"
        parts.append(f"take `{learner}` at {at} ({degrees})" if learner else f"leave the estimator unadapted at {at}")
    return f"Which to take, by val people alone: {'; '.join(parts)}."


def describe_learners(pairs: pd.DataFrame, errors: pd.DataFrame, largest_k: int, margin_deg: float) -> list[str]:
    """Describe the learners of one tier and data set in sentences.

    Args:
        pairs: of `learner_pairs.learner_differences`, at every k.
        errors: rows of the tiers' errors (tables.mean_errors).
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
    return f"Mean error after {counted(largest_k, 'sample')}, smallest first: {join(told)}; unadapted {start:.2f}°."


def describe_simple(at_k: pd.DataFrame) -> str:
    """Say whether any learner is shown to beat `offset`, and by how much; or that `offset` wins.

    Args:
        at_k: pairs of one tier, data set and k, with `offset` among them.
    """
    found = against(at_k, SIMPLE)
    if len(better := _shown(found, better=True)):
        return f"{TOLD_SIMPLE} is beaten by {_by(better)}."
    if len(worse := _shown(found, better=False)) == len(found):
        return f"{TOLD_SIMPLE} wins: it beats every other learner, namely {_by(worse)}."
    if (found["difference_deg"] > 0).all():
        return f"{TOLD_SIMPLE} has the smallest error: no learner is shown to beat it."
    return f"{TOLD_SIMPLE} is not shown to be beaten by any learner."


def _shown(found: pd.DataFrame, *, better: bool) -> pd.DataFrame:
    """Select the learners that are shown to be better than the other, or worse."""
    return found[(found["verdict"] == "different") & ((found["difference_deg"] < 0) == better)]


def _describe_rest(found: pd.DataFrame, margin_deg: float) -> list[str]:
    """Describe the learners that neither beat `offset` nor all lose to it."""
    worse, sentences = _shown(found, better=False), []
    if 0 < len(worse) < len(found):
        sentences.append(f"`{SIMPLE}` beats {_by(worse)}.")
    if len(same := found[found["verdict"].isin(["identical", "equivalent"])]):
        names = join([f"`{learner}`" for learner in same["learner"]])
        sentences.append(f"Shown to be as good as `{SIMPLE}` to within ±{margin_deg:g}°: {names}.")
    if len(undecided := found[found["verdict"] == "not shown"]):
        told = join([_signed(row) for _, row in undecided.iterrows()])
        sentences.append(f"Not shown to be better than `{SIMPLE}`, worse or as good: {told}.")
    return sentences


def _describe_pairs(pairs: pd.DataFrame, margin_deg: float) -> list[str]:
    """Describe the pairs without `offset`, by verdict."""
    openings = {
        "different": "Shown to differ",
        "equivalent": f"Shown not to differ by more than {margin_deg:g}°",
        "not shown": "Neither a difference nor its absence is shown",
    }
    told: dict[str, list[str]] = {word: [] for word in openings}
    for _, row in pairs.replace({"verdict": {"identical": "equivalent"}}).iterrows():
        told[row["verdict"]].append(_describe_pair(row))
    return [f"{opening}: {join(told[word])}." for word, opening in openings.items() if told[word]]


def _describe_pair(row: pd.Series) -> str:
    """Say `maml` beats `none` by 0.30° where they are shown to differ, else `maml` from `none`."""
    if row["verdict"] != "different":
        return f"`{row['learner']}` from `{row['other']}`"
    first = row["difference_deg"] < 0
    better, worse = (row["learner"], row["other"]) if first else (row["other"], row["learner"])
    return f"`{better}` beats `{worse}` by {abs(row['difference_deg']):.2f}°"


def _describe_crossings(found: Sequence[Crossing]) -> list[str]:
    sentences = [
        f"The curves of `{c.learner}` and `{c.other}` cross between k = {c.below} and k = {c.above}: "
        f"with fewer samples `{c.better_below}` is better, with more `{c.better_above}`."
        for c in found
        if c.shown
    ]
    unsure = [f"`{c.learner}` and `{c.other}` ({c.below} to {c.above})" for c in found if not c.shown]
    if unsure:
        sentences.append(f"Means that change places without a difference shown on both sides: {join(unsure)}.")
    return sentences


def describe_other_tiers(pairs: pd.DataFrame, tiers: Sequence[str], largest_k: int) -> str:
    """Say whether the other tiers judge every pair as the first does; nothing with one tier or learner."""
    at_k = pairs[pairs["k"] == largest_k]
    if at_k.empty or len(tiers) < 2:
        return ""
    better = (at_k["verdict"] == "different") & (at_k["difference_deg"] < 0)
    judged = at_k.assign(judged=list(zip(at_k["verdict"], better, strict=True))).pivot(
        index=["dataset", "learner", "other"], columns="tier", values="judged"
    )
    otherwise = [tier for tier in tiers[1:] if (judged[tier] != judged[tiers[0]]).any()]
    if not otherwise:
        return "Every other tier judges every pair the same way."
    return f"Some pair is judged otherwise in {join(otherwise)}; every tier's pairs stand in evaluation/learners.csv."


def _by(rows: pd.DataFrame) -> str:
    """List the learners: `maml` by 0.50° (0.31 to 0.69) and `none` by ..."""
    told = []
    for _, row in rows.iterrows():
        low, high = sorted((abs(row["low_deg"]), abs(row["high_deg"])))
        told.append(f"`{row['learner']}` by {abs(row['difference_deg']):.2f}° ({low:.2f} to {high:.2f})")
    return join(told)


def _signed(row: pd.Series) -> str:
    """Write `maml` (−0.05°, −0.20 to +0.10)."""
    interval = f", {signed(row['low_deg'])} to {signed(row['high_deg'])}" if row["people"] > 1 else ""
    return f"`{row['learner']}` ({signed(row['difference_deg'])}°{interval})"
