"""Diagnostics of errors: pixel-blind predictors, and components of a person's error."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.geometry import angular_error, pitchyaw_difference, pitchyaw_from_vector, vector_from_pitchyaw
from faze.data.codes import CodeStore
from faze.evaluation.runs import Ablation

# Linear models of a person's residual: a constant, a slope of each axis, head pose and the other axis, and the rest.
COMPONENTS = ("offset", "slope", "linear", "rest")


def pixel_blind_error(codes: Mapping[str, NDArray], query_entries: int) -> float:
    """Regress gaze on head pose over a person's calibration pool; return the mean error on the query, degrees.

    This predictor uses no pixels. Unlike the network, it knows the person's mean gaze and how their gaze correlates
    with head pose.

    Args:
        codes: codes of one person: gaze and head (N, 2) radians.
        query_entries: number of entries that form the query, at the end; the others are the pool.
    """
    gaze, head = codes["gaze"].astype(np.float64), codes["head"].astype(np.float64)
    design = np.column_stack([np.ones(len(head)), head])  # (N, 3)
    coefficients = np.linalg.lstsq(design[:-query_entries], gaze[:-query_entries], rcond=None)[0]  # (3, 2)
    estimate = design[-query_entries:] @ coefficients
    errors = angular_error(vector_from_pitchyaw(estimate), vector_from_pitchyaw(gaze[-query_entries:]))
    return float(np.degrees(errors).mean())


def permuted_error(codes: Mapping[str, NDArray], query_entries: int) -> float:
    """Compute the mean error between a query's labels and its permuted estimates, over all permutations, degrees.

    Args:
        codes: codes of one person: gaze (N, 2) radians, gaze_hat (N, 3).
        query_entries: number of entries that form the query, at the end.
    """
    gaze = vector_from_pitchyaw(codes["gaze"][-query_entries:].astype(np.float64))
    gaze_hat = codes["gaze_hat"][-query_entries:].astype(np.float64)
    # Under a uniform permutation, every pair (i, j) is equally likely.
    return float(np.degrees(angular_error(gaze[:, None], gaze_hat[None, :])).mean())


CHECKS = {"pixel_blind": pixel_blind_error, "permuted": permuted_error}


def pixel_checks(ablation: Ablation, persons: pd.DataFrame) -> pd.DataFrame:
    """Compare the network of every run with predictors that do not see the pixels.

    If the network is hardly better than these predictors, the data are too easy.

    Args:
        ablation: provides the codes.
        persons: errors of every test person (`runs.read_errors`).

    Returns:
        One row per tier, seed, dataset and check: error_deg (mean over people), unadapted_deg, ratio, people.
    """
    unadapted = persons[persons["k"] == 0].set_index(["tier", "seed", "dataset"])
    rows = []
    for tier, seed in ablation.runs():
        for dataset in ablation.datasets:
            if (tier, seed, dataset) in unadapted.index:
                tested = unadapted.loc[[(tier, seed, dataset)]].set_index("person")["error_deg"]
                rows += _checks_of_run(ablation, tier, seed, dataset, tested)
    return pd.DataFrame(rows)


def _checks_of_run(ablation: Ablation, tier: str, seed: int, dataset: str, tested: pd.Series) -> list[dict]:
    codes = CodeStore(ablation.paths.codes(tier, seed, dataset))
    errors: dict[str, list[float]] = {name: [] for name in CHECKS}
    for person in tested.index:
        arrays = codes[str(person)]
        for name, predictor in CHECKS.items():
            errors[name].append(predictor(arrays, ablation.query_entries))
    of_network = float(tested.mean())
    return [
        {"tier": tier, "seed": seed, "dataset": dataset, "check": name, "error_deg": float(np.mean(values))}
        | {"unadapted_deg": of_network, "ratio": float(np.mean(values)) / of_network, "people": len(values)}
        for name, values in errors.items()
    ]


def person_variance(ablation: Ablation, persons: pd.DataFrame) -> pd.DataFrame:
    """Decompose the baseline's squared error on all entries of the test people.

    Chen and Shi (arXiv 1905.04451) decompose the error of a subject-independent estimator into a bias for each person
    and a variance around it. Here, nested linear models of each person's residual decompose the variance further.

    Args:
        ablation: its first tier is the baseline.
        persons: errors of every test person (`runs.read_errors`).

    Returns:
        One row per data set: rms_deg, root mean square of pitch and yaw errors together; the share of each of
        COMPONENTS in the mean square; people. Means are over people and seeds.
    """
    rows = []
    for dataset in [d for d in ablation.datasets if d in set(persons["dataset"])]:
        names = sorted(set(persons.loc[persons["dataset"] == dataset, "person"]))
        found = []
        for seed in ablation.seeds:
            store = CodeStore(ablation.paths.codes(ablation.tiers[0], seed, dataset))
            found += [residual_squares(store[name]) for name in names]
        finite = [squares for squares in found if np.isfinite(squares).all()]
        squares = np.mean(finite, axis=0) if finite else np.full(len(COMPONENTS), np.nan)
        shares = np.append(-np.diff(squares), squares[-1]) / squares[0]
        row = {"dataset": dataset, "rms_deg": float(squares[0] ** 0.5)} | dict(zip(COMPONENTS, shares, strict=True))
        rows.append(row | {"people": len(names)})
    return pd.DataFrame(rows)


def residual_squares(codes: Mapping[str, NDArray]) -> NDArray[np.float64]:
    """Compute one person's squared error without a model and after fitting the first, the second and the third model.

    Each fit also removes some noise by chance, so sums of squares are divided by the degrees of freedom.

    Args:
        codes: codes of one person: gaze and head (N, 2) radians, gaze_hat (N, 3).

    Returns:
        (4,) squared degrees, pitch and yaw together, unbiased; nan for a person with too few entries.
    """
    hat = pitchyaw_from_vector(codes["gaze_hat"].astype(np.float64))
    residual = np.degrees(pitchyaw_difference(codes["gaze"].astype(np.float64), hat))
    one = np.ones((len(hat), 1))
    everything = np.column_stack([one, hat, codes["head"].astype(np.float64)])
    totals = np.zeros(len(COMPONENTS))
    for axis in range(2):
        for number, design in enumerate((one[:, :0], one, np.column_stack([one, hat[:, axis]]), everything)):
            dof = len(hat) - design.shape[1]
            if dof < 1:
                return np.full(len(COMPONENTS), np.nan)
            coefficients = np.linalg.lstsq(design, residual[:, axis], rcond=None)[0]
            totals[number] += np.sum((residual[:, axis] - design @ coefficients) ** 2) / dof
    return totals
