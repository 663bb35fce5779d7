"""Measurements of redirected strips and of their controls, computed from the rows of `redirected_pairs.parquet`.

| number | mean over a person's pairs |
|---|---|
| error_deg | angle between the requested and the estimated direction (ST-ED, section 4.2: against the label) |
| to_real_deg | angle between the directions estimated in the real strip b and in this strip (as in GazeNeRF) |
| gain | slope of the least-squares fit turned = gain x requested + bias, with one gain and two biases for both axes |

`requested` is the change of pitch and yaw from the label of strip a to that of strip b. `turned` is the change of the
estimate from strip a, decoded without turning, to the redirected strip. The gain of real strips is that of the
estimator: estimate = gain x label + bias.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.geometry import mean_angle_deg, pitchyaw_difference, vector_from_pitchyaw

REDIRECTED = "redirected"
FACTORS = ("gaze", "head")
SIMILARITIES = ("l1", "psnr", "ssim", "ms_ssim")
ERRORS = tuple(f"{factor}_error_deg" for factor in FACTORS)
GAINS = tuple(f"{factor}_gain" for factor in FACTORS)
NUMBERS = (*ERRORS, *(f"{factor}_to_real_deg" for factor in FACTORS), *GAINS, *SIMILARITIES)


def by_variant(pairs: pd.DataFrame) -> pd.DataFrame:
    """Average each person's pairs for each variant: dataset, person, variant and NUMBERS.

    A gain is nan for strips that are not turned, and if all requested changes are equal.
    """
    found = []
    for (dataset, person), rows in pairs.groupby(["dataset", "person"], sort=False):
        variants = dict(iter(rows.groupby("variant", sort=False)))
        for variant, strips in variants.items():
            numbers = {"dataset": dataset, "person": person, "variant": variant, **strips[[*SIMILARITIES]].mean()}
            for factor in FACTORS:
                own, wanted, seen = (_angles(strips, kind, factor) for kind in ("own", "wanted", "seen"))
                real, not_turned = (_angles(variants[of], "seen", factor) for of in ("real", "not_turned"))
                direction = vector_from_pitchyaw(seen)
                numbers[f"{factor}_error_deg"] = mean_angle_deg(direction, vector_from_pitchyaw(wanted))
                numbers[f"{factor}_to_real_deg"] = mean_angle_deg(direction, vector_from_pitchyaw(real))
                if variant == REDIRECTED:
                    wanted, seen = pitchyaw_difference(wanted, own), pitchyaw_difference(seen, not_turned)
                centred = wanted - wanted.mean(axis=0)
                known = variant != "not_turned" and centred.any()
                numbers[f"{factor}_gain"] = np.sum(centred * seen) / np.sum(centred**2) if known else np.nan
            found.append(numbers)
    return pd.DataFrame(found)


def _angles(strips: pd.DataFrame, kind: str, factor: str) -> NDArray:
    """Return (N, 2) pitch and yaw, radians."""
    return strips[[f"{kind}_{factor}_pitch", f"{kind}_{factor}_yaw"]].to_numpy(np.float64)
