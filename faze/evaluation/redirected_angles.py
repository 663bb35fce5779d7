"""Measurements of redirected strips and of their controls, computed from the rows of `redirected_pairs.parquet`.

`faze.redirection.evaluator` describes the rows, `faze.redirection.pairs` the variants. Angles between directions are
computed from their vectors. All numbers are means over the pairs of one person:

| number | meaning |
|---|---|
| error_deg | angle between the requested and the estimated direction (ST-ED, section 4.2: against the label) |
| to_real_deg | angle between the directions estimated in the real strip b and in this strip (as in GazeNeRF) |
| gain | least squares: turned = gain x requested + bias, with one gain for both axes and a bias for each |

`requested` is the change from the labels of strip a to those of strip b; `turned` is the change in the estimate between
strip a, decoded without turning, and the redirected strip. Both changes are in pitch and yaw. The gain of real strips
is that of the estimator: estimate = gain x label + bias.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.geometry import angular_error, pitchyaw_difference, vector_from_pitchyaw

REDIRECTED = "redirected"
FACTORS = ("gaze", "head")
SIMILARITIES = ("l1", "psnr", "ssim", "ms_ssim")
ERRORS = tuple(f"{factor}_error_deg" for factor in FACTORS)
GAINS = tuple(f"{factor}_gain" for factor in FACTORS)
NUMBERS = (*ERRORS, *(f"{factor}_to_real_deg" for factor in FACTORS), *GAINS, *SIMILARITIES)
_PERSON = ["dataset", "person"]


def by_variant(pairs: pd.DataFrame) -> pd.DataFrame:
    """Average each person's pairs for each variant.

    Returns:
        Columns dataset, person, variant and NUMBERS. A gain is nan for strips that are not turned, and if all requested
        changes are equal.
    """
    variants, parts = dict(iter(pairs.set_index([*_PERSON, "pair"]).groupby("variant", sort=False))), []
    for variant, rows in variants.items():
        numbers, gains = rows[[*SIMILARITIES]].copy(), {}
        for factor in FACTORS:
            own, wanted, seen = (_angles(rows, kind, factor) for kind in ("own", "wanted", "seen"))
            not_turned, real = (_angles(variants[of].loc[rows.index], "seen", factor) for of in ("not_turned", "real"))
            for name, other in (("error", wanted), ("to_real", real)):
                angle = angular_error(vector_from_pitchyaw(seen), vector_from_pitchyaw(other))
                numbers[f"{factor}_{name}_deg"] = np.degrees(angle)
            requested, turned = wanted, seen
            if variant == REDIRECTED:
                requested, turned = pitchyaw_difference(wanted, own), pitchyaw_difference(seen, not_turned)
            gains[f"{factor}_gain"] = _gains(pd.DataFrame(requested, rows.index), turned)
        means = numbers.groupby(_PERSON, sort=False).mean().assign(variant=variant)
        parts.append(means.assign(**gains) if variant != "not_turned" else means)
    return pd.concat(parts).reset_index()


def _angles(rows: pd.DataFrame, kind: str, factor: str) -> NDArray[np.float64]:
    """Return (N, 2) pitch and yaw, radians."""
    return rows[[f"{kind}_{factor}_pitch", f"{kind}_{factor}_yaw"]].to_numpy(np.float64)


def _gains(requested: pd.DataFrame, turned: NDArray) -> pd.Series:
    """Fit turned = gain x requested + bias, both (N, 2), for each person; a gain that is undetermined is nan."""
    centred = requested - requested.groupby(_PERSON).transform("mean")
    products, squares = ((centred * other).groupby(_PERSON).sum().sum(axis=1) for other in (turned, centred))
    return products / squares
