"""The verdict of an ablation: a word for each tier, and the cards at the top of the page."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from faze.config.parameters import Evaluate
from faze.evaluation import UNADAPTED
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.wording import counted, signed, title_of

# Of the verdicts on several changes, the first one in this order is the verdict on all of them.
WORDS = ("different", "not judged", "not shown", "equivalent", "identical")
Card = tuple[str, str, str]  # title, value, note


def overall(verdicts: pd.Series) -> str:
    """Combine verdicts: all changes must be shown to be equivalent, but only one to be different."""
    return next(word for word in WORDS if word in set(verdicts))


def speed_card(performance: pd.DataFrame) -> Card:
    """Name the fastest tier if it is shown to be faster than the baseline, even as the best of several tiers."""
    faster = performance[(performance["speed_low_of_all"] > 1) & (performance["same_step"] == "")]
    if faster.empty:
        return "Fastest tier", "none shown", f"no tier is shown to be faster than {performance['tier'][0]}"
    best = faster.loc[faster["speed_ratio"].idxmax()]
    over = counted(best["rounds"], "round") if best["speed_over"] == "rounds" else "blocks of one process"
    interval = f"{best['speed_low_of_all']:.2f} to {best['speed_high_of_all']:.2f} over {over}"
    note = f"{100 * best['speed_confidence']:g} % interval {interval}, for the best of {best['comparisons']}"
    return f"Fastest tier: {best['tier']}", f"{best['speed_ratio']:.2f}×", note


def memory_card(performance: pd.DataFrame) -> Card:
    """Name the tier with the smallest peak memory if its range over rounds is below that of the baseline."""
    smaller = performance[performance["memory_differs"] & (performance["memory_ratio"] > 1)]
    if smaller.empty:
        return "Smallest peak memory", "none shown", f"no tier is shown to need less than {performance['tier'][0]}"
    best = smaller.loc[smaller["memory_ratio"].idxmax()]
    note = f"{performance['peak_gib'][0]:.3f} → {best['peak_gib']:.3f} GiB, medians of {best['rounds']} rounds"
    return f"Smallest peak memory: {best['tier']}", best["memory_change"], note


def error_card(changes: pd.DataFrame, noise: pd.DataFrame, baseline: str, evaluate: Evaluate) -> Card:
    """Return the verdict on all tiers, given the deciding changes of tiers and those of noise controls."""
    title = f"Error compared with {baseline}"
    if changes.empty:
        return title, "not compared", "no other tier was trained (run.tiers)"
    notes = [f"largest change {_largest(changes, evaluate)}, margin ±{evaluate.margin_deg:g}°"]
    if len(noise):
        notes.append(f"noise alone {_largest(noise, evaluate)}")
    if (seeds := changes["seeds"].max()) < SEEDS_FOR_A_TIER:
        notes.append(
            f"with {counted(seeds, 'seed')}, for these checkpoints only (run.seeds: at least {SEEDS_FOR_A_TIER})"
        )
    return title, overall(changes["verdict"]), "; ".join(notes)


def _largest(changes: pd.DataFrame, evaluate: Evaluate) -> str:
    """Describe the largest change, such as +0.28° (amp, MPIIGaze, k = 0, 90 % interval +0.10 to +0.46)."""
    row = changes.loc[changes["difference_deg"].abs().idxmax()]
    level, interval = 100 * (2 * evaluate.confidence - 1), ""
    if pd.notna(row["low_deg"]):  # a single person has no interval
        interval = f", {level:.3g} % interval {signed(row['low_deg'])} to {signed(row['high_deg'])}"
    return f"{signed(row['difference_deg'])}° ({row['tier']}, {title_of(row['dataset'])}, k = {row['k']}{interval})"


def learner_card(errors: pd.DataFrame, recommended: Sequence[Mapping[str, Any]]) -> Card:
    """Name the learner with the smallest error on val people at the largest k, with its mean errors on test people."""
    if not recommended or recommended[-1]["learner"] == UNADAPTED:
        return "Best learner", "none shown", "no learner reduces the error of val people"
    learner, k = recommended[-1]["learner"], recommended[-1]["k"]
    means = errors.set_index(["learner", "k", "dataset"])["mean_deg"]
    before, after = means[UNADAPTED, 0], means[learner, k]
    value, *others = [f"{before[name]:.2f}° → {after[name]:.2f}°" for name in before.index]
    notes = [title_of(before.index[0]), *(f"{title_of(name)}: {each}" for name, each in zip(before.index[1:], others))]
    return f"Best learner, k = {k}: {learner}", value, f"{'; '.join(notes)}; chosen on val people"
