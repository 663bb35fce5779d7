"""Measurements of redirected strips and of their controls, computed from the rows of `redirected_pairs.parquet`.

`faze.redirection.evaluator` describes the rows, `faze.redirection.pairs` the variants. All numbers are float64 means
over the pairs of one person, in degrees. Angles between directions are computed from their vectors.

| number | meaning |
|---|---|
| error | angle between the requested and the estimated direction (ST-ED, section 4.2: against the label) |
| to_real | angle between the directions estimated in the real strip b and in the redirected strip (as in GazeNeRF) |
| gain, bias | least squares: turned = gain x requested + bias, with one gain for both axes and a bias for each |
| gain_real | gain of the estimator, from fitting estimate = gain x label + bias to real strips |

`requested` is the change from the labels of strip a to those of strip b; `turned` is the change in the estimate between
strip a, decoded without turning, and the redirected strip. Both changes are in pitch and yaw.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.geometry import angular_error, pitchyaw_difference, vector_from_pitchyaw

REDIRECTED = "redirected"
CONTROLS = ("real", "not_turned")
FACTORS = ("gaze", "head")
SIMILARITIES = ("l1", "psnr", "ssim", "ms_ssim")
ERRORS = tuple(f"{factor}_error_deg" for factor in FACTORS)
VARIANT_NUMBERS = (*(f"{factor}_{number}_deg" for factor in FACTORS for number in ("error", "to_real")), *SIMILARITIES)
GAINS = tuple(f"{factor}_gain{of}" for factor in FACTORS for of in ("", "_real"))  # of the network, of the estimator
TURN_NUMBERS = tuple(
    f"{factor}_{number}" for factor in FACTORS for number in ("gain", "bias_pitch_deg", "bias_yaw_deg", "gain_real")
)

_KEYS = ["dataset", "person", "pair"]


def by_variant(pairs: pd.DataFrame) -> pd.DataFrame:
    """Average each person's pairs for each variant.

    Returns:
        Columns dataset, person, variant, pairs and VARIANT_NUMBERS.
    """
    groups = pairs.assign(**_errors(pairs)).groupby(["dataset", "person", "variant"], sort=False)
    return groups[list(VARIANT_NUMBERS)].mean().assign(pairs=groups.size()).reset_index()


def turning(pairs: pd.DataFrame) -> pd.DataFrame:
    """Fit how many degrees each person's gaze and head turned per requested degree.

    Returns:
        Columns dataset, person and TURN_NUMBERS. A gain is nan if all requested changes are equal.
    """
    rows = []
    for (dataset, person), of_person in pairs.groupby(["dataset", "person"], sort=False):
        by = {variant: some.sort_values("pair") for variant, some in of_person.groupby("variant")}
        redirected = by[REDIRECTED]
        found = {"dataset": dataset, "person": person}
        for factor in FACTORS:
            requested = _change(redirected, redirected, "own", "wanted", factor)
            turned = _change(by["not_turned"], redirected, "seen", "seen", factor)
            gain = found[f"{factor}_gain"] = _gain(requested, turned)
            bias = turned.mean(0) - gain * requested.mean(0)
            found |= {f"{factor}_bias_pitch_deg": bias[0], f"{factor}_bias_yaw_deg": bias[1]}
            found[f"{factor}_gain_real"] = _gain(*(_angles(by["real"], kind, factor) for kind in ("wanted", "seen")))
        rows.append(found)
    return pd.DataFrame(rows)


def _errors(pairs: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Compute `error` and `to_real` for gaze and head in each row, degrees."""
    real, found = _of_variant(pairs, "real"), {}
    for factor in FACTORS:
        seen = _directions(pairs, "seen", factor)
        found[f"{factor}_error_deg"] = _angle(seen, _directions(pairs, "wanted", factor))
        found[f"{factor}_to_real_deg"] = _angle(seen, _directions(real, "seen", factor))
    return found


def _of_variant(pairs: pd.DataFrame, variant: str) -> pd.DataFrame:
    """Return, for each row, the row that has the same pair and the given variant."""
    return pairs[pairs["variant"] == variant].set_index(_KEYS).reindex(pd.MultiIndex.from_frame(pairs[_KEYS]))


def _columns(kind: str, factor: str) -> list[str]:
    return [f"{kind}_{factor}_{axis}" for axis in ("pitch", "yaw")]


def _angles(rows: pd.DataFrame, kind: str, factor: str) -> NDArray[np.float64]:
    """Return (N, 2) pitch and yaw, radians."""
    return rows[_columns(kind, factor)].to_numpy(np.float64)


def _directions(rows: pd.DataFrame, kind: str, factor: str) -> NDArray[np.float64]:
    return vector_from_pitchyaw(_angles(rows, kind, factor))


def _angle(first: NDArray, second: NDArray) -> NDArray[np.float64]:
    return np.degrees(angular_error(first, second))


def _change(before: pd.DataFrame, after: pd.DataFrame, kind: str, then: str, factor: str) -> NDArray[np.float64]:
    """Return the (N, 2) changes in pitch and yaw, degrees."""
    return np.degrees(pitchyaw_difference(_angles(after, then, factor), _angles(before, kind, factor)))


def _gain(requested: NDArray, turned: NDArray) -> float:
    """Fit turned = gain x requested + bias, both (N, 2); return the gain, nan if it is undetermined."""
    centred = requested - requested.mean(0)
    squares = np.square(centred).sum()
    return float((centred * (turned - turned.mean(0))).sum() / squares) if squares > 0 else np.nan
