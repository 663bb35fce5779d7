"""Measurements of redirected strips and of their controls, computed from the rows of `redirected_pairs.parquet`.

`faze.redirection.evaluator` describes the rows, `faze.redirection.pairs` the variants. All numbers are float64 means
over the pairs of one person, in degrees. Angles between directions are computed from their vectors.

| number | meaning |
|---|---|
| error | angle between the requested and the estimated direction (ST-ED, section 4.2: against the label) |
| to_real | angle between the directions estimated in the real strip b and in the redirected strip (as in GazeNeRF) |
| gain, bias | least squares: turned = gain x requested + bias, with one gain for both axes and a bias for each |
| gain_real, gain_rendered | gain of the estimator, from fitting estimate = gain x label + bias to these controls |

`requested` is the change from the labels of strip a to those of strip b; `turned` is the change in the estimate between
strip a, decoded without turning, and the redirected strip. Both changes are in pitch and yaw.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import angular_error, pitchyaw_difference, vector_from_pitchyaw
from faze.evaluation.parquet_file import NUMBER, TEXT, WHOLE, read_table

REDIRECTED = "redirected"
CONTROLS = ("real", "rendered", "not_turned")
GAIN_CONTROLS = ("real", "rendered")
FACTORS = ("gaze", "head")
SIMILARITIES = ("l1", "psnr", "ssim", "ms_ssim")
BINS_DEG = (0.0, 10.0, 20.0, 30.0, 180.0)
ERRORS = tuple(f"{factor}_error_deg" for factor in FACTORS)
VARIANT_NUMBERS = (*(f"{factor}_{number}_deg" for factor in FACTORS for number in ("error", "to_real")), *SIMILARITIES)
GAINS = tuple(f"{factor}_gain{of}" for factor in FACTORS for of in ("", "_real"))  # of the network, of the estimator
TURN_NUMBERS = tuple(
    f"{factor}_{number}"
    for factor in FACTORS
    for number in ("gain", "bias_pitch_deg", "bias_yaw_deg", *(f"gain_{control}" for control in GAIN_CONTROLS))
)

_KEYS = ["dataset", "person", "pair"]


def read_pairs(path: Path) -> pd.DataFrame:
    """Read the pairs of a run.

    Raises:
        UserError: the file cannot be read, lacks a column, or contains angles that are not finite.
    """
    angles = [column for kind in ("own", "wanted", "seen") for factor in FACTORS for column in _columns(kind, factor)]
    columns = dict.fromkeys(("dataset", "person", "variant"), TEXT) | {"pair": WHOLE}
    rows = read_table(
        path, columns | dict.fromkeys((*angles, *SIMILARITIES), NUMBER), "delete it and run redirect again"
    )
    if rows.duplicated([*_KEYS, "variant"]).any():
        raise UserError(f"{path}: contains a pair of a person twice; delete it and run redirect again")
    if not np.isfinite(rows[angles].to_numpy()).all():
        raise UserError(f"{path}: contains an angle that is not finite; see the log of redirect")
    return rows


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
            for control in GAIN_CONTROLS:
                some = by.get(control, of_person[:0])
                found[f"{factor}_gain_{control}"] = _gain(*(_angles(some, kind, factor) for kind in ("wanted", "seen")))
        rows.append(found)
    return pd.DataFrame(rows)


def by_angle(pairs: pd.DataFrame) -> pd.DataFrame:
    """Average errors in bins of the requested angle, weighting people equally.

    Returns:
        Columns dataset, factor, from_deg, to_deg, variant, error_deg, turned_deg (in the requested direction),
        asked_deg (the mean requested angle), people, pairs.
    """
    errors, keys = _errors(pairs), ["dataset", "variant", "bin"]
    parts = []
    for factor in FACTORS:
        wanted = _change(pairs, pairs, "own", "wanted", factor)
        turned = _change(_of_variant(pairs, "not_turned"), pairs, "seen", "seen", factor)
        length = np.linalg.norm(wanted, axis=1)
        along = np.divide((wanted * turned).sum(1), length, out=np.full(len(pairs), np.nan), where=length > 0)
        asked = _angle(_directions(pairs, "own", factor), _directions(pairs, "wanted", factor))
        cells = pairs[["dataset", "person", "variant"]].assign(
            bin=np.searchsorted(BINS_DEG, asked, side="right") - 1,
            error_deg=errors[f"{factor}_error_deg"],
            turned_deg=along,
            asked_deg=asked,
            pairs=1,
        )
        people = cells.groupby([*keys, "person"], sort=False)
        means = people[["error_deg", "turned_deg", "asked_deg"]].mean().groupby(level=keys, sort=False).mean()
        counts = people["pairs"].sum().groupby(level=keys, sort=False).agg(people="size", pairs="sum")
        part, edges = means.join(counts).reset_index().assign(factor=factor), np.array(BINS_DEG)
        parts.append(part.assign(from_deg=edges[part["bin"]], to_deg=edges[part["bin"] + 1]).drop(columns="bin"))
    order = list(dict.fromkeys(pairs["dataset"]))
    by = ["dataset", "factor", "variant", "from_deg"]
    return pd.concat(parts, ignore_index=True).sort_values(
        by, key=lambda column: column.map(order.index) if column.name == "dataset" else column
    )


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
    if not len(requested):
        return np.nan
    centred = requested - requested.mean(0)
    squares = np.square(centred).sum()
    return float((centred * (turned - turned.mean(0))).sum() / squares) if squares > 0 else np.nan
