"""What an ablation shows, in plain words. The verdict is what the test says, never what one hoped for."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from faze.evaluation.design import MOST_PEOPLE, MOST_SEEDS, POWER
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.wording import NAMES, counted, join, p_value, peak, saving, signed

CONTROL_WORDS = {"rounding": "rounding alone", "seed": "another seed"}


def judge(changes: pd.DataFrame) -> str:
    """Sum the changes up that decide, in one word: equivalence needs every one, a single difference is a difference."""
    words = ("different", "not judged", "not shown", "equivalent")
    return next((word for word in words if word in set(changes["verdict"])), "identical")


def decisive(changes: pd.DataFrame, tier: str) -> pd.DataFrame:
    """Select the changes that a tier's verdict rests on."""
    return changes[(changes["tier"] == tier) & changes["decides"].astype(bool)]


def describe_speed(row: pd.Series, same: pd.DataFrame) -> str:
    """Say how much faster one tier's step is than the baseline's; no more than its interval allows.

    Args:
        row: of the tier, in the table of speed and memory.
        same: rows of the other rungs that do the same step as the baseline here: what they show is noise.
    """
    over_rounds = row["speed_over"] == "rounds"
    over = f", over {row['rounds']} rounds of fresh processes" if over_rounds else ""
    told = f"({100 * row['speed_confidence']:g} % interval {_range(row)}{over})"
    ratio = f"{row['speed_ratio']:.2f} times as fast as the baseline's {told}."
    if row["speed_low"] > 1:
        found = f"A step of the whole ladder is {ratio}"
    elif row["speed_high"] < 1:
        found = f"On this machine the whole ladder is slower: a step is {ratio}"
    else:
        found = f"No speed-up is shown on this machine: a step of the whole ladder is {ratio}"
    if not over_rounds:
        found += " The interval is over blocks of the same processes: what differs between processes is not in it."
    return found + _describe_noise({t: f"{r['speed_ratio']:.2f} times ({_range(r)})" for t, r in same.iterrows()})


def _range(row: pd.Series) -> str:
    """Write 0.97 to 1.02; of two or three blocks perhaps 0.00 to more than 999."""
    high = f"{row['speed_high']:.2f}" if row["speed_high"] <= 999 else "more than 999"
    return f"{row['speed_low']:.2f} to {high}"


def _describe_noise(shown: Mapping[str, str]) -> str:
    """Say what each rung shows that does the baseline's step; nothing if there is none."""
    if not shown:
        return ""
    do = "does" if len(shown) == 1 else "do"
    return f" Noise: {join(list(shown))} {do} the same step as the baseline here, at {join(list(shown.values()))}."


def describe_memory(row: pd.Series, baseline: pd.Series, same: pd.DataFrame) -> str:
    """Say how much less memory one tier needs at its peak; only where rounds of fresh processes keep apart.

    Args:
        row: of the tier, in the table of speed and memory.
        baseline: row of the baseline.
        same: rows of the other rungs that do the same step as the baseline here: what they show is noise.
    """
    before, after = peak(baseline), peak(row)
    if row["memory_differs"]:
        change = "falls" if row["memory_ratio"] > 1 else "grows"
        found = f"Peak memory {change} from {before} to {after}: {saving(row['memory_ratio'])}{_savings(row)}"
    else:
        found = f"No change of peak memory is shown: {after}, the baseline {before}"
    if math.isnan(row["peak_gib_low"]) or row["rounds"] < 2:
        return f"{found}; of one process each, whose noise is not known."
    found += f"; median, least and most of {counted(int(row['rounds']), 'round')} of fresh processes."
    return found + _describe_noise({tier: peak(r) for tier, r in same.iterrows()})


def _savings(row: pd.Series) -> str:
    """Write the interval of the ratio, in the direction in which `saving` tells it; nothing where there is none."""
    if math.isnan(row["memory_low"]):
        return ""
    low, high = sorted(row[end] if row["memory_ratio"] > 1 else 1 / row[end] for end in ("memory_low", "memory_high"))
    return f" ({100 * row['speed_confidence']:g} % interval {low:.2f} to {high:.2f})"


def describe_error(changes: pd.DataFrame, noise: pd.DataFrame, confidence: float) -> str:
    """Say whether the error is shown to be unchanged, and what stands against it, beside what chance alone does.

    Args:
        changes: the decisive ones of one tier.
        noise: those of the controls.
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
    openings = {
        "different": "The error is different from the baseline's",
        "not judged": f"The change of the error is not judged from {counted(changes['seeds'].min(), 'seed')}",
        "not shown": f"It is not shown that the error is unchanged to within ±{margin:g}°",
    }
    told = join([_describe_change(change) for _, change in changes[changes["verdict"] == word].iterrows()])
    brackets = f"{round(100 * (2 * confidence - 1), 1):g} % interval"
    over = "people of these checkpoints" if word == "not judged" else "people and seeds"
    return f"{openings[word]}: {told}; in brackets the {brackets} over {over}. {describe_noise(noise)}".rstrip()


def _describe_change(change: pd.Series) -> str:
    """Write MPIIGaze after 9 samples +0.08° (−0.03 to +0.19)."""
    interval = f" ({signed(change['low_deg'])} to {signed(change['high_deg'])})" if change["people"] > 1 else ""
    return f"{_condition(change)} {signed(change['difference_deg'])}°{interval}"


def _condition(row: Mapping[str, Any]) -> str:
    samples = "unadapted" if row["k"] == 0 else f"after {counted(row['k'], 'sample')}"
    return f"{NAMES[row['dataset']]} {samples}"


def describe_redirection(means: pd.DataFrame, changes: pd.DataFrame, tier: str) -> str:
    """Say how far off the gaze of redirected strips is, beside the controls, and whether a tier changed that.

    Args:
        means: table `redirected` (`redirection_tables.redirected_tables`).
        changes: table `redirection_changes`.
        tier: the last one.
    """
    errors = means[(means["tier"] == tier) & (means["number"] == "gaze_error_deg")].set_index(["variant", "dataset"])

    def told(variant: str) -> str:
        return join([f"{deg:.1f}° on {NAMES[dataset]}" for dataset, deg in errors.loc[variant]["mean"].items()])

    found = (
        f"The gaze of redirected strips misses what was asked by {told('both')}, as an independent estimator sees it; "
        f"of strips that are not turned by {told('still')}, of real ones by {told('real')}."
    )
    judged = changes[changes["tier"] == tier]
    if judged.empty:
        return found
    word = judge(judged)
    said = judged[judged["verdict"] == word]
    most = said.loc[said["difference_deg"].abs().idxmax()]
    largest = f"{signed(most['difference_deg'])}° ({most['factor']}, {NAMES[most['dataset']]})"
    words = {
        "identical": "Gaze and head are redirected as by the baseline, to the bit.",
        "equivalent": f"That redirection is unchanged is shown: gaze and head within ±{most['margin_deg']:g}°.",
        "different": f"It is different from the baseline's, by up to {largest}.",
        "not shown": f"That it is unchanged is not shown: by up to {largest}.",
        "not judged": f"It differs from the baseline's by up to {largest}; whether by more than chance is not judged.",
    }
    return f"{found} {words[word]}"


def describe_noise(noise: pd.DataFrame) -> str:
    """Say how far chance alone moves the baseline's error; nothing if no control was trained."""
    told = []
    for control, rows in noise.groupby("tier", sort=False):
        most = rows.loc[rows["difference_deg"].abs().idxmax()]
        told.append(f"{CONTROL_WORDS[control]} by up to {abs(most['difference_deg']):.2f}° ({_condition(most)})")
    return f"For comparison: {join(told)} {'moves' if len(told) == 1 else 'move'} the baseline's error." if told else ""


def describe_design(design: pd.DataFrame, margin_deg: float) -> str:
    """Say how likely this design shows an error that is truly unchanged, and what makes it 80 %; nothing if unknown.

    Args:
        design: a row for each data set and k that decides (`design.designs`).
        margin_deg: of equivalence.
    """
    if design.empty:
        return ""
    hardest = design.loc[design["power"].idxmin()]
    seeds, people = counted(hardest["seeds"], "seed"), design.groupby("dataset", sort=False)["people"].first()
    with_people = join([f"{number} people of {NAMES[dataset]}" for dataset, number in people.items()])
    chance = f"in {100 * hardest['power']:.0f} % of cases, at the hardest of its {counted(len(design), 'comparison')}"
    sentence = (
        f"If a tier truly changes nothing, {seeds} with {with_people} show this to within ±{margin_deg:g}° {chance} "
        f"({_condition(hardest)})."
    )
    if hardest["power"] >= POWER:
        return sentence
    more_seeds, more_people = design["seeds_needed"].max(), design["people_needed"].max()
    ways = [f"{_about(more_seeds, MOST_SEEDS)} seeds with these people"]
    if more_people <= MOST_PEOPLE:
        ways.append(f"about {more_people} people in each data set with these seeds")
    ways.append(f"a margin of ±{design['margin_deg'].max():.2f}°")
    known = f"they rest on {counted(hardest['trainings'], 'training')} of the baseline"
    return f"{sentence} {100 * POWER:g} % of cases take {', or '.join(ways)}. These numbers are rough: {known}."


def _about(number: int, most: int) -> str:
    return f"more than {most}" if number > most else f"about {number}"


def describe_scope(seeds: int) -> str:
    """Say for whom a verdict speaks."""
    if seeds >= SEEDS_FOR_A_TIER:
        return f"This speaks for the tiers: people and the {seeds} seeds are both taken as samples."
    return (
        f"With {counted(seeds, 'seed')} errors speak for these checkpoints only; a verdict about a tier needs at least "
        f"{SEEDS_FOR_A_TIER} seeds (run.seeds)."
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
