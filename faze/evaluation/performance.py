"""Speed and memory of the tiers, and their validation errors over time."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from faze.base.run_log import LoggedRun
from faze.evaluation.wording import memory_change, peaks_differ

# Columns that are copied from the benchmark; None: not measured.
MEASURED = ("step_ms", "images_per_s", "peak_gib", "peak_gib_low", "peak_gib_high", "memory_ratio", "unsteady_rounds")
MEASURED += ("tflops", "share_of_matmul_roof", "gbytes_per_s", "share_of_copy_roof")
MEASURED += ("reserved_gib", "joules_per_step", "warmup_s", "pays_off_after_pairs")


def performance(benchmark: Mapping[str, Any]) -> pd.DataFrame:
    """Tabulate the speed and memory of each measured tier, the baseline first.

    speed_ratio and memory_ratio are relative to the baseline: above 1 if the tier is faster or uses less memory. The
    interval _of_all, and speed_finding, hold for all tiers together, and so for the best of them. memory_change is
    "not shown" unless memory_differs. same_step is the reason why the tier's step is the baseline's.
    """
    first, rows, interval = next(iter(benchmark["tiers"].values())), [], benchmark["speed_interval"]
    for tier, measured in benchmark["tiers"].items():
        of_all, differs = measured["simultaneous"], peaks_differ(measured, first)
        low, high = of_all["speedup"]["low"], of_all["speedup"]["high"]
        row = {"tier": tier} | {name: measured.get(name) for name in MEASURED}
        row["step_ms_q1"], row["step_ms_q3"] = measured["step_ms_quartiles"]
        row |= {f"{phase}_ms": value for phase, value in measured["phases_ms"].items()}
        row |= {f"speed_{name}": value for name, value in measured["speedup"].items()}
        row |= {"speed_low_of_all": low, "speed_high_of_all": high, "comparisons": of_all["comparisons"]}
        row["speed_finding"] = "faster" if low > 1 else "slower" if high < 1 else "not shown to be faster"
        row |= {"speed_confidence": interval["confidence"], "speed_over": interval["over"]}
        row |= {"rounds": benchmark["rounds"], "memory_differs": differs}
        row["memory_change"] = memory_change(measured["memory_ratio"], differs or measured is first)
        rows.append(row | {"same_step": measured["same_as_baseline"] or ""})
    return pd.DataFrame(rows)


def validation_curves(trainings: Mapping[tuple[str, int], LoggedRun], images_per_s: pd.Series) -> pd.DataFrame:
    """Tabulate the validation error during every training run: tier, seed, pairs, rate_seconds, error_deg.

    rate_seconds is the time for that many pairs at the benchmark's rate, since that of a training depends on other jobs.
    """
    rows = []
    for (tier, seed), training in trainings.items():
        for metric, pairs, error_deg, _ in training.values:
            if metric == "val/gaze_deg":
                rows.append((tier, seed, pairs, 2 * pairs / images_per_s[tier], error_deg))
    return pd.DataFrame(rows, columns=["tier", "seed", "pairs", "rate_seconds", "error_deg"])


def times_to_error(curves: pd.DataFrame, baseline: str, margin_deg: float) -> pd.DataFrame:
    """Find when each training run is within the margin of the baseline's final validation error with the same seed.

    Returns:
        One row per tier and seed: target_deg; reached; pairs and rate_seconds of the first validation that reaches it;
        rate_ratio, the baseline's rate_seconds divided by this run's. Values are nan if the error is not reached.
    """
    targets = curves[curves["tier"] == baseline].groupby("seed")["error_deg"].last() + margin_deg
    good = curves[curves["error_deg"] <= curves["seed"].map(targets)].drop_duplicates(["tier", "seed"])
    times = curves[["tier", "seed"]].drop_duplicates().merge(good.drop(columns="error_deg"), how="left")
    of_baseline = times[times["tier"] == baseline].set_index("seed")["rate_seconds"]
    times["rate_ratio"] = times["seed"].map(of_baseline) / times["rate_seconds"]
    return times.assign(target_deg=times["seed"].map(targets), reached=times["pairs"].notna())
