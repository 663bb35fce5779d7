"""What a person's own error is made of: how much of the unadapted squared error a constant, a slope and more explain.

Chen and Shi (arXiv 1905.04451) part the error of a subject-independent estimator into a bias of each person and a
variance around it. Here the variance is parted further, by linear models of each person's residual that hold the one
before. A fit explains something by chance: each model's residual variance is taken per degree of freedom.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.geometry import pitchyaw_difference, pitchyaw_from_vector
from faze.base.result_paths import DATASETS
from faze.data.store.codes import CodeStore
from faze.evaluation.runs import Ablation

# A constant; the axis's own angle; head pose and the other axis, linearly; what is left.
PARTS = ("offset", "slope", "linear", "rest")


def person_variance(ablation: Ablation, persons: pd.DataFrame) -> pd.DataFrame:
    """Part the baseline's squared error on the test people, all their entries, in each data set.

    Args:
        ablation: its first tier is the baseline.
        persons: errors of every test person (`runs.read_errors`): whose codes are read.

    Returns:
        One row per data set: rms_deg, root mean square of pitch and yaw errors together; the share of PARTS in the mean
        square; people. Means over people and seeds.
    """
    rows = []
    for dataset in [d for d in DATASETS if d in set(persons["dataset"])]:
        names = sorted(set(persons.loc[persons["dataset"] == dataset, "person"]))
        found = []
        for seed in ablation.seeds:
            store = CodeStore(ablation.paths.codes(ablation.tiers[0], seed, dataset), default_split="test")
            found += [mean_squares(store[name]) for name in names]
        enough = [one for one in found if np.isfinite(one).all()]
        squares = np.mean(enough, axis=0) if enough else np.full(len(PARTS), np.nan)
        shares = np.append(-np.diff(squares), squares[-1]) / squares[0]
        rows.append(
            {"dataset": dataset, "rms_deg": float(squares[0] ** 0.5)}
            | dict(zip(PARTS, shares, strict=True))
            | {"people": len(names)}
        )
    return pd.DataFrame(rows)


def mean_squares(codes: Mapping[str, NDArray]) -> NDArray[np.float64]:
    """Compute what is left of one person's squared error without a model and with each but the last of PARTS.

    Args:
        codes: gaze and head (N, 2) radians, gaze_hat (N, 3).

    Returns:
        (4,) square degrees, pitch and yaw together, unbiased; NaN for a person with too few entries.
    """
    hat = pitchyaw_from_vector(codes["gaze_hat"].astype(np.float64))
    residual = np.degrees(pitchyaw_difference(codes["gaze"].astype(np.float64), hat))
    one = np.ones((len(hat), 1))
    everything = np.column_stack([one, hat, codes["head"].astype(np.float64)])
    totals = np.zeros(len(PARTS))
    for axis in range(2):
        for number, design in enumerate((one[:, :0], one, np.column_stack([one, hat[:, axis]]), everything)):
            totals[number] += _left(design, residual[:, axis])
    return totals


def _left(design: NDArray[np.float64], residual: NDArray[np.float64]) -> float:
    """Fit a linear model (N, p) to residuals (N,); what is left per degree of freedom."""
    freedom = len(residual) - design.shape[1]
    if freedom < 1:
        return np.nan
    weights = np.linalg.lstsq(design, residual, rcond=None)[0]
    return float(np.sum((residual - design @ weights) ** 2) / freedom)
