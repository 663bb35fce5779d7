"""Speed, memory and switches of the tiers, and their validation errors over time."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from faze.base.run_log import LoggedRun
from faze.evaluation.switches import Switches, changed_switches
from faze.evaluation.wording import peaks_differ

# Columns that are copied from the benchmark; None: not measured.
MEASURED = ("step_ms", "images_per_s", "peak_gib", "peak_gib_low", "peak_gib_high", "memory_ratio", "unsteady_rounds")
MEASURED += ("tflops", "share_of_matmul_roof", "gbytes_per_s", "share_of_copy_roof")
MEASURED += ("reserved_gib", "joules_per_step", "warmup_s", "pays_off_after_pairs")


def tier_switches(benchmark: Mapping[str, Any], trainings: Mapping[str, LoggedRun]) -> dict[str, Switches]:
    """Return the switches of each measured tier: those of its training or, for an untrained tier, of the benchmark.

    Training sets some switches for all tiers, such as `allocator`. An untrained tier differs from the baseline's
    training only where it differs from the baseline in the benchmark.

    Args:
        benchmark: content of benchmark.json.
        trainings: the run log of one training run per trained tier, the baseline first.
    """
    first, found = next(iter(trainings)), {}
    for tier, row in benchmark["tiers"].items():
        if tier in trainings:
            found[tier] = trainings[tier].switches
        else:
            changed = changed_switches(row["switches"], benchmark["tiers"][first]["switches"])
            own = {switch["switch"]: switch for switch in changed}
            found[tier] = [own.get(switch["switch"], switch) for switch in trainings[first].switches]
    return found


def performance(benchmark: Mapping[str, Any], switches: Mapping[str, Switches]) -> pd.DataFrame:
    """Tabulate the speed, memory and switches (`tier_switches`) of each measured tier; the first one is the baseline.

    Returns:
        One row per tier. speed_ratio and memory_ratio are relative to the baseline: above 1 if the tier is faster or
        uses less memory. The intervals _of_all, and speed_finding, hold for all tiers together. memory_differs: whether
        the ranges of peak memory over rounds do not overlap. same_step: the reason why the step is the baseline's.
    """
    rows, first, interval = [], next(iter(switches)), benchmark["speed_interval"]
    for tier, own in switches.items():
        measured = benchmark["tiers"][tier]
        of_all, memory_of_all = measured["simultaneous"], measured["simultaneous"]["memory"] or {}
        changed = changed_switches(own, () if tier == first else switches[first])
        row = {"tier": tier} | {name: measured.get(name) for name in MEASURED}
        row["step_ms_q1"], row["step_ms_q3"] = measured["step_ms_quartiles"]
        row |= {f"{phase}_ms": value for phase, value in measured["phases_ms"].items()}
        row |= {f"speed_{name}": value for name, value in measured["speedup"].items()}
        for end in ("low", "high"):
            row[f"speed_{end}_of_all"], row[f"memory_{end}_of_all"] = of_all["speedup"][end], memory_of_all.get(end)
        low, high = of_all["speedup"]["low"], of_all["speedup"]["high"]
        row["speed_finding"] = "faster" if low > 1 else "slower" if high < 1 else "not shown to be faster"
        row |= {"speed_confidence": interval["confidence"], "speed_over": interval["over"]}
        row |= {"rounds": benchmark["rounds"], "comparisons": of_all["comparisons"]}
        row["memory_differs"] = peaks_differ(measured, benchmark["tiers"][first])
        row["same_step"] = measured["same_as_baseline"] or ""
        row["active"] = "; ".join(f"{s['switch']} {s['wanted']} ({s['acted']})" for s in changed if not s["reason"])
        row["inactive"] = "; ".join(f"{s['switch']} {s['wanted']}: {s['reason']}" for s in changed if s["reason"])
        rows.append(row)
    return pd.DataFrame(rows)


def validation_curves(trainings: Mapping[tuple[str, int], LoggedRun], images_per_s: pd.Series) -> pd.DataFrame:
    """Tabulate the validation error during every training run: tier, seed, pairs, rate_seconds, error_deg.

    rate_seconds is the time for that many pairs at the benchmark's rate (`images_per_s`, by tier). The measured
    duration of a training run would depend on other jobs.
    """
    rows = [
        (tier, seed, value.step, 2 * value.step / images_per_s[tier], value.value)
        for (tier, seed), training in trainings.items()
        for value in training.values
        if value.metric == "val/gaze_deg"
    ]
    return pd.DataFrame(rows, columns=["tier", "seed", "pairs", "rate_seconds", "error_deg"])


def times_to_error(curves: pd.DataFrame, baseline: str, margin_deg: float) -> pd.DataFrame:
    """Find when each training run reaches the final validation error of the baseline with the same seed.

    An error within the margin counts as reached. Without a margin, chance would decide whether an equally good run
    reaches the baseline's final value.

    Returns:
        One row per tier and seed: target_deg; reached; pairs and rate_seconds of the first validation that reaches it;
        rate_ratio, the baseline's rate_seconds divided by this run's. Values are nan if the error is not reached.
    """
    targets = curves[curves["tier"] == baseline].groupby("seed")["error_deg"].last() + margin_deg
    good = curves[curves["error_deg"] <= curves["seed"].map(targets)]
    reached = good.groupby(["tier", "seed"])[["pairs", "rate_seconds"]].first()
    times = curves[["tier", "seed"]].drop_duplicates(ignore_index=True).join(reached, on=["tier", "seed"])
    of_baseline = times[times["tier"] == baseline].set_index("seed")["rate_seconds"]
    return times.assign(
        target_deg=times["seed"].map(targets),
        reached=times["pairs"].notna(),
        rate_ratio=times["seed"].map(of_baseline) / times["rate_seconds"],
    )
