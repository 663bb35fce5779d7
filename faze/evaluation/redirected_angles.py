"""How far the eyes and the head of redirected strips turn, as the estimator sees them, beside their controls.

From the rows of `redirected_pairs.parquet` (`faze.redirection.judging`). Angles between directions are of vectors; what
turns along an axis is told in pitch and yaw. All is float64; degrees.

| number | of one person, a mean over pairs |
|---|---|
| error | angle from the wanted direction to the one that the estimator sees (ST-ED, section 4.2: against the label) |
| to_real | angle from the direction that it sees in real strip b to the one that it sees (as GazeNeRF: against E(b)) |
| gain, bias | least squares: turned = gain x asked + bias, one gain and a bias of each axis; variants gaze, head |
| gain_real, gain_oracle | the estimator's own: the same of seen = gain x label + bias in strips that have the label |
| moved | angle from the direction seen in strip a decoded as it is, where one code was turned aside |

`turned` is the change in what is seen from strip a decoded as it is, `asked` is that of its labels.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import angular_error, pitchyaw_difference, vector_from_pitchyaw
from faze.evaluation.parquet_file import NUMBER, TEXT, WHOLE, read_table

FACTORS = ("gaze", "head")
CONTROLS = ("real", "oracle", "other", "still")
GAIN_CONTROLS = ("real", "oracle")
LIKENESS = ("l1", "psnr", "ssim", "ms_ssim")
BINS_DEG = (0.0, 10.0, 20.0, 30.0, 180.0)
ERRORS = tuple(f"{factor}_error_deg" for factor in FACTORS)
# Numbers of one person: of each variant, and of the whole.
VARIANT_NUMBERS = (*(f"{factor}_{number}_deg" for factor in FACTORS for number in ("error", "to_real")), *LIKENESS)
GAINS = tuple(f"{factor}_gain{of}" for factor in FACTORS for of in ("", "_real"))  # of the network, of the estimator
TURN_NUMBERS = tuple(
    f"{factor}_{number}"
    for factor in FACTORS
    for number in ("gain", "bias_pitch_deg", "bias_yaw_deg", *(f"gain_{control}" for control in GAIN_CONTROLS))
)
MOVED_NUMBERS = tuple(f"{moved}_by_{turned}_deg" for turned in FACTORS for moved in FACTORS)


def read_pairs(path: Path) -> pd.DataFrame:
    """Read the pairs of a run.

    Raises:
        UserError: the file cannot be read, lacks a column, or holds angles that are not numbers.
    """
    angles = [f"{kind}_{factor}_{axis}" for kind in ("own", "wanted", "seen") for factor in FACTORS for axis in _AXES]
    columns = dict.fromkeys(("dataset", "person", "variant"), TEXT) | {"pair": WHOLE}
    rows = read_table(path, columns | dict.fromkeys((*angles, *LIKENESS), NUMBER), "delete it and run redirect again")
    if rows.duplicated(["dataset", "person", "pair", "variant"]).any():
        raise UserError(f"{path}: holds a pair of a person twice; delete it and run redirect again")
    if not np.isfinite(rows[angles].to_numpy()).all():
        raise UserError(f"{path}: holds an angle that is not a number; look into the log of redirect")
    return rows


def by_variant(pairs: pd.DataFrame) -> pd.DataFrame:
    """Average each person's pairs, per variant.

    Returns:
        Columns dataset, person, variant, pairs and VARIANT_NUMBERS; to_real is nan where labels of b are not wanted.
    """
    pairs = pairs.assign(**errors(pairs))
    groups = pairs.groupby(["dataset", "person", "variant"], sort=False)
    return groups[list(VARIANT_NUMBERS)].mean().assign(pairs=groups.size()).reset_index()


def errors(pairs: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Compute of each row the angles `error` and `to_real` of gaze and head, degrees."""
    keys = ["dataset", "person", "pair"]
    real = pairs[pairs["variant"] == "real"].set_index(keys)
    of_real = real.reindex(pd.MultiIndex.from_frame(pairs[keys]))
    wants_b = pairs["variant"].isin([*CONTROLS, "both", "own"]).to_numpy()
    found = {}
    for factor in FACTORS:
        seen = _directions(pairs, "seen", factor)
        found[f"{factor}_error_deg"] = _angle(seen, _directions(pairs, "wanted", factor))
        found[f"{factor}_to_real_deg"] = np.where(wants_b, _angle(seen, _directions(of_real, "seen", factor)), np.nan)
    return found


def turning(pairs: pd.DataFrame) -> pd.DataFrame:
    """Compute of each person how far what was asked to turn turned, and what turned with it.

    Returns:
        Columns dataset, person, TURN_NUMBERS and MOVED_NUMBERS; a gain is nan where all that was asked is alike.
    """
    rows = []
    for (dataset, person), of_person in pairs.groupby(["dataset", "person"], sort=False):
        by = {variant: rows.sort_values("pair") for variant, rows in of_person.groupby("variant")}
        found = {"dataset": dataset, "person": person}
        for factor in FACTORS:
            asked, turned = (
                _change(by[factor], by[factor], "own", "wanted", factor),
                _change(by["still"], by[factor], "seen", "seen", factor),
            )
            gain = found[f"{factor}_gain"] = _gain(asked, turned)
            bias = turned.mean(0) - gain * asked.mean(0)
            found |= {f"{factor}_bias_pitch_deg": bias[0], f"{factor}_bias_yaw_deg": bias[1]}
            for control in GAIN_CONTROLS:
                rows_of = by.get(control, of_person[:0])
                found[f"{factor}_gain_{control}"] = _gain(*(_angles(rows_of, k, factor) for k in ("wanted", "seen")))
            for moved in FACTORS:
                before, after = (_directions(by[variant], "seen", moved) for variant in ("still", f"{factor}_aside"))
                found[f"{moved}_by_{factor}_deg"] = float(_angle(before, after).mean())
        rows.append(found)
    return pd.DataFrame(rows)


def by_angle(pairs: pd.DataFrame) -> pd.DataFrame:
    """Average errors by the angle that was asked, each person counting once.

    Returns:
        Columns dataset, factor, from_deg, to_deg, variant, error_deg, turned_deg (along what was asked; of the factor's
        own variant), asked_deg, people, pairs.
    """
    pairs = pairs.assign(**errors(pairs))
    still = pairs[pairs["variant"] == "still"].set_index(["dataset", "person", "pair"])
    parts = []
    for factor in FACTORS:
        some = pairs[pairs["variant"].isin([*CONTROLS, "both", "own", factor])]
        asked = _angle(_directions(some, "own", factor), _directions(some, "wanted", factor))
        before = still.reindex(pd.MultiIndex.from_frame(some[["dataset", "person", "pair"]]))
        wish, turned = _change(some, some, "own", "wanted", factor), _change(before, some, "seen", "seen", factor)
        length = np.linalg.norm(wish, axis=1)
        along = np.divide((wish * turned).sum(1), length, out=np.full(len(some), np.nan), where=length > 0)
        number = np.searchsorted(BINS_DEG, asked, side="right") - 1
        cells = pd.DataFrame(
            {
                **{name: some[name].to_numpy() for name in ("dataset", "person", "variant")},
                **{"bin": number, "error_deg": some[f"{factor}_error_deg"].to_numpy()},
                **{"turned_deg": along, "asked_deg": asked, "pairs": 1},
            }
        )
        keys = ["dataset", "variant", "bin"]
        people = cells.groupby([*keys, "person"], sort=False)
        means = people[["error_deg", "turned_deg", "asked_deg"]].mean().groupby(level=keys, sort=False).mean()
        counts = people["pairs"].sum().groupby(level=keys, sort=False).agg(people="size", pairs="sum")
        part = means.join(counts).reset_index().assign(factor=factor)
        edges = np.array(BINS_DEG)
        parts.append(part.assign(from_deg=edges[part["bin"]], to_deg=edges[part["bin"] + 1]).drop(columns="bin"))
    return pd.concat(parts, ignore_index=True).sort_values(["dataset", "factor", "variant", "from_deg"])


_AXES = ("pitch", "yaw")


def _angles(rows: pd.DataFrame, kind: str, factor: str) -> NDArray[np.float64]:
    """(N, 2) pitch, yaw in radians."""
    return rows[[f"{kind}_{factor}_{axis}" for axis in _AXES]].to_numpy(np.float64)


def _directions(rows: pd.DataFrame, kind: str, factor: str) -> NDArray[np.float64]:
    return vector_from_pitchyaw(_angles(rows, kind, factor))


def _angle(first: NDArray, second: NDArray) -> NDArray[np.float64]:
    return np.degrees(angular_error(first, second))


def _change(before: pd.DataFrame, after: pd.DataFrame, kind: str, then: str, factor: str) -> NDArray[np.float64]:
    """(N, 2) change of pitch and yaw, degrees."""
    return np.degrees(pitchyaw_difference(_angles(after, then, factor), _angles(before, kind, factor)))


def _gain(asked: NDArray, turned: NDArray) -> float:
    """Fit turned = gain x asked + bias, (N, 2) both, one gain for both axes, a bias each; nan where all are alike."""
    if not len(asked):
        return np.nan
    centred = asked - asked.mean(0)
    squares = np.square(centred).sum()
    return float((centred * (turned - turned.mean(0))).sum() / squares) if squares > 0 else np.nan
