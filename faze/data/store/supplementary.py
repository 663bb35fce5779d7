"""The layouts of FAZE's own annotation, as published, and of the synthetic generator's ground truth."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import DamagedFile, UserError
from faze.base.untrusted import untrusted
from faze.data.store.layout import (
    DAMAGED,
    LABEL_SOURCES,
    NUMBERS,
    array_fault,
    checksum_of,
    decoded,
    encoded,
    group_fault,
    group_of,
    name_fault,
    new_array,
    open_file,
    put_text,
    text_attribute,
    whole_hdf5,
)

# Published names of the arrays -> their names in Supplementary, and widths (None: any).
_SUPPLEMENTARY = {
    "camera_parameters": ("camera_parameters", 4),
    "distortion_parameters": ("distortion_parameters", None),
    "head_pose": ("head_pose", 6),
    "3d_gaze_target": ("gaze_target_mm", 3),
}


@dataclass(frozen=True, eq=False)
class Supplementary:
    """FAZE's own annotation of one person's N frames, in the camera frame and in mm."""

    file_names: list[str]
    camera_parameters: NDArray  # (N, 4) fx fy cx cy, px
    distortion_parameters: NDArray  # (N, d), OpenCV's order
    head_pose: NDArray  # (N, 6) rotation vector (rad), translation (mm)
    gaze_target_mm: NDArray  # (N, 3)
    # Our additions, for the annotation that `faze landmarks` makes:
    reasons: Sequence[str] = ()  # (N,) why an entry has no label (its numbers are NaN), "" if it has one; (): all have
    label_source: str = "supplementary"  # one of LABEL_SOURCES


def write_supplementary(path: Path | str, persons: Iterable[tuple[str, Supplementary]]) -> None:
    """Write FAZE's annotation in its published layout, person by person."""
    with whole_hdf5(path) as file:
        for person, entries in persons:
            arrays = {"file_name": encoded(entries.file_names)}
            arrays |= {name: getattr(entries, field) for name, (field, _) in _SUPPLEMENTARY.items()}
            if any(entries.reasons):
                arrays["reason"] = encoded(entries.reasons)
            group = _new_person(file, person, arrays)
            if entries.label_source != "supplementary":
                put_text(group, label_source=entries.label_source)


def supplementary_persons(path: Path | str) -> dict[str, int]:
    """Count each person's entries in a supplementary file, sorted by person; count 1 without file names."""
    with open_file(path) as file, untrusted(path, "the list of people"):
        names = sorted(file)
        for person in names:
            if fault := name_fault(person):
                raise UserError(f"{path}: invalid person: {fault}")
        return {person: _count_entries(file, person) for person in names}


def _count_entries(file: h5py.File, person: str) -> int:
    if group_fault(file, person) or array_fault(file[person], "file_name", "SO"):
        return 1
    return len(file[person]["file_name"]) if file[person]["file_name"].ndim == 1 else 1


def read_supplementary(path: Path | str, person: str) -> Supplementary:
    """Read one person's annotation.

    Raises:
        UserError: The file, the person or one of the arrays is missing or damaged, or the shapes disagree.
    """
    with open_file(path) as file, untrusted(path, f"the annotation of person {person}"):
        group = group_of(file, path, person, ("file_name",), "SO")
        group_of(file, path, person, _SUPPLEMENTARY)
        if "reason" in group:
            group_of(file, path, person, ("reason",), "SO")
        file_names = decoded(group["file_name"])
        arrays = {name: group[name][()].astype(np.float64) for name in _SUPPLEMENTARY}
        reasons = decoded(group["reason"]) if "reason" in group else []
        label_source = text_attribute(group.attrs, "label_source", "supplementary")
        stated = found = text_attribute(group.attrs, "checksum", "")
        if stated:
            found = _checksum(person, group_of(file, path, person, group, NUMBERS + "SO"))
    for name, (_, width) in _SUPPLEMENTARY.items():
        shape = arrays[name].shape
        if shape != (wanted := (len(file_names), width or (shape or (0,))[-1])):
            raise UserError(f"{path}: {name} of person {person} has shape {shape}, not {wanted}")
    if len(reasons) not in (0, len(file_names)) or label_source not in LABEL_SOURCES:
        raise UserError(
            f"{path}: reason or label_source of person {person} is not in the form that `faze landmarks` writes"
        )
    if stated != found:
        raise DamagedFile(f"{path}: the annotation of person {person} {DAMAGED}")
    return Supplementary(file_names, *arrays.values(), reasons=reasons, label_source=label_source)


def write_truth(path: Path | str, persons: Iterable[tuple[str, Mapping[str, ArrayLike]]]) -> None:
    """Write each person's ground-truth arrays under their names."""
    with whole_hdf5(path) as file:
        for person, arrays in persons:
            _new_person(file, person, arrays)


def _new_person(file: h5py.File, person: str, arrays: Mapping[str, ArrayLike]) -> h5py.Group:
    group = file.create_group(person)
    for name, array in arrays.items():
        new_array(group, name, array)
    put_text(group, checksum=_checksum(person, group))
    return group


def _checksum(person: str, group: h5py.Group) -> str:
    """Compute the checksum of a person's name and arrays, which faze adds to the published layout."""
    return checksum_of([person], ((name, array[()]) for name, array in sorted(group.items())))
