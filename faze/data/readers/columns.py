"""The columns of a manifest: their names, and which of them belong together (docs/how-to/own-frames.md)."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faze.base.errors import UserError

INTRINSICS = ("fx_px", "fy_px", "cx_px", "cy_px")
LENS = ("k1", "k2", "p1", "p2")  # k3 may follow
POSE = ("head_rx", "head_ry", "head_rz", "head_x_mm", "head_y_mm", "head_z_mm")
# The camera and the target are each described by exactly one of these groups of columns.
CAMERAS: Mapping[str, Sequence[str]] = {"file": ("camera",), "columns": INTRINSICS, "hfov_deg": ("hfov_deg",)}
TARGETS: Mapping[str, Sequence[str]] = {
    "mm": ("target_x_mm", "target_y_mm", "target_z_mm"),
    "px": ("target_x_px", "target_y_px"),
    "rad": ("gaze_pitch_rad", "gaze_yaw_rad"),
    "deg": ("gaze_pitch_deg", "gaze_yaw_deg"),
}
TEXTS = ("image", "person", "split", "camera", "screen", "face_model", "session", "time_s")
NUMBERS = (*INTRINSICS, *LENS, "k3", "hfov_deg", *(name for names in TARGETS.values() for name in names), *POSE)
_ALIKE = 0.8  # difflib's ratio above which a name resembles another one


@dataclass(frozen=True)
class Columns:
    """The columns that a manifest has."""

    used: tuple[str, ...]
    camera: str  # key of CAMERAS
    target: str  # key of TARGETS
    posed: bool  # whether it states head poses


def check_header(header: Sequence[str], where: str) -> Columns:
    """Check that columns are complete and unambiguous, given their names in lower case, and file and line.

    Raises:
        UserError: A column is missing, occurs twice, or resembles a known one; or there are two descriptions of the
            camera or of the target.
    """
    known = (*TEXTS, *NUMBERS)
    for name in header:
        if name in known and header.count(name) > 1:
            raise UserError(f"{where}: two columns are called {name!r}: rename or remove one of them")
        alike = [other for other in difflib.get_close_matches(name, known, 3, _ALIKE) if other not in header]
        if name not in known and alike and alike[0] not in name.split("_"):  # camera_id is no camera
            raise UserError(
                f"{where}: unknown column {name!r}: did you mean {alike[0]!r}? If so, convert the values if necessary, "
                "and rename it; if not, choose another name"
            )
    for name in ("image", "person"):
        if name not in header:
            raise UserError(f"{where}: has no column {name!r}; the columns are {', '.join(header)[:300]}")
    camera = _find_group(header, CAMERAS, "the camera", where)
    target = _find_group(header, TARGETS, "the gaze target", where)
    _is_complete(header, LENS, where)
    if camera != "columns" and set(LENS) & set(header):
        raise UserError(f"{where}: {', '.join(LENS)} belong to {', '.join(INTRINSICS)}, which are missing")
    return Columns(tuple(name for name in header if name in known), camera, target, _is_complete(header, POSE, where))


def _find_group(header: Sequence[str], groups: Mapping[str, Sequence[str]], what: str, where: str) -> str:
    """Return the key of the only group that has columns in the header, and check that it is complete."""
    found = [key for key, names in groups.items() if set(names) & set(header)]
    if not found:
        choices = "; or ".join(", ".join(names) for names in groups.values())
        raise UserError(f"{where}: has no columns for {what}: add {choices}")
    if len(found) > 1:
        columns = " and ".join(next(name for name in groups[key] if name in header) for key in found)
        raise UserError(f"{where}: {columns} describe {what} in two ways: keep one of them")
    _is_complete(header, groups[found[0]], where)
    return found[0]


def _is_complete(header: Sequence[str], names: Sequence[str], where: str) -> bool:
    """Return whether the header has all of the names; refuse a part of them."""
    missing = [name for name in names if name not in header]
    if missing and len(missing) < len(names):
        present = ", ".join(name for name in names if name in header)
        raise UserError(f"{where}: has {present}, but not {', '.join(missing)}: add the missing columns")
    return not missing
