"""Measurements of redirected strips, and checks that the network uses the pixels."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.geometry import mean_angle_deg, pitchyaw_difference, vector_from_pitchyaw
from faze.base.result_paths import ResultPaths
from faze.config.stage_config import Resolved
from faze.data.codes import CodeStore

REDIRECTED = "redirected"
FACTORS = ("gaze", "head")
SIMILARITIES = ("l1", "psnr", "ssim", "ms_ssim")
ERRORS = tuple(f"{factor}_error_deg" for factor in FACTORS)
GAINS = tuple(f"{factor}_gain" for factor in FACTORS)
NUMBERS = (*ERRORS, *GAINS, *SIMILARITIES)


def by_variant(pairs: pd.DataFrame) -> pd.DataFrame:
    """Average each person's measurements by strip variant; return dataset, person, variant and NUMBERS.

    `error_deg` is the mean angle between the estimated and the requested direction (the label; ST-ED, section 4.2).
    `gain` is the slope of a least-squares fit with a bias per axis. Its x is the difference between the labels of
    strips a and b. Its y is the difference between the estimates for strip a, decoded without turning, and for the
    redirected strip. For real strips, the gain is the estimator's own. Unturned or equally turned strips have no gain.
    """
    found = []
    for (dataset, person), rows in pairs.groupby(["dataset", "person"], sort=False):
        variants = dict(iter(rows.groupby("variant", sort=False)))
        for variant, strips in variants.items():
            numbers = {"dataset": dataset, "person": person, "variant": variant, **strips[[*SIMILARITIES]].mean()}
            for factor in FACTORS:
                columns = [f"{kind}_{factor}_{axis}" for kind in ("own", "wanted", "seen") for axis in ("pitch", "yaw")]
                own, wanted, seen = strips[columns].to_numpy().reshape(-1, 3, 2).swapaxes(0, 1)
                numbers[f"{factor}_error_deg"] = mean_angle_deg(*map(vector_from_pitchyaw, (seen, wanted)))
                if variant == REDIRECTED:
                    not_turned = variants["not_turned"][columns[4:]].to_numpy()
                    wanted, seen = pitchyaw_difference(wanted, own), pitchyaw_difference(seen, not_turned)
                centred = wanted - wanted.mean(axis=0)
                if variant != "not_turned" and centred.any():
                    numbers[f"{factor}_gain"] = np.sum(centred * seen) / np.sum(centred**2)
            found.append(numbers)
    return pd.DataFrame(found, columns=["dataset", "person", "variant", *NUMBERS])


def pixel_checks(paths: ResultPaths, config: Resolved, persons: pd.DataFrame) -> pd.DataFrame:
    """Compare the mean unadapted error of every tier, seed and data set with the means of `blind_errors`."""
    found, unadapted = [], persons[(persons["k"] == 0) & persons["tier"].isin(config.run.tiers)]
    for run, rows in unadapted.groupby(["tier", "seed", "dataset"], sort=False):
        store, unadapted_deg = CodeStore(paths.codes(*run)), rows["error_deg"].mean()
        errors = pd.DataFrame([blind_errors(store[person], config.fewshot.query_entries) for person in rows["person"]])
        found += [[*run, check, error, unadapted_deg, error / unadapted_deg] for check, error in errors.mean().items()]
    return pd.DataFrame(found, columns=["tier", "seed", "dataset", "check", "error_deg", "unadapted_deg", "ratio"])


def blind_errors(codes: Mapping[str, NDArray], query_entries: int) -> dict[str, float]:
    """Compute the errors, in degrees, of predictors that ignore the pixels of a person's last entries.

    `pixel_blind` is a regression of gaze on head pose, fitted to the other entries. `permuted` is the mean error over
    all permutations of the network's estimates.
    """
    gaze, head, gaze_hat = (codes[name].astype(np.float64) for name in ("gaze", "head", "gaze_hat"))
    design, wanted = np.column_stack([np.ones(len(head)), head]), vector_from_pitchyaw(gaze[-query_entries:])
    coefficients = np.linalg.lstsq(design[:-query_entries], gaze[:-query_entries], rcond=None)[0]
    estimate = vector_from_pitchyaw(design[-query_entries:] @ coefficients)
    permuted = mean_angle_deg(wanted[:, None], gaze_hat[-query_entries:])  # every pair (i, j) is equally likely
    return {"pixel_blind": mean_angle_deg(estimate, wanted), "permuted": permuted}
