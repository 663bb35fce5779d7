"""What an ablation shows, in plain words. The verdict is what the test says, never what one hoped for."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from faze.evaluation.statistics import MOST_SEEDS, SEEDS_FOR_A_TIER
from faze.evaluation.wording import NAMES, counted, join, p_value, saving, signed

SAME_MEMORY = 0.02  # a peak within 2 % of the baseline's is called the same: it has no interval


def describe_need(change: Mapping[str, Any]) -> str:
    """Say what would settle a change that is not shown, as "about 5 more seeds (2 to 31)"; nothing if it is settled."""
    if change["verdict"] != "not shown":
        return ""
    if change["people"] < 2:
        return "more people"
    if pd.isna(change["more_seeds"]):
        return "more people: no number of seeds is enough"
    about, low, high = (int(change[f"more_seeds{end}"]) for end in ("", "_low", "_high"))
    if change["seeds"] < SEEDS_FOR_A_TIER:
        return f"at least {counted(about, 'more seed')}"
    if about > MOST_SEEDS:
        return f"more than {MOST_SEEDS} more seeds"
    most = f"more than {MOST_SEEDS}" if high > MOST_SEEDS else str(high)
    return f"about {counted(about, 'more seed')}" + (f" ({low} to {most})" if low != high else "")


def judge(changes: pd.DataFrame) -> str:
    """Sum several changes up in one word: equivalence needs every one, a single difference is a difference."""
    return next((w for w in ("different", "not shown", "equivalent") if w in set(changes["verdict"])), "identical")


def neediest(changes: pd.DataFrame) -> pd.Series:
    """Find the undecided change that needs most: one that no number of seeds would settle, else the largest number."""
    undecided = changes[changes["verdict"] == "not shown"]
    hopeless = undecided[undecided["more_seeds"].isna()]
    return hopeless.iloc[0] if len(hopeless) else undecided.loc[undecided["more_seeds"].idxmax()]


def describe_needs(changes: pd.DataFrame) -> str:
    """Say what would settle several changes that are not shown together; nothing if they are settled."""
    return describe_need(neediest(changes)) if judge(changes) == "not shown" else ""


def decisive(changes: pd.DataFrame, tier: str, learner: str, largest_k: int) -> pd.DataFrame:
    """Select the changes a tier's verdict rests on: unadapted, and the first learner at the largest k."""
    of_tier = changes[changes["tier"] == tier]
    return of_tier[(of_tier["k"] == 0) | ((of_tier["learner"] == learner) & (of_tier["k"] == largest_k))]


def describe_speed(row: pd.Series, confidence: float) -> str:
    """Say how much faster one tier trains than the baseline; no more than its interval allows."""
    high = f"{row['speed_high']:.2f}" if row["speed_high"] <= 999 else "more than 999"  # of two or three blocks
    ratio, interval = (
        f"{row['speed_ratio']:.2f} times",
        f"{100 * confidence:g} % interval {row['speed_low']:.2f} to {high}",
    )
    if row["speed_low"] > 1:
        return f"Training with the whole ladder is {ratio} as fast as the baseline ({interval})."
    shown = (
        "On this machine the whole ladder is slower: it"
        if row["speed_high"] < 1
        else "No speed-up is shown on this machine: the whole ladder"
    )
    return f"{shown} trains at {ratio} the speed of the baseline ({interval})."


def describe_memory(row: pd.Series, baseline: pd.Series) -> str:
    """Say how much less memory one tier needs at its peak."""
    ratio = row["memory_ratio"]
    if abs(ratio - 1) <= SAME_MEMORY:
        return f"Peak memory is the same within {100 * SAME_MEMORY:g} % ({row['peak_gib']:.2f} GiB)."
    return (
        f"Peak memory {'falls' if ratio > 1 else 'grows'} from {baseline['peak_gib']:.2f} to "
        f"{row['peak_gib']:.2f} GiB: {saving(ratio)}."
    )


def describe_error(changes: pd.DataFrame, confidence: float) -> str:
    """Say whether the error is shown to be unchanged, and what stands against it.

    Args:
        changes: the decisive ones of one tier.
        confidence: 1 - level of the tests.
    """
    word, margin = judge(changes), changes["margin_deg"].iloc[0]
    after = f"after {counted(changes['k'].max(), 'sample')}"
    where = f"on {join([NAMES[d] for d in changes['dataset'].unique()])}, unadapted and {after}"
    if word == "identical":
        return f"The error is identical: no person's error differs from the baseline's, {where}."
    if word == "equivalent":
        return (
            f"The error is shown to be unchanged: {where}, the change lies within ±{margin:g}° "
            f"(equivalence tests, {p_value(changes['tost_p'].max())})."
        )
    against = changes[changes["verdict"] == word]
    told = join([_describe_change(change) for _, change in against.iterrows()])
    told += f"; in brackets the {round(100 * (2 * confidence - 1), 1):g} % interval."
    if word == "different":
        return f"The error is different from the baseline's: {told}"
    return f"It is not shown that the error is unchanged to within ±{margin:g}°: {told} {_describe_remedy(changes)}"


def _describe_change(change: pd.Series) -> str:
    """Write MPIIGaze after 9 samples +0.08° (−0.03 to +0.19)."""
    condition = "unadapted" if change["k"] == 0 else f"after {counted(change['k'], 'sample')}"
    interval = f" ({signed(change['low_deg'])} to {signed(change['high_deg'])})" if change["people"] > 1 else ""
    return f"{NAMES[change['dataset']]} {condition} {signed(change['difference_deg'])}°{interval}"


def _describe_remedy(changes: pd.DataFrame) -> str:
    """Say in a sentence what would settle changes that are not shown."""
    most = neediest(changes)
    need = describe_need(most)
    if pd.isna(most["more_seeds"]) or most["seeds"] < SEEDS_FOR_A_TIER:
        return f"To say more takes {need}."
    return f"If there is truly no change, {need} would show it; {most['seeds']} seeds tell this number only roughly."


def describe_scope(seeds: int) -> str:
    """Say for whom a verdict speaks."""
    if seeds >= SEEDS_FOR_A_TIER:
        return f"This speaks for the tiers: people and the {seeds} seeds are both taken as samples."
    return (
        f"With {counted(seeds, 'seed')} this speaks for these checkpoints only; a statement about a tier needs "
        f"at least {SEEDS_FOR_A_TIER} seeds (run.seeds)."
    )


def describe_switches(changed: Sequence[Mapping[str, str]]) -> str:
    """Say which switches of the ladder could not act on the machine that trained, and why; nothing if all could.

    Args:
        changed: switches that the last tier sets otherwise than the baseline.
    """
    idle = [switch for switch in changed if switch["reason"]]
    if not idle:
        return ""
    told = "; ".join(f"{switch['switch']} {switch['wanted']} ({switch['reason']})" for switch in idle)
    whole = f"{len(idle)} of the {len(changed)} switches" if len(changed) > 1 else "The only switch"
    return f"{whole} that the ladder sets could not act on this machine: {told}."
