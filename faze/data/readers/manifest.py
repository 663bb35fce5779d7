"""Read a manifest (docs/how-to/own-frames.md): anyone's frames, in one CSV or Parquet file with a line per frame."""

import os
from dataclasses import replace
from pathlib import Path

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
from faze.data.readers.camera import FIELD_OF_VIEW_DEG, assumed_camera, read_camera
from faze.data.readers.manifest_table import INTRINSICS, LENS, POSE, TARGETS, Table, read_table
from faze.data.readers.person import OUTSIDE, People, Person, camera_matrices, is_inside
from faze.data.readers.screen import read_screen
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
    _sort_lines(table)
    _check_people(table)
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
    """Sort lines by session, in the order of first mention, and by time, in seconds or by ISO 8601."""
    times = pd.to_numeric(table.cells["time_s"], errors="coerce")
    if times.isna().all():
        times = pd.to_datetime(table.cells["time_s"], format="ISO8601", errors="coerce", utc=True)
    table.reject(times.isna(), "time_s", "must be seconds in all lines, or ISO 8601 in all lines")
    keys = pd.DataFrame({"session": pd.factorize(table.cells["session"])[0], "time": times.array})
    order = keys.sort_values(["session", "time"], kind="stable").index
    table.cells, table.reasons = table.cells.iloc[order], table.reasons[order]


def _check_people(table: Table) -> None:
    """Refuse wrong names and splits."""
    table.cells["split"] = table.cells["split"].str.lower()
    names, splits = table.cells["person"], table.cells["split"]
    table.refuse(names.str.contains(r"^$|^\.|[/\0]"), "person", "a name may not be empty, begin with . or contain /")
    table.refuse(~splits.isin(SPLITS), "split", f"not one of {', '.join(SPLITS)}")
    differs = splits != splits.groupby(names).transform("first")
    table.refuse(differs, "split", "the person is in another split in an earlier line, but belongs to one")


def _read_frames(table: Table) -> Person:
    """Read everything about the frames of all people but their names and splits."""
    folder = table.path.absolute().parent
    files = [os.path.normpath(image.removeprefix(f"{folder}/")) for image in table.cells["image"]]
    table.reject(["\\" in file for file in files], "image", "write / between folders")
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
    """Return the camera matrix (N, 3, 3) and distortion (N, 14) of each line, for the longest of OpenCV's models."""
    matrices, distortions = np.full((len(files), 3, 3), np.nan), np.zeros((len(files), 14))
    if table.camera == "columns":
        matrices = camera_matrices(table.numbers(INTRINSICS))
        lens = [name for name in (*LENS, "k3") if name in table.cells]
        distortions[:, : len(lens)] = table.numbers(lens)
        table.reject((table.numbers(INTRINSICS[:2]) <= 0).any(axis=1), "fx_px", "focal lengths must be positive")
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
    """Return head poses (N, 6), NaN if the manifest has none; refuse degrees, and reject impossible distances."""
    if not table.posed:
        return np.full((len(table.cells), 6), np.nan)
    poses = table.numbers(POSE)
    turn_rad, distance_mm = np.linalg.norm(poses.reshape(-1, 2, 3), axis=2).T
    table.refuse(turn_rad > 2 * np.pi, POSE[0], "turns the head by more than a full turn: write radians")
    outside = (distance_mm < 100) | (distance_mm > 10_000)
    table.reject(outside, POSE[5], "the head is not 100 to 10000 mm away: write the position in mm")
    return poses


def _read_targets(table: Table) -> tuple[NDArray, NDArray | None]:
    """Return targets (N, 3) in mm or NaN, and gaze vectors (N, 3) or None."""
    names = TARGETS[table.target]
    values = table.numbers(names)
    if table.target == "mm":
        farthest = np.nanmax(np.linalg.norm(values, axis=1), initial=0)
        if 0 < farthest < 30:
            near = f"the farthest gaze target is {farthest:.2g} mm from the camera"
            raise UserError(f"{table.path}: {near}: the targets seem to be in cm or m; write them in mm")
        return values, None
    if table.target == "px":
        return read_screen(table.path.with_name("screen.yaml")).to_mm(values), None
    if table.target == "deg":
        values = np.radians(values)
    table.refuse((np.abs(values) > np.pi + 1e-6).any(axis=1), names[0], "too large: degrees are called gaze_..._deg")
    return np.full((len(values), 3), np.nan), vector_from_pitchyaw(values)


def _with_estimated_poses(person: Person, supplementary: Path) -> Person:
    """Assign the head poses that `faze landmarks` estimated."""
    found = read_supplementary(supplementary, person.name, person.folder)
    if found.files != person.files:
        raise UserError(f"{supplementary}: the frames of {person.name} have changed: run `faze landmarks` again")
    reasons = [own or other for own, other in zip(person.reasons, found.reasons, strict=True)]
    source = person.source if person.source == "assumed_camera" else found.source
    return replace(person, poses=found.poses, reasons=reasons, source=source)


def _check_labels(person: Person, lines: pd.Index) -> None:
    """Complete the targets, and reject frames whose labels cannot be true."""
    pose = person.poses[:, :3], person.poses[:, 3:], person.corners_mm
    person.targets_mm = person.targets_from(gaze_origins_mm(*pose))
    _, faults = normalize_poses(*pose, person.targets_mm)
    for row, fault in enumerate(faults):
        if not person.reasons[row] and fault:
            person.reasons[row] = f"line {lines[row]}: {fault}"
