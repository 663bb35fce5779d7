"""Speed and memory of the tiers, validation errors over time, and diagnostics of errors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.geometry import mean_angle_deg, pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.base.result_paths import ResultPaths
from faze.base.run_log import LoggedRun
from faze.config.parameters import Run
from faze.config.stage_config import Resolved
from faze.data.codes import CodeStore
from faze.evaluation.wording import memory_change

# Columns that are copied from the benchmark; None: not measured.
MEASURED = ("step_ms", "images_per_s", "peak_gib", "peak_gib_low", "peak_gib_high", "memory_ratio", "unsteady_rounds")
MEASURED += ("tflops", "share_of_matmul_roof", "gbytes_per_s", "share_of_copy_roof")
MEASURED += ("reserved_gib", "joules_per_step", "warmup_s", "pays_off_after_pairs")
Switches = Sequence[Mapping[str, str]]  # `switch` events of a run log
# Components of a person's error (a constant, a slope of each axis, head pose and the other axis) -> parameters so far.
COMPONENTS = {"offset": 1, "slope": 2, "linear": 5}


def performance(benchmark: Mapping[str, Any]) -> pd.DataFrame:
    """Tabulate the speed and memory of each measured tier, the baseline first.

    A ratio above 1 is better. The interval _of_all holds for all tiers together, and so for the best of them. Memory
    differs if the ranges over rounds do not overlap, given as many rounds as an interval of speed over rounds requires.
    """
    first, rows, interval = next(iter(benchmark["tiers"].values())), [], benchmark["speed_interval"]
    for tier, measured in benchmark["tiers"].items():
        of_all = measured["simultaneous"]
        row = {"tier": tier} | {name: measured.get(name) for name in MEASURED}
        row["step_ms_q1"], row["step_ms_q3"] = measured["step_ms_quartiles"]
        row |= {f"{phase}_ms": value for phase, value in measured["phases_ms"].items()}
        row |= {f"speed_{name}": value for name, value in measured["speedup"].items()}
        row |= {f"speed_{end}_of_all": of_all["speedup"][end] for end in ("low", "high")}
        row |= {"speed_confidence": interval["confidence"], "speed_over": interval["over"]}
        row |= {"comparisons": of_all["comparisons"], "rounds": benchmark["rounds"]}
        apart = row["peak_gib_high"] < first["peak_gib_low"] or row["peak_gib_low"] > first["peak_gib_high"]
        row["memory_differs"] = apart and interval["over"] == "rounds"
        row["memory_change"] = memory_change(row["memory_ratio"], row["memory_differs"] or measured is first)
        rows.append(row | {"same_step": measured["same_as_baseline"] or ""})
    return pd.DataFrame(rows)


def tier_changes(tiers: Mapping[str, Switches]) -> dict[str, tuple[str | None, Switches]]:
    """Return, for each tier, the tier that it builds on and its switches that differ from that tier's.

    That is the first of those before it with the fewest differences. The first tier builds on none; its switches are
    the ineffective ones.
    """
    found = {}
    for tier, switches in tiers.items():
        known = [(before, [each for each in switches if each not in tiers[before]]) for before in found]
        ineffective = [each for each in switches if each["reason"]]
        found[tier] = min(known, key=lambda each: len(each[1]), default=(None, ineffective))
    return found


def validation_curves(trainings: Mapping[tuple[str, int], LoggedRun], images_per_s: pd.Series) -> pd.DataFrame:
    """Tabulate the validation error of every training after each number of pairs, and the time at the rate by tier."""
    rows = []
    for (tier, seed), training in trainings.items():
        for metric, pairs, error_deg, _ in training.values:
            if metric == "val/gaze_deg":
                rows.append((tier, seed, pairs, 2 * pairs / images_per_s[tier], error_deg))
    return pd.DataFrame(rows, columns=["tier", "seed", "pairs", "rate_seconds", "error_deg"])


def times_to_error(curves: pd.DataFrame, baseline: str, margin_deg: float) -> pd.DataFrame:
    """Find when each training is first within the margin of the baseline's final validation error with its seed."""
    targets = curves[curves["tier"] == baseline].groupby("seed")["error_deg"].last() + margin_deg
    good = curves[curves["error_deg"] <= curves["seed"].map(targets)].drop_duplicates(["tier", "seed"])
    times = curves[["tier", "seed"]].drop_duplicates().merge(good.drop(columns="error_deg"), how="left")
    of_baseline = times[times["tier"] == baseline].set_index("seed")["rate_seconds"]
    times["rate_ratio"] = times["seed"].map(of_baseline) / times["rate_seconds"]
    return times.assign(target_deg=times["seed"].map(targets), reached=times["pairs"].notna())


def pixel_checks(paths: ResultPaths, config: Resolved, persons: pd.DataFrame) -> pd.DataFrame:
    """Compare the mean unadapted error of every tier, seed and data set with those of `blind_errors`."""
    found, unadapted = [], persons[(persons["k"] == 0) & persons["tier"].isin(config.run.tiers)]
    for run, rows in unadapted.groupby(["tier", "seed", "dataset"], sort=False):
        store, unadapted_deg = CodeStore(paths.codes(*run)), rows["error_deg"].mean()
        errors = pd.DataFrame([blind_errors(store[person], config.fewshot.query_entries) for person in rows["person"]])
        found += [[*run, check, error, unadapted_deg, error / unadapted_deg] for check, error in errors.mean().items()]
    return pd.DataFrame(found, columns=["tier", "seed", "dataset", "check", "error_deg", "unadapted_deg", "ratio"])


def blind_errors(codes: Mapping[str, NDArray], query_entries: int) -> dict[str, float]:
    """Compute a person's errors on the last entries, degrees, for predictors that do not see their pixels.

    `pixel_blind` regresses gaze on head pose over the other entries; `permuted` is the mean over all permutations of
    the network's estimates.
    """
    gaze, head, gaze_hat = (codes[name].astype(np.float64) for name in ("gaze", "head", "gaze_hat"))
    design, wanted = np.column_stack([np.ones(len(head)), head]), vector_from_pitchyaw(gaze[-query_entries:])
    coefficients = np.linalg.lstsq(design[:-query_entries], gaze[:-query_entries], rcond=None)[0]
    estimate = vector_from_pitchyaw(design[-query_entries:] @ coefficients)
    of_pairs = mean_angle_deg(wanted[:, None], gaze_hat[-query_entries:])  # every pair (i, j) is equally likely
    return {"pixel_blind": mean_angle_deg(estimate, wanted), "permuted": of_pairs}


def person_variance(paths: ResultPaths, run: Run, persons: pd.DataFrame) -> pd.DataFrame:
    """Decompose the baseline's squared error on all entries, as Chen and Shi (arXiv 1905.04451) do: rms and shares."""
    rows = []
    for dataset, names in persons.groupby("dataset", sort=False)["person"].unique().items():
        stores = [CodeStore(paths.codes(run.tiers[0], seed, dataset)) for seed in run.seeds]
        squares = np.mean([residual_squares(store[name]) for store in stores for name in names], axis=0)
        rows.append([dataset, squares[0] ** 0.5, *-np.diff(squares, append=0) / squares[0], len(names)])
    return pd.DataFrame(rows, columns=["dataset", "rms_deg", *COMPONENTS, "rest", "people"])


def residual_squares(codes: Mapping[str, NDArray]) -> NDArray:
    """Compute one person's squared error (4,), squared degrees, without a model and after fitting each nested model.

    Sums are divided by the degrees of freedom, since each fit also removes some noise by chance.
    """
    hat, head = pitchyaw_from_vector(codes["gaze_hat"].astype(np.float64)), codes["head"].astype(np.float64)
    residual = np.degrees(pitchyaw_difference(codes["gaze"].astype(np.float64), hat))
    parameters, totals = np.array([0, *COMPONENTS.values()]), 0
    for axis in range(2):
        basis, _ = np.linalg.qr(np.column_stack([np.ones(len(hat)), hat[:, axis], head, hat[:, 1 - axis]]))
        explained = np.cumsum([0, *np.square(basis.T @ residual[:, axis])])[parameters]
        totals += (np.sum(residual[:, axis] ** 2) - explained) / (len(hat) - parameters)
    return totals
