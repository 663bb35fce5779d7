"""Read a manifest (docs/how-to/own-frames.md): anyone's frames, in one CSV or Parquet file with a line per frame."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.data.normalization.images import read_upright_size
from faze.data.normalization.pose import (
    INNER_EYE_CORNERS_6_MM,
    INNER_EYE_CORNERS_14_MM,
    UnusableFrame,
    gaze_origins_mm,
    normalize_poses,
)
from faze.data.readers.camera import FIELD_OF_VIEW_DEG, assumed_camera, read_camera, wrong_size
from faze.data.readers.manifest_table import INTRINSICS, LENS, POSE, TARGETS, Table, read_table
from faze.data.readers.person import OUTSIDE, People, Person, camera_matrices, is_inside, lie_on_screen
from faze.data.readers.screen import FILE, read_screen
from faze.data.readers.supplementary import read_supplementary
from faze.data.strips import SPLITS

FACE_MODELS = {"faze": INNER_EYE_CORNERS_14_MM, "mpiigaze": INNER_EYE_CORNERS_6_MM}


def needs_landmarks(path: Path) -> bool:
    """Return whether a manifest has no head poses."""
    return not read_table(path, most=2).posed


def open_manifest(path: Path, supplementary: Path | None) -> People:
    """Read a manifest, with the head poses of its columns or of the HDF5 that `faze landmarks` wrote for it."""
    return {person.name: lambda person=person: person for person in read_manifest(path, supplementary)}


def read_manifest(path: Path, supplementary: Path | None = None, posed: bool = True) -> list[Person]:
    """Read the people of a manifest, sorted by name; their frames are in the order of `session` and `time_s`.

    Head poses come from the table, or from the HDF5 that `faze landmarks` wrote for it (`supplementary`). If `posed` is
    False, they may be missing, and are then NaN. A UserError describes a fault that concerns all lines.
    """
    table = read_table(path)
    if posed and table.posed == (supplementary is not None):
        raise UserError(
            f"{path}: head poses must be given once: in the columns {', '.join(POSE)}, or by the annotation that "
            "`faze landmarks` writes"
        )
    rows_of, everyone, people = _rows_of_people(table), _read_frames(table), []
    for name, rows in rows_of.items():
        person = replace(everyone[rows], name=name, split=table.texts("split", "test")[rows[0]].lower())
        if supplementary:
            _take_poses(person, read_supplementary(supplementary, name, person.folder))
        if posed:
            _check_labels(person, table.cells.index[rows])
        people.append(person)
    return people


def _rows_of_people(table: Table) -> dict[str, NDArray[np.int64]]:
    """Return each person's rows, in the order of session and time."""
    names, splits = pd.Series(table.texts("person")), pd.Series(table.texts("split", "test")).str.lower()
    table.refuse(names.str.contains(r"^$|^\.|[/\0]"), "person", "a name may not be empty, begin with . or contain /")
    table.refuse(~splits.isin(SPLITS), "split", f"not one of {', '.join(SPLITS)}")
    differs = splits != splits.groupby(names).transform("first")
    table.refuse(differs, "split", "the person is in another split in an earlier line, but belongs to one")
    differs = names != names.groupby(table.texts("image")).transform("first")
    table.refuse(differs, "person", "an earlier line states another person for the same image")
    order = pd.DataFrame({"session": pd.factorize(table.texts("session"))[0], "time_s": _times(table)})
    ordered = names[order.sort_values(["session", "time_s"], kind="stable").index]
    return {name: group.index.to_numpy() for name, group in ordered.groupby(ordered)}


def _times(table: Table) -> NDArray[np.float64]:
    """Return the time of each line in seconds, which a table states as a number or by ISO 8601."""
    texts = pd.Series(table.texts("time_s", "0"))
    times = pd.to_numeric(texts, errors="coerce")
    if times.isna().all():
        dates = pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True)
        times = (dates - dates.min()).dt.total_seconds()
    table.reject(times.isna(), "time_s", "must be seconds in all lines, or ISO 8601 in all lines")
    return times.to_numpy(float)


def _read_frames(table: Table) -> Person:
    """Read everything about the frames of all people but their names and splits."""
    folder = table.path.absolute().parent
    files = [os.path.normpath(image.removeprefix(f"{folder}/")) for image in table.texts("image")]
    table.reject(["\\" in file for file in files], "image", "write / between folders")
    table.reject([not is_inside(file) for file in files], "image", OUTSIDE)
    cameras, distortions = _read_cameras(table, files)
    models = table.texts("face_model", "faze")
    table.reject([model not in FACE_MODELS for model in models], "face_model", f"not one of {', '.join(FACE_MODELS)}")
    corners_mm = np.stack([FACE_MODELS.get(model, INNER_EYE_CORNERS_14_MM) for model in models])
    targets_mm, gaze, on_screen = _read_targets(table)
    poses = _read_poses(table)
    source = "assumed_camera" if table.camera == "hfov_deg" else "annotated"
    arrays = (cameras, distortions, poses, targets_mm, gaze, corners_mm, on_screen)
    return Person("", folder, files, table.reasons.tolist(), *arrays, source=source)


def _each_file(table: Table, column: str, default: str, read: Callable[[Path], Any]) -> Iterator[tuple[NDArray, Any]]:
    """Yield the content of each file that a column names, with its rows; reject the rows of one that cannot be read."""
    names = table.texts(column, default)
    for name in sorted(set(names)):
        try:
            if not is_inside(name.removeprefix(f"{table.path.absolute().parent}/")):
                raise UserError(OUTSIDE if name else "state a file")
            yield names == name, read(table.path.parent / name)
        except UserError as error:
            if column not in table.cells:
                raise UserError(f"{table.path}: targets in px need {default} beside it: {error}") from None
            table.reject(names == name, column, str(error))


def _read_cameras(table: Table, files: list[str]) -> tuple[NDArray, NDArray]:
    """Return the camera matrix (N, 3, 3) and distortion (N, d) of each line."""
    if table.camera == "columns":
        table.reject(table.numbers("fx_px", "fy_px").min(axis=1) <= 0, "", "a focal length must be positive")
        lens = [name for name in (*LENS, "k3") if name in table.cells]
        return camera_matrices(table.numbers(*INTRINSICS)), table.numbers(*lens) if lens else np.zeros((len(files), 5))
    # Zeros complete the coefficients to the 14 of the longest of OpenCV's lens models.
    matrices, distortions = np.full((len(files), 3, 3), np.nan), np.zeros((len(files), 14))
    if table.camera == "hfov_deg":
        least, most = FIELD_OF_VIEW_DEG
        angles = table.cells["hfov_deg"].to_numpy()
        outside = (angles < least) | (angles > most)
        table.reject(outside, "hfov_deg", f"not between {least:g} and {most:g} degrees: is it in radians?")
        for row, size in _sizes(table, files, table.reasons == ""):
            matrices[row] = assumed_camera(angles[row], *size)[0]
        return matrices, distortions
    for rows, (matrix, distortion, calibrated) in _each_file(table, "camera", "", read_camera):
        matrices[rows], distortions[rows, : len(distortion)] = matrix, distortion
        for row, size in _sizes(table, files, rows) if calibrated else ():
            table.reject((np.arange(len(files)) == row) & (size != calibrated), "image", wrong_size(calibrated, size))
    return matrices, distortions


def _sizes(table: Table, files: list[str], rows: NDArray[np.bool_]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the row, width and height of the selected lines' images; reject lines whose image cannot be read."""
    for row in np.flatnonzero(rows & (table.reasons == "")):
        try:
            yield row, read_upright_size(table.path.parent / files[row])
        except UnusableFrame as unusable:
            table.reject(np.arange(len(files)) == row, "image", str(unusable))


def _read_poses(table: Table) -> NDArray[np.float64]:
    """Return head poses (N, 6), NaN if the manifest has none; refuse degrees, and reject impossible distances."""
    if not table.posed:
        return np.full((len(table.cells), 6), np.nan)
    poses = table.numbers(*POSE)
    turned = np.linalg.norm(poses[:, :3], axis=1) > 2 * np.pi
    table.refuse(turned, POSE[0], "turns the head by more than a full turn: write a rotation vector in radians")
    distance_mm = np.linalg.norm(poses[:, 3:], axis=1)
    outside = (distance_mm < 100) | (distance_mm > 10_000)
    table.reject(outside, POSE[5], "the head is not 100 to 10000 mm away: write the position in mm")
    return poses


def _read_targets(table: Table) -> tuple[NDArray, NDArray | None, NDArray | None]:
    """Return targets (N, 3) in mm or NaN, gaze vectors (N, 3) or None, and whether targets are on their screen."""
    unit = table.target
    values = table.numbers(*TARGETS[unit])
    if unit == "mm":
        _check_targets_mm(table, values)
        return values, None, None
    targets_mm, on_screen = np.full((len(values), 3), np.nan), np.full(len(values), np.nan)
    if unit == "px":
        for rows, screen in _each_file(table, "screen", FILE, read_screen):
            targets_mm[rows] = screen.to_mm(values[rows])
            on_screen[rows] = lie_on_screen(values[rows], screen.size_px)
        return targets_mm, None, on_screen
    if unit == "deg":
        values = np.radians(values)
    for name, angles in zip(TARGETS[unit], values.T, strict=True):
        table.refuse(np.abs(angles) > np.pi + 1e-6, name, "too large: call a column in degrees gaze_..._deg")
    return targets_mm, vector_from_pitchyaw(values), None


def _check_targets_mm(table: Table, targets_mm: NDArray) -> None:
    """Refuse a table whose targets (N, 3) are in m or cm instead of mm."""
    distances = np.linalg.norm(targets_mm, axis=1)
    farthest = np.nanmax(distances, initial=0)
    several = len(np.unique(targets_mm[np.isfinite(distances)], axis=0)) >= 10
    if 0 < farthest < 3 or (several and 0 < farthest < 30):
        near = f"the farthest gaze target is {farthest:.2g} mm from the camera"
        raise UserError(f"{table.path}: {near}: the targets seem to be in cm or m; write them in mm")


def _take_poses(person: Person, found: Person) -> None:
    """Assign the head poses that `faze landmarks` estimated."""
    rows = {file: row for row, file in enumerate(found.files)}
    if person.source != "assumed_camera":
        person.source = found.source
    for row, file in enumerate(person.files):
        at = rows.get(file)
        if at is None:
            why = "not in the supplementary annotation: run `faze landmarks` again"
        elif not found.reasons[at] and not np.allclose(found.cameras[at], person.cameras[row], rtol=1e-9):
            why = "its head pose was estimated with another camera: run `faze landmarks` again"
        else:
            why, person.poses[row] = found.reasons[at], found.poses[at]
        person.reasons[row] = person.reasons[row] or why


def _check_labels(person: Person, lines: pd.Index) -> None:
    """Complete the targets, and reject frames whose labels cannot be true."""
    pose = person.poses[:, :3], person.poses[:, 3:], person.corners_mm
    person.targets_mm = person.targets_from(gaze_origins_mm(*pose))
    _, faults = normalize_poses(*pose, person.targets_mm)
    for row, fault in enumerate(faults):
        if not person.reasons[row] and fault:
            person.reasons[row] = f"line {lines[row]}: {fault}"
