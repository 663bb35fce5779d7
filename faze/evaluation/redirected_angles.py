"""Measurements of redirected strips and of their controls: means over a person's pairs (`redirected_pairs.parquet`).

| number | meaning |
|---|---|
| error_deg | angle between the requested and the estimated direction (ST-ED, section 4.2: against the label) |
| gain | least squares: turned = gain x requested + bias, with one gain for both axes and a bias for each |

`requested` is the change from the labels of strip a to those of strip b, `turned` that of the estimate from strip a,
decoded without turning, to the redirected strip. The gain of real strips is that of the estimator.
"""

import numpy as np
import pandas as pd

from faze.base.geometry import mean_angle_deg, pitchyaw_difference, vector_from_pitchyaw

REDIRECTED = "redirected"
FACTORS = ("gaze", "head")
SIMILARITIES = ("l1", "psnr", "ssim", "ms_ssim")
ERRORS = tuple(f"{factor}_error_deg" for factor in FACTORS)
GAINS = tuple(f"{factor}_gain" for factor in FACTORS)
NUMBERS = (*ERRORS, *GAINS, *SIMILARITIES)


def by_variant(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return dataset, person, variant and NUMBERS; strips that are not turned, or all equally, have no gain."""
    found = []
    for (dataset, person), rows in pairs.groupby(["dataset", "person"], sort=False):
        variants = dict(iter(rows.groupby("variant", sort=False)))
        for variant, strips in variants.items():
            numbers = {"dataset": dataset, "person": person, "variant": variant, **strips[[*SIMILARITIES]].mean()}
            for factor in FACTORS:
                columns = [f"{kind}_{factor}_{axis}" for kind in ("own", "wanted", "seen") for axis in ("pitch", "yaw")]
                own, wanted, seen = strips[columns].to_numpy().reshape(-1, 3, 2).swapaxes(0, 1)
                error_deg = mean_angle_deg(vector_from_pitchyaw(seen), vector_from_pitchyaw(wanted))
                numbers[f"{factor}_error_deg"] = error_deg
                if variant == REDIRECTED:
                    not_turned = variants["not_turned"][columns[4:]].to_numpy()
                    wanted, seen = pitchyaw_difference(wanted, own), pitchyaw_difference(seen, not_turned)
                centred = wanted - wanted.mean(axis=0)
                if variant != "not_turned" and centred.any():
                    numbers[f"{factor}_gain"] = np.sum(centred * seen) / np.sum(centred**2)
            found.append(numbers)
    return pd.DataFrame(found, columns=["dataset", "person", "variant", *NUMBERS])
