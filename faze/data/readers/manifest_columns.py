"""The columns of a manifest: their names, which of them belong together, and what unknown names may mean."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faze.base.errors import UserError

INTRINSICS = ("fx_px", "fy_px", "cx_px", "cy_px")
LENS = ("k1", "k2", "p1", "p2")  # k3 may follow
HEAD_ROTATION, HEAD_POSITION = ("head_rx", "head_ry", "head_rz"), ("head_x_mm", "head_y_mm", "head_z_mm")
POSE = (*HEAD_ROTATION, *HEAD_POSITION)
# The camera and the target are each described by exactly one of these groups of columns.
CAMERA_FILE, CAMERA_COLUMNS, FIELD_OF_VIEW = "file", "columns", "hfov_deg"
CAMERAS: Mapping[str, tuple[str, ...]] = {
    CAMERA_FILE: ("camera",),
    CAMERA_COLUMNS: INTRINSICS,
    FIELD_OF_VIEW: ("hfov_deg",),
}
POINT_MM, POINT_PX, GAZE_RAD, GAZE_DEG = "mm", "px", "rad", "deg"
TARGETS: Mapping[str, tuple[str, ...]] = {
    POINT_MM: ("target_x_mm", "target_y_mm", "target_z_mm"),
    POINT_PX: ("target_x_px", "target_y_px"),
    GAZE_RAD: ("gaze_pitch_rad", "gaze_yaw_rad"),
    GAZE_DEG: ("gaze_pitch_deg", "gaze_yaw_deg"),
}
TEXTS = ("image", "person", "split", "camera", "screen", "face_model", "session")
NUMBERS = (
    *INTRINSICS,
    *LENS,
    "k3",
    "hfov_deg",
    *(name for group in TARGETS.values() for name in group),
    *POSE,
    "time_s",
)
_KNOWN = (*TEXTS, *NUMBERS)
_UNITS = ("mm", "cm", "m", "um", "in", "inch", "px", "pt", "rad", "deg", "s", "ms", "us")
_ALIKE = 0.8  # difflib's ratio above which a name resembles another one


@dataclass(frozen=True)
class Layout:
    """The columns that a manifest has."""

    camera: str  # key of CAMERAS
    target: str  # key of TARGETS
    lens: tuple[str, ...]  # columns with distortion coefficients; (): no distortion
    has_pose: bool
    used: tuple[str, ...]  # columns that faze reads
    ignored: tuple[str, ...]  # columns that faze does not know


def check_header(header: Sequence[str], where: str) -> Layout:
    """Check that the columns of a manifest are complete and unambiguous.

    Args:
        header: Names of the columns, in lower case.
        where: File and line, for the message.

    Raises:
        UserError: A column is missing, occurs twice, has an unknown unit or resembles a known one; or there are two
            descriptions of the camera or of the target.
    """
    for position, name in enumerate(header):
        if name and name in header[:position]:
            raise UserError(f"{where}: two columns are called {name!r}: rename or remove one of them")
    for name in header:
        _check_unknown(name, header, where)
    for name in ("image", "person"):
        if name not in header:
            raise UserError(f"{where}: has no column {name!r}; the columns are {', '.join(map(repr, header))[:300]}")
    camera = _find_group(header, CAMERAS, "the camera", where)
    target = _find_group(header, TARGETS, "the gaze target", where)
    has_pose = _is_complete(header, POSE, where)
    lens = LENS if _is_complete(header, LENS, where) else ()
    if "k3" in header:
        if not lens:
            raise UserError(f"{where}: has column 'k3', but no {', '.join(LENS)}: add them, or remove k3")
        lens = (*LENS, "k3")
    if lens and camera != CAMERA_COLUMNS:
        raise UserError(f"{where}: {', '.join(lens)} belong to {', '.join(INTRINSICS)}, which are missing")
    used = tuple(name for name in header if name in _KNOWN)
    return Layout(camera, target, lens, has_pose, used, tuple(name for name in header if name and name not in used))


def _check_unknown(name: str, header: Sequence[str], where: str) -> None:
    """Refuse an unknown name that resembles a known one, unless the known column exists too."""
    if name in _KNOWN or not name:
        return
    same = [known for known in _KNOWN if _stem(known) == _stem(name)]
    if same and not set(same) & set(header):
        raise UserError(
            f"{where}: column {name!r} has an unknown unit: convert the values if necessary, and rename it to "
            f"{' or '.join(map(repr, same))}"
        )
    alike = [known for known in difflib.get_close_matches(name, _KNOWN, 3, _ALIKE) if known not in header]
    is_compound = any(known in name.split("_") for known in alike)  # such as camera_id
    if alike and not same and not is_compound:
        raise UserError(f"{where}: unknown column {name!r}: did you mean {alike[0]!r}? If not, choose another name")


def _stem(name: str) -> str:
    """Remove the unit at the end of a name."""
    stem, _, unit = name.rpartition("_")
    return stem if stem and unit in _UNITS else name


def _find_group(header: Sequence[str], groups: Mapping[str, tuple[str, ...]], what: str, where: str) -> str:
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
