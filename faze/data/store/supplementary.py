"""The layouts of FAZE's own annotation, as published, and of the synthetic generator's ground truth."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.store.layout import (
    decoded,
    encoded,
    group_of,
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
    """Count each person's entries in a supplementary file, sorted by person."""
    with open_file(path) as file, reading(path):
        return {person: len(group_of(file, path, person, ("file_name",), "SO")["file_name"]) for person in sorted(file)}


def read_supplementary(path: Path | str, person: str) -> Supplementary:
    """Read one person's annotation.

    Raises:
        UserError: The file, the person or one of the arrays is missing or damaged, or the shapes disagree.
    """
    with open_file(path) as file, reading(path):
        group = group_of(file, path, person, ("file_name",), "SO")
        group_of(file, path, person, _SUPPLEMENTARY)
        file_names = decoded(group["file_name"])
        arrays = {name: group[name][()].astype(np.float64) for name in _SUPPLEMENTARY}
        reasons = decoded(group["reason"]) if "reason" in group else []
        label_source = text_attribute(group.attrs, "label_source", "supplementary")
    for name, (_, width) in _SUPPLEMENTARY.items():
        shape = arrays[name].shape
        if shape != (wanted := (len(file_names), width or (shape or (0,))[-1])):
            raise UserError(f"{path}: {name} of person {person} has shape {shape}, not {wanted}")
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
    return group
