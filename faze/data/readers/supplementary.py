"""FAZE's own annotation, the supplementary HDF5 file, whose head poses belong to a 14-point face model.

A group per person: file_name (N, bytes), camera_parameters (N, 4: fx fy cx cy, px), distortion_parameters (N, d),
head_pose (N, 6: rotation vector, translation in mm), 3d_gaze_target (N, 3 mm). `faze landmarks` adds reason (N, bytes),
why a frame has no label, and the attribute label_source.
"""

import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

from faze.base.errors import UserError
from faze.base.files import reading, whole_file
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM
from faze.data.readers.person import OUTSIDE, Person, camera_matrices, is_inside, unreadable

_REMEDY = "download it again, or make it with `faze landmarks`"


def supplementary_people(path: Path) -> list[str]:
    """List the people of a supplementary file, sorted."""
    with reading(path, _REMEDY), h5py.File(path) as file:
        return sorted(file)


def write_supplementary(path: Path, people: Iterable[Person]) -> None:
    """Write the annotation of people, one after the other."""
    content = io.BytesIO()  # HDF5 crashes if it cannot write to the disk
    with h5py.File(content, "w") as file:
        for person in people:
            group = file.create_group(person.name)
            group["file_name"] = np.array([name.encode() for name in person.files])
            group["camera_parameters"] = person.cameras[:, [0, 1, 0, 1], [0, 1, 2, 2]]
            group["distortion_parameters"] = person.distortions
            group["head_pose"] = person.poses
            group["3d_gaze_target"] = person.targets_mm
            group["reason"] = np.array([reason.encode() for reason in person.reasons])
            group.attrs["label_source"] = person.source
    with whole_file(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def read_supplementary(path: Path, name: str, folder: Path) -> Person:
    """Read one person's annotation.

    Raises:
        UserError: An array is missing or has another shape.
    """
    with reading(path, _REMEDY), h5py.File(path) as file:
        if name not in file:
            return unreadable(name, folder, "not in the supplementary annotation")
        group = file[name]
        files = [file.decode() for file in group["file_name"]]
        reasons = [reason.decode() for reason in group["reason"]] if "reason" in group else [""] * len(files)
        count, lenses = len(files), group["distortion_parameters"][:]
        return Person(
            name,
            folder,
            files,
            [reason or OUTSIDE * (not is_inside(file)) for reason, file in zip(reasons, files, strict=True)],
            cameras=camera_matrices(group["camera_parameters"][:].reshape(count, 4)),
            distortions=lenses.astype(float).reshape(count, lenses.shape[1]),
            poses=group["head_pose"][:].astype(float).reshape(count, 6),
            targets_mm=group["3d_gaze_target"][:].astype(float).reshape(count, 3),
            corners_mm=INNER_EYE_CORNERS_14_MM,
            source=str(group.attrs.get("label_source", "supplementary")),
        )


def with_supplementary(own: Person, path: Path) -> Person:
    """Return a person's frames as FAZE annotates them, with the split, device, screen and reasons of the data set."""
    if not (own.folder / own.name).is_dir():
        return unreadable(own.name, own.folder, f"no folder {own.name}")
    try:
        found = read_supplementary(path, own.name, own.folder)
    except UserError as error:
        return unreadable(own.name, own.folder, error)
    rows = {file: row for row, file in enumerate(own.files)}
    at = np.array([rows.get(file, -1) for file in found.files], int)  # -1: only FAZE lists the frame
    for row, reason in enumerate(np.array([*own.reasons, ""])[at]):
        found.reasons[row] = found.reasons[row] or str(reason)
    on_screen = None if own.on_screen is None else np.append(own.on_screen, np.nan)[at]
    return replace(found, on_screen=on_screen, split=own.split, device=own.device)
