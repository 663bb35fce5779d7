"""Diagnostics of errors: predictors that do not see the pixels, and components of a person's error."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.geometry import mean_angle_deg, pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.data.codes import CodeStore
from faze.evaluation.runs import Ablation

COMPONENTS = {"offset": 1, "slope": 2, "linear": 5}  # of a person's error -> parameters of its linear model


def pixel_checks(ablation: Ablation, persons: pd.DataFrame, query_entries: int) -> pd.DataFrame:
    """Compare the mean unadapted error of every tier, seed and data set with those of `blind_errors`."""
    found, unadapted = [], persons[(persons["k"] == 0) & persons["tier"].isin(ablation.tiers)]
    for run, rows in unadapted.groupby(["tier", "seed", "dataset"], sort=False):
        store, unadapted_deg = CodeStore(ablation.paths.codes(*run)), rows["error_deg"].mean()
        errors = pd.DataFrame([blind_errors(store[person], query_entries) for person in rows["person"]])
        found += [[*run, check, error, unadapted_deg, error / unadapted_deg] for check, error in errors.mean().items()]
    return pd.DataFrame(found, columns=["tier", "seed", "dataset", "check", "error_deg", "unadapted_deg", "ratio"])


def blind_errors(codes: Mapping[str, NDArray], query_entries: int) -> dict[str, float]:
    """Compute a person's errors, in degrees, on the last entries, of two predictors that do not see their pixels.

    `pixel_blind` regresses gaze on head pose over the person's other entries. `permuted` is the mean over all
    permutations of the network's estimates.
    """
    gaze, head, gaze_hat = (codes[name].astype(np.float64) for name in ("gaze", "head", "gaze_hat"))
    design, wanted = np.column_stack([np.ones(len(head)), head]), vector_from_pitchyaw(gaze[-query_entries:])
    coefficients = np.linalg.lstsq(design[:-query_entries], gaze[:-query_entries], rcond=None)[0]
    estimate = vector_from_pitchyaw(design[-query_entries:] @ coefficients)
    of_pairs = mean_angle_deg(wanted[:, None], gaze_hat[-query_entries:])  # every pair (i, j) is equally likely
    return {"pixel_blind": mean_angle_deg(estimate, wanted), "permuted": of_pairs}


def person_variance(ablation: Ablation, persons: pd.DataFrame) -> pd.DataFrame:
    """Decompose the mean squared error of the baseline, as Chen and Shi (arXiv 1905.04451) do with a person's bias.

    Returns:
        One row per data set: rms_deg, root mean square of pitch and yaw errors together, over all entries of the test
        people and all seeds; the share of each of COMPONENTS, and of the rest, in the mean square; people.
    """
    rows = []
    for dataset, names in persons.groupby("dataset", sort=False)["person"].unique().items():
        stores = [CodeStore(ablation.paths.codes(ablation.tiers[0], seed, dataset)) for seed in ablation.seeds]
        squares = np.mean([residual_squares(store[name]) for store in stores for name in names], axis=0)
        rows.append([dataset, squares[0] ** 0.5, *-np.diff(squares, append=0) / squares[0], len(names)])
    return pd.DataFrame(rows, columns=["dataset", "rms_deg", *COMPONENTS, "rest", "people"])


def residual_squares(codes: Mapping[str, NDArray]) -> NDArray:
    """Compute one person's squared error (4,), squared degrees, without a model and after fitting each nested model.

    The models are a constant, a slope of each axis, and head pose and the other axis. Each fit also removes some noise
    by chance, so sums of squares are divided by the degrees of freedom.
    """
    hat, head = pitchyaw_from_vector(codes["gaze_hat"].astype(np.float64)), codes["head"].astype(np.float64)
    residual, totals = np.degrees(pitchyaw_difference(codes["gaze"].astype(np.float64), hat)), []
    for axis in range(2):
        basis, _ = np.linalg.qr(np.column_stack([np.ones(len(hat)), hat[:, axis], head, hat[:, 1 - axis]]))
        fitted = np.square(basis.T @ residual[:, axis])
        rest = [np.sum(residual[:, axis] ** 2) - fitted[:count].sum() for count in (0, *COMPONENTS.values())]
        totals.append(np.divide(rest, len(hat) - np.array([0, *COMPONENTS.values()])))
    return np.sum(totals, axis=0)
