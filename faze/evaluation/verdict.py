"""What an ablation shows, in plain words. The verdict is what the test says, never what one hoped for."""

from collections.abc import Mapping, Sequence

import pandas as pd

from faze.evaluation.statistics import MOST_SEEDS, SEEDS_FOR_A_TIER, Comparison

NAMES = {"mpiigaze": "MPIIGaze", "gazecapture": "GazeCapture"}
SAME_MEMORY = 0.02  # a peak within 2 % of the baseline's is called the same: it has no interval


def verdict_words(comparison: Comparison) -> str:
    """One of identical, equivalent, different, not shown; and what would settle the last."""
    if comparison.verdict != "not shown":
        return comparison.verdict
    if comparison.people < 2:
        return "not shown, needs more people"
    need = comparison.need
    if need is None:
        return "not shown, needs more people: no number of seeds is enough"
    if comparison.seeds < SEEDS_FOR_A_TIER:
        return f"not shown, needs at least {_count(need.about, 'more seed')}"
    return f"not shown, needs {_about(need.about, need.low, need.high)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _about(number: int, low: int, high: int) -> str:
    """About 5 more seeds (2 to 31): a number and how well it is known; or more than 100 more seeds."""
    if number > MOST_SEEDS:
        return f"more than {MOST_SEEDS} more seeds"
    most = f"more than {MOST_SEEDS}" if high > MOST_SEEDS else str(high)
    return f"about {_count(number, 'more seed')}" + (f" ({low} to {most})" if low != high else "")


def judge(changes: pd.DataFrame) -> str:
    """One word for several changes: equivalence needs every one, a single difference is a difference."""
    found = set(changes["verdict"])
    for word in ("different", "not shown", "equivalent"):
        if word in found:
            return word
    return "identical"


def tier_words(changes: pd.DataFrame) -> str:
    """The word for several changes, and what would settle the one that needs most where they are not shown."""
    word = judge(changes)
    return str(_worst(changes[changes["verdict"] == word])["words"]) if word == "not shown" else word


def _worst(undecided: pd.DataFrame) -> pd.Series:
    """The change that needs most: one that no number of seeds would settle, else the largest number."""
    hopeless = undecided[undecided["more_seeds"].isna()]
    return hopeless.iloc[0] if len(hopeless) else undecided.loc[undecided["more_seeds"].idxmax()]


def decisive(changes: pd.DataFrame, tier: str, learner: str, largest_k: int) -> pd.DataFrame:
    """The changes a tier's verdict rests on: on each data set, unadapted and the first learner at the largest k."""
    of_tier = changes[changes["tier"] == tier]
    return of_tier[(of_tier["k"] == 0) | ((of_tier["learner"] == learner) & (of_tier["k"] == largest_k))]


def describe_speed(row: pd.Series, confidence: float) -> str:
    """How much faster one tier trains than the baseline; no more than its interval allows."""
    high = f"{row['speed_high']:.2f}" if row["speed_high"] <= 999 else "more than 999"  # of two or three blocks
    interval = f"{100 * confidence:g} % interval {row['speed_low']:.2f} to {high}"
    if row["speed_low"] > 1:
        return f"Training with the whole ladder is {row['speed_ratio']:.2f} times as fast as the baseline ({interval})."
    if row["speed_high"] < 1:
        return (
            f"On this machine the whole ladder is slower: it trains at {row['speed_ratio']:.2f} times "
            f"the speed of the baseline ({interval})."
        )
    return (
        f"No speed-up is shown on this machine: the whole ladder trains at {row['speed_ratio']:.2f} times "
        f"the speed of the baseline ({interval})."
    )


def describe_memory(row: pd.Series, baseline: pd.Series) -> str:
    """How much less memory one tier needs at its peak."""
    peaks = f"{baseline['peak_gib']:.2f} to {row['peak_gib']:.2f} GiB"
    ratio = row["memory_ratio"]
    if ratio > 1 + SAME_MEMORY:
        return f"Peak memory falls from {peaks}, {ratio:.2f} times less."
    if ratio < 1 - SAME_MEMORY:
        return f"Peak memory grows from {peaks}, {1 / ratio:.2f} times as much."
    return f"Peak memory is the same within {SAME_MEMORY:.0%} ({row['peak_gib']:.2f} GiB).".replace("%", " %")


def describe_error(changes: pd.DataFrame, confidence: float) -> str:
    """Whether the error is shown to be unchanged, and what stands against it.

    Args:
        changes: the decisive ones of one tier.
        confidence: 1 - level of the tests.
    """
    word, margin = judge(changes), changes["margin_deg"].iloc[0]
    largest = changes["k"].max()
    where = f"on {join([NAMES[d] for d in changes['dataset'].unique()])}, unadapted and after {largest} samples"
    if word == "identical":
        return f"The error is identical: no person's error differs from the baseline's, {where}."
    if word == "equivalent":
        return (
            f"The error is shown to be unchanged: {where}, the change lies within ±{margin:g}° "
            f"(equivalence tests, {describe_p(changes['tost_p'].max())})."
        )
    against = changes[changes["verdict"] == word]
    told = join([_describe_change(change) for _, change in against.iterrows()])
    told += f"; in brackets the {round(100 * (2 * confidence - 1), 1):g} % interval."
    if word == "different":
        return f"The error is different from the baseline's: {told}"
    return f"It is not shown that the error is unchanged to within ±{margin:g}°: {told} {_describe_need(against)}"


def _describe_change(change: pd.Series) -> str:
    """MPIIGaze after 9 samples +0.08° (−0.03 to +0.19)."""
    condition = "unadapted" if change["k"] == 0 else f"after {change['k']} samples"
    interval = f" ({signed(change['low_deg'])} to {signed(change['high_deg'])})" if change["people"] > 1 else ""
    return f"{NAMES[change['dataset']]} {condition} {signed(change['difference_deg'])}°{interval}"


def _describe_need(undecided: pd.DataFrame) -> str:
    """What would settle the changes that are not shown."""
    most = _worst(undecided)
    if pd.isna(most["more_seeds"]):
        return "More people are needed: no number of seeds is enough."
    number, low, high = (int(most[f"more_seeds{end}"]) for end in ("", "_low", "_high"))
    if undecided["seeds"].iloc[0] < SEEDS_FOR_A_TIER:
        return f"At least {_count(number, 'more seed')} would have to be trained to say more."
    return (
        f"If there is truly no change, {_about(number, low, high)} would show it; "
        f"{most['seeds']} seeds tell this number only roughly."
    )


def signed(number: float, digits: int = 2) -> str:
    """+0.08, −0.03, and 0.00 without a sign."""
    text = f"{abs(number):.{digits}f}"
    return text if float(text) == 0 else f"{'+' if number > 0 else '−'}{text}"


def describe_p(p: float) -> str:
    """A p-value in as many digits as mean something."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def describe_scope(seeds: int) -> str:
    """For whom a verdict speaks."""
    if seeds >= SEEDS_FOR_A_TIER:
        return f"This speaks for the tiers: people and the {seeds} seeds are both taken as samples."
    return (
        f"With {_count(seeds, 'seed')} this speaks for these checkpoints only; a statement about a tier needs "
        f"at least {SEEDS_FOR_A_TIER} seeds (run.seeds)."
    )


def describe_switches(changed: Sequence[Mapping[str, str]]) -> str:
    """Which switches of the ladder could not act on the machine that trained, and why; empty if all could.

    Args:
        changed: switches that the last tier sets otherwise than the baseline.
    """
    idle = [switch for switch in changed if switch["reason"]]
    if not idle:
        return ""
    told = "; ".join(f"{switch['switch']} {switch['wanted']} ({switch['reason']})" for switch in idle)
    whole = f"{len(idle)} of the {len(changed)} switches" if len(changed) > 1 else "The only switch"
    return f"{whole} that the ladder sets could not act on this machine: {told}."


def join(items: Sequence[str]) -> str:
    """A, b and c."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last
