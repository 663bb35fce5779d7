"""Read a manifest (docs/how-to/own-frames.md): one CSV or Parquet file that lists a user's frames, one per line.

Lines are numbered as in a spreadsheet: the header is line 1. A fault that affects the whole file is an error,
whereas a fault in one line excludes only that line's frame.
"""

import difflib
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.base.geometry import vector_from_pitchyaw
from faze.data.normalization.images import read_upright_size
from faze.data.normalization.pose import (
    INNER_EYE_CORNERS_6_MM,
    INNER_EYE_CORNERS_14_MM,
    UnusableFrame,
    gaze_origins_mm,
    normalize_poses,
)
from faze.data.readers.camera import FIELD_OF_VIEW_DEG, assumed_camera, read_camera
from faze.data.readers.person import OUTSIDE, People, Person, camera_matrices, is_inside
from faze.data.readers.screen import read_screen
from faze.data.readers.supplementary import read_supplementary
from faze.data.strips import SPLITS

INTRINSICS = ["fx_px", "fy_px", "cx_px", "cy_px"]
LENS = ["k1", "k2", "p1", "p2"]  # k3 may follow
POSE = ["head_rx", "head_ry", "head_rz", "head_x_mm", "head_y_mm", "head_z_mm"]
# The camera and the target are each described by exactly one of these groups of columns.
CAMERAS = {"file": ["camera"], "columns": INTRINSICS, "hfov_deg": ["hfov_deg"]}
TARGETS = {
    "mm": ["target_x_mm", "target_y_mm", "target_z_mm"],
    "px": ["target_x_px", "target_y_px"],
    "rad": ["gaze_pitch_rad", "gaze_yaw_rad"],
    "deg": ["gaze_pitch_deg", "gaze_yaw_deg"],
}
OPTIONAL = {"split": "test", "session": "", "time_s": "0", "face_model": "faze"}  # text columns, with their defaults
NUMBERS = (*INTRINSICS, *LENS, "k3", "hfov_deg", *(name for names in TARGETS.values() for name in names), *POSE)
KNOWN = ("image", "person", "camera", *OPTIONAL, *NUMBERS)
FACE_MODELS = {"faze": INNER_EYE_CORNERS_14_MM, "mpiigaze": INNER_EYE_CORNERS_6_MM}


@dataclass(eq=False)
class Table:
    """The N lines of a manifest."""

    path: Path
    cells: pd.DataFrame  # indexed by line number; text, or float64 with NaN where a cell contains no number
    reasons: NDArray[np.object_]  # (N,) why a line cannot be used; "" if it can
    camera: str  # key of CAMERAS
    target: str  # key of TARGETS

    def reject(self, rows: ArrayLike, column: str, why: str) -> None:
        """Reject the lines selected by the mask `rows` (N,), unless they have already been rejected."""
        for row in np.flatnonzero(np.asarray(rows, bool) & (self.reasons == "")):
            cell = str(self.cells[column].iloc[row])[:40]
            self.reasons[row] = f"line {self.cells.index[row]}, column {column} is {cell!r}: {why}"


def _read_table(path: Path, most: int | None = None) -> Table:
    """Read a table, or the first `most` lines of a CSV file; a UserError states the file, line, column and remedy."""
    with reading(path, "save the table again, as CSV in UTF-8 or as Parquet"):
        if path.suffix.lower() == ".parquet":
            cells = pd.read_parquet(path).reset_index()  # a named pandas index becomes a column
            cells.index += 2
        else:
            cells = _read_csv(path, most)
    cells.columns = [str(name).strip().lower() for name in cells.columns]
    groups = _check_header(list(cells.columns), f"{path}: line 1")
    cells = cells.loc[:, cells.columns.isin(KNOWN)].astype("string").fillna("")
    cells = cells.apply(lambda column: column.str.strip())
    cells = cells[(cells != "").any(axis=1)].astype(object)
    if cells.empty:
        raise UserError(f"{path}: has a header, but no lines: add one line per frame")
    cells = cells.assign(**{name: text for name, text in OPTIONAL.items() if name not in cells})
    cells["split"] = cells["split"].str.lower()
    table = Table(path, cells, np.full(len(cells), "", object), *groups)
    numbers = [name for name in cells if name in NUMBERS]
    characters = set("".join(cells[numbers].to_numpy().ravel()))
    decimal = "," if "," in characters and "." not in characters else "."  # some languages use a decimal comma
    for name in numbers:
        values = pd.to_numeric(cells[name].str.replace(decimal, "."), errors="coerce").to_numpy(float)
        finite = np.isfinite(values)
        table.reject(~finite, name, "must be a finite number, with a decimal point and no thousands separator")
        table.cells[name] = np.where(finite, values, np.nan)
    return table


def _read_csv(path: Path, most: int | None) -> pd.DataFrame:
    """Read cells, indexed by line number; a line with more cells than the first line is an error."""
    with path.open(encoding="utf-8-sig") as file:
        first = file.readline()
    skipped = int(first.startswith("sep="))  # Excel's declaration of the delimiter, a line that Excel does not show
    how = {"dtype": str, "na_filter": False, "skip_blank_lines": False, "encoding": "utf-8-sig"}
    lines = pd.read_csv(path, sep=max(",;\t", key=first.count), header=None, skiprows=skipped, nrows=most, **how)
    lines.index += 1
    return lines[1:].set_axis(lines.iloc[0], axis=1)


def _check_header(header: list[str], where: str) -> tuple[str, str]:
    """Check column names given in lower case; return the keys of the groups in CAMERAS and TARGETS that the table uses.

    Raise a UserError if a column is missing, unknown or listed twice.
    """
    for name in header:
        if name in KNOWN and header.count(name) > 1:
            raise UserError(f"{where}: two columns are called {name!r}: rename or remove one of them")
        alike = difflib.get_close_matches(name, set(KNOWN) - set(header), 1, 0.8)
        if name not in KNOWN and alike and alike[0] not in name.split("_"):  # camera_id is not a misspelt camera
            raise UserError(
                f"{where}: unknown column {name!r}: did you mean {alike[0]!r}? If so, rename the column, and check "
                "the unit of its values; otherwise, choose another name"
            )
    for name in ("image", "person"):
        if name not in header:
            raise UserError(f"{where}: has no column {name!r}; the columns are {', '.join(header)[:300]}")
    camera = _find_group(header, CAMERAS, "the camera", where)
    target = _find_group(header, TARGETS, "the gaze target", where)
    for names in (CAMERAS[camera], TARGETS[target], LENS, POSE):
        missing = [name for name in names if name not in header]
        if 0 < len(missing) < len(names):
            raise UserError(f"{where}: lacks {', '.join(missing)}: state all of {', '.join(names)}, or none")
    if LENS[0] in header and camera != "columns":
        raise UserError(f"{where}: {', '.join(LENS)} need {', '.join(INTRINSICS)}: add the latter or remove the former")
    return camera, target


def _find_group(header: list[str], groups: dict[str, list[str]], what: str, where: str) -> str:
    """Return the key of the only group that has columns in the header."""
    found = [key for key, names in groups.items() if set(names) & set(header)]
    if len(found) != 1:
        choices = "; or ".join(", ".join(names) for names in groups.values())
        raise UserError(f"{where}: has {len(found)} descriptions of {what}, but needs exactly one: {choices}")
    return found[0]


def needs_landmarks(path: Path) -> bool:
    """Return whether a manifest lacks head poses."""
    return POSE[0] not in _read_table(path, most=2).cells


def open_manifest(path: Path, supplementary: Path | None) -> People:
    """Read a manifest, with head poses from its columns or from the HDF5 file that `faze landmarks` wrote for it."""
    return {person.name: lambda person=person: person for person in read_manifest(path, supplementary)}


def read_manifest(path: Path, supplementary: Path | None = None, posed: bool = True) -> list[Person]:
    """Read the people in a manifest, sorted by name, with their frames sorted by `session` and `time_s`.

    Head poses come from the table or from `supplementary`, the HDF5 file that `faze landmarks` wrote for it. If `posed`
    is False, missing poses are allowed and become NaN. Raise a UserError if a fault affects the whole file.
    """
    table = _read_table(path)
    if posed and (POSE[0] in table.cells) == (supplementary is not None):
        raise UserError(
            f"{path}: head poses must be given exactly once: in the columns {', '.join(POSE)}, or in the annotation "
            "that `faze landmarks` writes"
        )
    _sort_lines(table)
    everyone, people = _read_frames(table), []
    for name, rows in sorted(table.cells.groupby("person").indices.items()):
        person = replace(everyone[rows], name=name, split=table.cells["split"].iloc[rows[0]])
        if supplementary:
            person = _with_estimated_poses(person, supplementary)
        if posed:
            _check_labels(person, table.cells.index[rows])
        people.append(person)
    return people


def _sort_lines(table: Table) -> None:
    """Sort lines by session (in order of first appearance), then by time (in seconds or ISO 8601)."""
    times = pd.to_numeric(table.cells["time_s"], errors="coerce")
    if times.isna().all():
        times = pd.to_datetime(table.cells["time_s"], format="ISO8601", errors="coerce", utc=True)
    table.reject(times.isna(), "time_s", "must be seconds in all lines, or ISO 8601 in all lines")
    keys = pd.DataFrame({"session": pd.factorize(table.cells["session"])[0], "time": times.array})
    order = keys.sort_values(["session", "time"], kind="stable").index
    table.cells, table.reasons = table.cells.iloc[order], table.reasons[order]


def _read_frames(table: Table) -> Person:
    """Read the frames of all people as one Person with no name or split, and check the people's names and splits."""
    names, splits = table.cells["person"], table.cells["split"]
    table.reject(names.str.contains(r"^$|^\.|[/\0]"), "person", "a name may not be empty, begin with . or contain /")
    table.reject(~splits.isin(SPLITS), "split", f"not one of {', '.join(SPLITS)}")
    differs = splits != splits.groupby(names).transform("first")
    table.reject(differs, "split", "the person is in another split in an earlier line: use only one split")
    folder = table.path.absolute().parent
    files = [os.path.normpath(image.removeprefix(f"{folder}/")) for image in table.cells["image"]]
    table.reject([not is_inside(file) for file in files], "image", OUTSIDE)
    cameras, distortions = _read_cameras(table, files)
    models = table.cells["face_model"]
    table.reject(~models.isin(FACE_MODELS), "face_model", f"not one of {', '.join(FACE_MODELS)}")
    corners_mm = np.stack([FACE_MODELS.get(model, INNER_EYE_CORNERS_14_MM) for model in models])
    targets_mm, gaze = _read_targets(table)
    poses = _read_poses(table)
    source = "assumed_camera" if table.camera == "hfov_deg" else "annotated"
    arrays = (cameras, distortions, poses, targets_mm, gaze, corners_mm)
    return Person("", folder, files, table.reasons.tolist(), *arrays, source=source)


def _read_cameras(table: Table, files: list[str]) -> tuple[NDArray, NDArray]:
    """Return camera matrices (N, 3, 3) and distortions (N, 14) of all lines; OpenCV's longest model has 14 numbers."""
    matrices, distortions = np.full((len(files), 3, 3), np.nan), np.zeros((len(files), 14))
    if table.camera == "columns":
        matrices = camera_matrices(table.cells[INTRINSICS].to_numpy())
        lens = [name for name in (*LENS, "k3") if name in table.cells]
        distortions[:, : len(lens)] = table.cells[lens]
        table.reject((table.cells[INTRINSICS[:2]] <= 0).any(axis=1), "fx_px", "focal lengths must be positive")
    elif table.camera == "file":
        for name, rows in table.cells.groupby("camera").indices.items():
            try:
                matrix, distortion, _ = read_camera(table.path.parent / name)
                matrices[rows], distortions[rows, : len(distortion)] = matrix, distortion
            except UserError as error:
                table.reject(table.cells["camera"] == name, "camera", str(error))
    else:
        angles, (least, most) = table.cells["hfov_deg"].to_numpy(), FIELD_OF_VIEW_DEG
        why = f"not between {least:g} and {most:g} degrees: is it in radians?"
        table.reject((angles < least) | (angles > most), "hfov_deg", why)
        for row in np.flatnonzero(table.reasons == ""):
            try:
                matrices[row] = assumed_camera(angles[row], *read_upright_size(table.path.parent / files[row]))[0]
            except UnusableFrame as unusable:
                table.reject(np.arange(len(files)) == row, "image", str(unusable))
    return matrices, distortions


def _read_poses(table: Table) -> NDArray[np.float64]:
    """Return head poses (N, 6), NaN without them; reject lines with implausible distances. Degrees are an error."""
    if POSE[0] not in table.cells:
        return np.full((len(table.cells), 6), np.nan)
    poses = table.cells[POSE].to_numpy()
    turn_rad, distance_mm = np.linalg.norm(poses.reshape(-1, 2, 3), axis=2).T
    if (turn_rad > 2 * np.pi).any():
        raise UserError(f"{table.path}: {', '.join(POSE[:3])} rotate a head by more than a full turn: use radians")
    outside = (distance_mm < 100) | (distance_mm > 10_000)
    table.reject(outside, POSE[5], "the head is not 100 to 10000 mm away: write the position in mm")
    return poses


def _read_targets(table: Table) -> tuple[NDArray, NDArray | None]:
    """Return targets (N, 3), in mm or NaN, and either gaze vectors (N, 3) or None."""
    values = table.cells[TARGETS[table.target]].to_numpy()
    if table.target == "mm":
        if 0 < np.nanmax(np.linalg.norm(values, axis=1), initial=0) < 30:
            raise UserError(f"{table.path}: all targets are within 30 mm of the camera: write them in mm, not cm or m")
        return values, None
    if table.target == "px":
        screen = read_screen(table.path.with_name("screen.yaml"))
        outside = table.cells.index[((values < 0) | (values > screen.size_px)).any(axis=1)]
        if len(outside):
            which = f"the targets of {len(outside)} lines, such as line {outside[0]}, are outside the screen"
            print(f"warning: {table.path}: {which}: check their unit, and the size in screen.yaml", file=sys.stderr)
        return screen.to_mm(values), None
    if table.target == "deg":
        values = np.radians(values)
    if (np.abs(values) > np.pi + 1e-6).any():
        raise UserError(f"{table.path}: gaze angles exceed pi radians: angles in degrees need the columns gaze_..._deg")
    return np.full((len(values), 3), np.nan), vector_from_pitchyaw(values)


def _with_estimated_poses(person: Person, supplementary: Path) -> Person:
    """Return the person with the head poses that `faze landmarks` estimated."""
    found = read_supplementary(supplementary, person.name, person.folder)
    if found.files != person.files:
        raise UserError(f"{supplementary}: the frames of {person.name} have changed: run `faze landmarks` again")
    reasons = [own or other for own, other in zip(person.reasons, found.reasons, strict=True)]
    source = person.source if person.source == "assumed_camera" else found.source
    return replace(person, poses=found.poses, reasons=reasons, source=source)


def _check_labels(person: Person, lines: pd.Index) -> None:
    """Compute the targets if the manifest has only gaze angles, and reject frames with impossible labels."""
    pose = person.poses[:, :3], person.poses[:, 3:], person.corners_mm
    person.targets_mm = person.targets_from(gaze_origins_mm(*pose))
    _, faults = normalize_poses(*pose, person.targets_mm)
    for row, fault in enumerate(faults):
        if not person.reasons[row] and fault:
            person.reasons[row] = f"line {lines[row]}: {fault}"
