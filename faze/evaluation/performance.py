"""Speed and memory of the tiers, the switches that each tier changes, and validation errors over time."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from faze.base.run_log import LoggedRun
from faze.evaluation.wording import memory_change

# Columns that are copied from the benchmark; None: not measured.
MEASURED = ("step_ms", "images_per_s", "peak_gib", "peak_gib_low", "peak_gib_high", "memory_ratio", "unsteady_rounds")
MEASURED += ("tflops", "share_of_matmul_roof", "gbytes_per_s", "share_of_copy_roof")
MEASURED += ("reserved_gib", "joules_per_step", "warmup_s", "pays_off_after_pairs", "processes", "threads")


def performance(benchmark: Mapping[str, Any]) -> pd.DataFrame:
    """Tabulate the speed and memory of each measured tier, starting with the baseline.

    A ratio above 1 is an improvement. The `_of_all` interval also holds for the best of all tiers. `memory_differs` is
    true if the peak ranges of the tier and the baseline do not overlap and the rounds suffice for a speed interval.
    """
    first, rows, interval = next(iter(benchmark["tiers"].values())), [], benchmark["speed_interval"]
    for tier, measured in benchmark["tiers"].items():
        of_all = measured["simultaneous"]
        row = {"tier": tier} | {name: measured.get(name) for name in MEASURED}
        row["step_ms_q1"], row["step_ms_q3"] = measured["step_ms_quartiles"]
        row |= {f"{phase}_ms": value for phase, value in measured["phases_ms"].items()}
        row |= {f"speed_{name}": value for name, value in (measured["speedup"] | interval).items()}
        row |= {f"speed_{end}_of_all": of_all["speedup"][end] for end in ("low", "high")}
        row |= {"comparisons": of_all["comparisons"], "rounds": benchmark["rounds"]}
        apart = row["peak_gib_high"] < first["peak_gib_low"] or row["peak_gib_low"] > first["peak_gib_high"]
        row["memory_differs"] = apart and interval["over"] == "rounds"
        row["memory_change"] = memory_change(row["memory_ratio"], row["memory_differs"] or measured is first)
        rows.append(row | {"same_step": measured["same_as_baseline"] or ""})
    return pd.DataFrame(rows)


def tier_changes(tiers: Mapping[str, Sequence[Mapping[str, str]]]) -> dict[str, tuple[str | None, list]]:
    """Return, for each tier, the tier that it builds on and the switches in which it differs from that tier.

    A tier builds on the first earlier tier with the fewest differences. The first tier lists its inactive switches.
    """
    found = {}
    for tier, switches in tiers.items():
        known = [(before, [each for each in switches if each not in tiers[before]]) for before in found]
        ineffective = [each for each in switches if each["reason"]]
        found[tier] = min(known, key=lambda each: len(each[1]), default=(None, ineffective))
    return found


def validation_curves(trainings: Mapping[tuple[str, int], LoggedRun], images_per_s: pd.Series) -> pd.DataFrame:
    """Tabulate every run's validation errors against training pairs and seconds at the tier's benchmark rate."""
    rows = []
    for (tier, seed), training in trainings.items():
        errors = [value for value in training.values if value.metric == "val/gaze_deg"]
        rows += [(tier, seed, pairs, 2 * pairs / images_per_s[tier], error_deg) for _, pairs, error_deg, _ in errors]
    return pd.DataFrame(rows, columns=["tier", "seed", "pairs", "rate_seconds", "error_deg"])


def times_to_error(curves: pd.DataFrame, baseline: str, margin_deg: float) -> pd.DataFrame:
    """Find when each run first comes within the margin of the baseline's final validation error for the same seed."""
    targets = curves[curves["tier"] == baseline].groupby("seed")["error_deg"].last() + margin_deg
    good = curves[curves["error_deg"] <= curves["seed"].map(targets)].drop_duplicates(["tier", "seed"])
    times = curves[["tier", "seed"]].drop_duplicates().merge(good.drop(columns="error_deg"), how="left")
    of_baseline = times[times["tier"] == baseline].set_index("seed")["rate_seconds"]
    times["rate_ratio"] = times["seed"].map(of_baseline) / times["rate_seconds"]
    return times.assign(target_deg=times["seed"].map(targets), reached=times["pairs"].notna())
