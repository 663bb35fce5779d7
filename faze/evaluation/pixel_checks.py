"""Checks that the network looks at the pixels: predictors that it must beat by far, or the data are too easy.

Both err on the same query entries as the network does unadapted.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.base.result_paths import DATASETS
from faze.data.store.codes import CodeStore
from faze.evaluation.runs import Ablation


def unadapted_error(codes: Mapping[str, NDArray], query_entries: int) -> float:
    """Compute the mean error of the trained gaze head on a person's query, degrees.

    Args:
        codes: of one person; gaze (N, 2) radians, gaze_hat (N, 3).
        query_entries: how many of the last entries are the query.
    """
    gaze, gaze_hat = _query(codes, query_entries)
    return float(np.degrees(angular_error(gaze, gaze_hat)).mean())


def pixel_blind_error(codes: Mapping[str, NDArray], query_entries: int) -> float:
    """Fit a linear guess from head pose alone on the person's calibration pool; return its mean error, degrees.

    It sees no pixel but knows more than the network: the person's mean gaze and how it goes with the head.

    Args:
        codes: of one person; gaze and head (N, 2) radians.
        query_entries: how many of the last entries are the query; the rest is the pool.
    """
    gaze, head = codes["gaze"].astype(np.float64), codes["head"].astype(np.float64)
    design = np.column_stack([np.ones(len(head)), head])  # (N, 3)
    weights = np.linalg.lstsq(design[:-query_entries], gaze[:-query_entries], rcond=None)[0]  # (3, 2)
    guess = design[-query_entries:] @ weights
    errors = angular_error(vector_from_pitchyaw(guess), vector_from_pitchyaw(gaze[-query_entries:]))
    return float(np.degrees(errors).mean())


def permuted_error(codes: Mapping[str, NDArray], query_entries: int) -> float:
    """Compute the mean error over all permutations of a query's strips against its labels, degrees.

    Args:
        codes: of one person; gaze (N, 2) radians, gaze_hat (N, 3).
        query_entries: how many of the last entries are the query.
    """
    gaze, gaze_hat = _query(codes, query_entries)
    # A uniform permutation brings every pair (i, j) together equally often.
    return float(np.degrees(angular_error(gaze[:, None], gaze_hat[None, :])).mean())


def _query(codes: Mapping[str, NDArray], query_entries: int) -> tuple[NDArray, NDArray]:
    """Take true and predicted gaze of a person's query, (Q, 3) each."""
    gaze = vector_from_pitchyaw(codes["gaze"][-query_entries:].astype(np.float64))
    return gaze, codes["gaze_hat"][-query_entries:].astype(np.float64)


CHECKS = {"pixel_blind": pixel_blind_error, "permuted": permuted_error}


def pixel_checks(ablation: Ablation, persons: pd.DataFrame) -> pd.DataFrame:
    """Compute the errors of the pixel-blind predictors in every run, beside the network's own.

    Args:
        ablation: whose codes are read.
        persons: errors of every test person (`runs.read_errors`): who is tested, and the error to compare with.

    Returns:
        One row per tier, seed, dataset and check: error_deg (mean over people), unadapted_deg, ratio, people.

    Raises:
        UserError: the codes do not give the unadapted error that adapt has found, or lack a person.
    """
    unadapted = persons[persons["k"] == 0].set_index(["tier", "seed", "dataset"])
    rows = []
    for tier, seed in ablation.runs():
        for dataset in DATASETS:
            if (tier, seed, dataset) in unadapted.index:
                tested = unadapted.loc[[(tier, seed, dataset)]].set_index("person")["error_deg"]
                rows += _checks_of_run(ablation, tier, seed, dataset, tested)
    return pd.DataFrame(rows)


def _checks_of_run(ablation: Ablation, tier: str, seed: int, dataset: str, tested: pd.Series) -> list[dict]:
    path = ablation.paths.codes(tier, seed, dataset)
    codes, query = CodeStore(path, default_split="test"), ablation.query_entries
    errors: dict[str, list[float]] = {name: [] for name in CHECKS}
    for person, found in tested.items():
        arrays = codes[str(person)]
        if abs(unadapted_error(arrays, query) - found) > 0.01:
            raise UserError(
                f"{path}: the unadapted error of person {person} is not the one in the few-shot files, so they are "
                "of different trainings or query sizes; run adapt again"
            )
        for name, predictor in CHECKS.items():
            errors[name].append(predictor(arrays, query))
    own = float(tested.mean())
    return [
        {
            "tier": tier,
            "seed": seed,
            "dataset": dataset,
            "check": name,
            "error_deg": float(np.mean(values)),
            "unadapted_deg": own,
            "ratio": float(np.mean(values)) / own,
            "people": len(values),
        }
        for name, values in errors.items()
    ]
