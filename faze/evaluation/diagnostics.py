"""Diagnostics of errors: predictors that do not see the pixels, and components of a person's error."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.geometry import mean_angle_deg, pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.data.codes import CodeStore
from faze.evaluation.runs import Ablation

# Linear models of a person's residual: a constant, a slope of each axis, head pose and the other axis, and the rest.
COMPONENTS = ("offset", "slope", "linear", "rest")


def pixel_blind_error(codes: Mapping[str, NDArray], query_entries: int) -> float:
    """Regress gaze on head pose over a person's calibration pool; return the mean error on the query, degrees.

    Unlike the network, this predictor knows the person's mean gaze and how their gaze correlates with head pose. The
    query consists of the last entries, the pool of the others.
    """
    gaze, head = codes["gaze"].astype(np.float64), codes["head"].astype(np.float64)
    design = np.column_stack([np.ones(len(head)), head])
    coefficients = np.linalg.lstsq(design[:-query_entries], gaze[:-query_entries], rcond=None)[0]
    estimate = design[-query_entries:] @ coefficients
    return mean_angle_deg(vector_from_pitchyaw(estimate), vector_from_pitchyaw(gaze[-query_entries:]))


def permuted_error(codes: Mapping[str, NDArray], query_entries: int) -> float:
    """Compute the mean error between a query's labels and its permuted estimates, over all permutations, degrees."""
    gaze = vector_from_pitchyaw(codes["gaze"][-query_entries:].astype(np.float64))
    gaze_hat = codes["gaze_hat"][-query_entries:].astype(np.float64)
    return mean_angle_deg(gaze[:, None], gaze_hat[None, :])  # under a permutation, every pair (i, j) is equally likely


CHECKS = {"pixel_blind": pixel_blind_error, "permuted": permuted_error}


def pixel_checks(ablation: Ablation, persons: pd.DataFrame, query_entries: int) -> pd.DataFrame:
    """Compare the network of every tier and seed with predictors that do not see the pixels.

    If the network is hardly better than these predictors, the data are too easy.

    Returns:
        One row per tier, seed, dataset and check: error_deg (mean over people), unadapted_deg, ratio.
    """
    found, unadapted = [], persons[(persons["k"] == 0) & persons["tier"].isin(ablation.tiers)]
    for run, rows in unadapted.groupby(["tier", "seed", "dataset"], sort=False):
        store = CodeStore(ablation.paths.codes(*run))
        codes, unadapted_deg = [store[person] for person in rows["person"]], rows["error_deg"].mean()
        for check, predictor in CHECKS.items():
            error_deg = np.mean([predictor(of_person, query_entries) for of_person in codes])
            found.append([*run, check, error_deg, unadapted_deg, error_deg / unadapted_deg])
    return pd.DataFrame(found, columns=["tier", "seed", "dataset", "check", "error_deg", "unadapted_deg", "ratio"])


def person_variance(ablation: Ablation, persons: pd.DataFrame) -> pd.DataFrame:
    """Decompose the baseline's squared error on all entries of the test people.

    Chen and Shi (arXiv 1905.04451) decompose it into a bias for each person and a variance around it. Here, nested
    linear models of each person's residual decompose the variance further.

    Returns:
        One row per data set: rms_deg, root mean square of pitch and yaw errors together; the share of each of
        COMPONENTS in the mean square; people. Means are over people and seeds.
    """
    rows = []
    for dataset, of_dataset in persons.groupby("dataset", sort=False):
        names, found = sorted(set(of_dataset["person"])), []
        for seed in ablation.seeds:
            store = CodeStore(ablation.paths.codes(ablation.tiers[0], seed, str(dataset)))
            found += [residual_squares(store[name]) for name in names]
        squares = pd.DataFrame(found).dropna().mean().to_numpy()
        shares = np.append(-np.diff(squares), squares[-1]) / squares[0]
        rows.append([dataset, squares[0] ** 0.5, *shares, len(names)])
    return pd.DataFrame(rows, columns=["dataset", "rms_deg", *COMPONENTS, "people"])


def residual_squares(codes: Mapping[str, NDArray]) -> NDArray[np.float64]:
    """Compute one person's squared error without a model and after fitting the first, the second and the third model.

    Each fit also removes some noise by chance, so sums of squares are divided by the degrees of freedom. The result is
    in squared degrees, (4,), pitch and yaw together; it is nan for a person with too few entries.
    """
    hat = pitchyaw_from_vector(codes["gaze_hat"].astype(np.float64))
    residual = np.degrees(pitchyaw_difference(codes["gaze"].astype(np.float64), hat))
    one, head = np.ones((len(hat), 1)), codes["head"].astype(np.float64)
    totals = np.zeros(len(COMPONENTS))
    for axis in range(2):
        designs = [one[:, :0], one, np.column_stack([one, hat[:, axis]]), np.column_stack([one, hat, head])]
        for number, design in enumerate(designs):
            dof = len(hat) - design.shape[1]
            coefficients = np.linalg.lstsq(design, residual[:, axis], rcond=None)[0]
            squares = np.sum((residual[:, axis] - design @ coefficients) ** 2)
            totals[number] += squares / dof if dof > 0 else np.nan
    return totals
