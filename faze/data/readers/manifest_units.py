"""Find numbers of a manifest that are in another unit than their column's name states."""

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.readers.manifest_columns import GAZE_RAD, HEAD_ROTATION, TARGETS
from faze.data.readers.manifest_table import Table

_M_MM, _CM_MM, _FEWEST = 3.0, 30.0, 10  # targets no farther than this are in m or cm; of so many different ones
_FARTHEST_MM = 1e5
HEAD_MM = (100.0, 10_000.0)  # distance of a head from its camera


def check_angles(table: Table) -> None:
    """Refuse a file whose columns in radians contain degrees.

    One such value makes all others doubtful, since a small angle in degrees could also be one in radians.

    Raises:
        UserError: The message contains line, column and remedy.
    """
    pitch, yaw = TARGETS[GAZE_RAD]
    for name, most in ((pitch, np.pi / 2), (yaw, np.pi)):
        values = table.numbers.get(name, np.empty(0))
        for row in np.flatnonzero(np.abs(values) > most + 1e-6)[:1].tolist():
            raise UserError(
                f"{table.where(row, name)}: {values[row]:g} is more than {most:.2f} rad: if the column is in degrees, "
                f"call it {name.removesuffix('rad')}deg"
            )
    if not table.layout.has_pose:
        return
    angles = np.linalg.norm(table.array(*HEAD_ROTATION), axis=1)
    for row in np.flatnonzero(angles > 2 * np.pi)[:1].tolist():
        raise UserError(
            f"{table.where(row)}: {', '.join(HEAD_ROTATION)} turn the head by {angles[row]:.1f} rad, more than a full "
            "turn: write a rotation vector in radians (OpenCV's rvec), not degrees"
        )


def check_targets_mm(table: Table, targets_mm: NDArray) -> None:
    """Refuse a file whose targets (N, 3) are in m or cm instead of mm.

    Raises:
        UserError: The message contains line and remedy.
    """
    distances = np.linalg.norm(targets_mm, axis=1)
    known = np.isfinite(distances)
    if not known.any():
        return
    row, most = int(np.nanargmax(distances)), float(np.nanmax(distances))
    if most > _FARTHEST_MM:
        raise UserError(
            f"{table.where(row)}: the gaze target is {most / 1000:,.0f} m from the camera: write targets in mm"
        )
    if 0 < most < _M_MM or (0 < most < _CM_MM and len(np.unique(targets_mm[known], axis=0)) >= _FEWEST):
        unit, factor = ("m", 1000) if most < _M_MM else ("cm", 10)
        raise UserError(
            f"{table.where(row)}: the farthest gaze target of the file is {most:.2g} mm from the camera: the targets "
            f"seem to be in {unit}; multiply them by {factor}"
        )


def explain_head_distances(translations_mm: NDArray) -> list[str]:
    """Explain why the positions (n, 3) of heads cannot be in mm; "" for each one that can."""
    distances = np.linalg.norm(translations_mm, axis=1)
    reasons = [""] * len(distances)
    for row in np.flatnonzero((distances < HEAD_MM[0]) | (distances > HEAD_MM[1])).tolist():
        unit = "m" if distances[row] < 10 else "cm" if distances[row] < HEAD_MM[0] else "µm"
        reasons[row] = f"the head is {distances[row]:.3g} mm from the camera: is its position in {unit}?"
    return reasons
